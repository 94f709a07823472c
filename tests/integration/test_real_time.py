"""Real-time mode through the command: the example, what it sends and buries, a stop, a restart, what is refused."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.alerts import EXAMPLE, Alerts, payment
from tests.commands import document, penstock

from penstock.kafka.consume import headers_of
from penstock.local.broker import Cluster
from penstock.spec.load import load


@pytest.fixture
def alerts(kafka: Cluster, tmp_path: Path) -> Alerts:
    return Alerts(kafka.bootstrap, tmp_path)


def read_by(line: str) -> int:
    """Records of a batch, by its ledger entry."""
    return sum(int(view["read"]) for view in json.loads(line)["views"].values())


def test_records_are_sent_on_buried_or_dropped_and_a_restart_repeats_and_loses_nothing(alerts: Alerts) -> None:
    headers = [("h", b"\x00\xff"), ("h", None)]
    alerts.spec["transform"][0]["sql"] += " and 10 / (id - 13) is not null"  # fails for one record
    alerts.spec["transform"].append({"view": "placed", "sql": "select *, if(id = 14, 7, 0) as place from large"})
    alerts.spec["sinks"]["large"]["from"] = "placed"
    alerts.spec["sinks"]["large"]["kafka"]["partition"] = "place"
    bad = [payment(100, amount='"x"'), b"{", b'{"id":1}', payment(101, amount='"-5"'), None, payment(13), payment(14)]
    with alerts.running() as process:
        alerts.send(*(payment(i) for i in range(10)), payment(50, '"3"'), payment(51, status="ODD"))
        alerts.send(*bad, headers=headers)
        alerts.until(lambda: len(alerts.read(alerts.out)) >= 10 and len(alerts.letters()) >= len(bad))
        ledger = alerts.directory / ".penstock" / "alerts" / "ledger"
        alerts.until(lambda: sum(read_by(line) for f in ledger.glob("*") for line in f.open()) >= 12 + len(bad))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, alerts.log()
    sent = [json.loads(message.value()) for message in alerts.read(alerts.out)]
    assert {each["id"] for each in sent} == set(range(10))
    assert sent[0]["gross"] == 2380.0 and sent[0]["amount"] == 2000.0
    assert all(any(name == "penstock.origin" for name, _ in headers_of(m)) for m in alerts.read(alerts.out))
    letters = {letter.value: letter for letter in alerts.letters()}
    assert letters.keys() == set(bad)
    classes = [letters[value].error_class for value in bad]
    assert classes[:5] == ["wrong-type", "malformed", "missing-field", "broken-rule", "null-value"]
    assert classes[5:] == ["failed-step", "out-of-range"]
    assert letters[bad[5]].reason == (
        "sink 'large': a step up to view 'placed', or the sink's condition, fails on this record"
    )
    assert letters[bad[6]].reason == "sink 'large': its partition is 7, the topic has 0 to 0"
    assert all(letter.headers == headers and letter.key == b"k" for letter in letters.values())
    assert letters[bad[5]].sinks == "large" and letters[bad[0]].sinks is None
    entries = [json.loads(line) for file in sorted(ledger.glob("*")) for line in file.open()]
    counts = Counter[str]()
    for entry in entries:
        assert entry["real_time"]
        for view in entry["views"].values():
            counts.update(
                read=view["read"], dead=view["dead"] + view["rejected"], known=view["dropped"].get("known", 0)
            )
            counts.update(view["died"])
    assert counts["read"] == 12 + len(bad) and counts["dead"] == len(bad) and counts["known"] == 1
    assert counts["positive"] == 1
    assert document("doctor", alerts.file)["findings"] == []

    with alerts.running():
        alerts.send(*(payment(i) for i in range(200, 205)))
        alerts.until(
            lambda: {200, 201, 202, 203, 204} <= {json.loads(m.value())["id"] for m in alerts.read(alerts.out)}
        )
        penstock("run", alerts.file, expect=4)  # the lock
    ids = Counter(json.loads(message.value())["id"] for message in alerts.read(alerts.out))
    assert ids.keys() == {*range(10), *range(200, 205)}

    proof = alerts.cli("verify", str(alerts.file))
    assert proof.returncode == 2 and "not-in-real-time" in proof.stderr and "complete" not in proof.stdout
    lag = penstock("lag", alerts.file).stdout
    assert "real-time: the position is that of the last batch" in lag
    penstock("checkpoint", "show", alerts.file)
    alerts.send(payment(300))  # waits, and nobody reads
    assert [each["cause"] for each in document("doctor", alerts.file, expect=2)["findings"]] == ["not-running"]
    alerts.spec["trigger"] = "continuous"
    assert "checkpoint-foreign" in penstock("run", alerts.file, "--until-caught-up", expect=4).stderr


@pytest.mark.usefixtures("spark")
def test_plan_states_the_guarantee_and_refuses_steps_that_are_more_than_a_choice(alerts: Alerts) -> None:
    said = document("plan", alerts.file)
    assert said["could_start"], said["problems"]
    assert {route["guarantee"].split(":")[0] for route in said["routes"]} == {"at-least-once"}
    assert said["path"]["way"].startswith("real-time")
    queries = {
        "sorted": ("select * from payments order by amount", "it sorts rows"),
        "grouped": ("select status from payments group by status", "it groups rows"),
        "several": ("select *, explode(array(1, 2)) as n from payments", "it makes several rows of one"),
        "nested": ("select * from payments where id in (select id from payments)", "a query inside a query"),
        "behind": ("select * from sorted where amount > 1", "it sorts rows"),
    }
    alerts.spec["transform"] = [{"view": view, "sql": sql} for view, (sql, _) in queries.items()]
    to = alerts.spec["sinks"]["large"]["kafka"]
    alerts.spec["sinks"] = {
        view: {"from": view, "kafka": {"topic": to["topic"], "guarantee": "at-least-once"}} for view in queries
    }
    said = document("plan", alerts.file, expect=2)
    assert {problem["code"] for problem in said["problems"]} == {"not-in-real-time"}
    lines = alerts.file.read_text().splitlines()
    found = {
        problem["facts"]["sink"]: (lines[problem["facts"]["line"] - 1].split()[-1], problem["cause"])
        for problem in said["problems"]
    }
    for view, (_, cause) in queries.items():
        at, why = found[view]
        assert (at, cause in why) == ("sorted" if view == "behind" else view, True)


@pytest.mark.usefixtures("spark")
def test_bounded_runs_go_the_ordinary_way_and_caught_up_is_refused(alerts: Alerts) -> None:
    alerts.send(payment(1), payment(2))
    assert "not-in-real-time" in penstock("run", alerts.file, "--until-caught-up", expect=2).stderr
    penstock("run", alerts.file, "--from", "earliest", "--to", "latest")
    assert {json.loads(m.value())["id"] for m in alerts.read(alerts.out)} == {1, 2}


def test_the_example_is_a_sound_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "unused:1")
    assert load(EXAMPLE / "spec.yaml").trigger == "real-time"
