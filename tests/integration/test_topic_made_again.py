"""A topic that is deleted, or also created again under its name: the pipeline stops, and can go on with the new one."""

from __future__ import annotations

import json
import uuid
from collections import Counter

import pytest
from tests.doctor_score import named
from tests.payments import Heard, Payments, deleted, good, made_again
from typer.testing import CliRunner

from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog, with_positions
from penstock.cli.main import app, register
from penstock.doctor.gather import examined
from penstock.errors import BadArgument, TopicMissing, TopicRecreated
from penstock.observe.measure_lag import lag_of

pytestmark = pytest.mark.usefixtures("spark")


def test_pipeline_stops_and_goes_on_with_the_new_topic_from_its_start_and_with_the_others_where_they_were(
    payments: Payments,
) -> None:
    register()
    other, out = f"{payments.topic}-eu", f"{payments.topic}.out"
    for name in (other, out):
        payments.create(name)
    read = payments.spec["source"]["topics"][payments.topic]
    payments.spec["source"] = {"pattern": {"match": f"{payments.topic}(-eu)?", **read}}
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}
    kafka = {"topic": out, "value": {"format": "json"}, "guarantee": "exactly-once-by-partition", "origin": True}
    sink = f"out-{uuid.uuid4().hex[:8]}"  # its group is known to a broker that other tests share
    payments.spec["sinks"][sink] = {"from": "settled", "kafka": kafka}
    payments.send(good(1), good(2), good(3), b"broken", key=b"same")
    payments.send(good(4), good(5), topic=other)
    payments.run()
    assert ids(payments) == [1, 2, 3, 4, 5]

    made_again(payments, partitions=1)  # and smaller
    payments.send(b"broken", *(good(n) for n in range(11, 21)))  # more than before: offsets alone would not show it
    payments.send(good(6), topic=other)
    planned(payments, other)  # as a run leaves it that was under way
    with pytest.raises(TopicRecreated) as stopped:
        payments.run()
    assert stopped.value.facts == {"topic": payments.topic}
    assert ids(payments) == [1, 2, 3, 4, 5]
    with pytest.raises(TopicRecreated):  # offsets of the old topic are no lag in the new one
        lag_of(payments.pipeline)
    said = examined(payments.pipeline)[1]
    named(["topic-recreated"], (found.cause for found in said))
    assert said[0].fix == stopped.value.next_command

    words = str(stopped.value.next_command).partition("penstock ")[2].replace("FILE", str(payments.file)).split()
    assert isinstance(CliRunner().invoke(app, words[:-2]).exception, TopicRecreated)  # without --accept
    found = json.loads(CliRunner().invoke(app, [*words, "--dry-run", "--json"]).stdout)
    assert (found["renewed"], found["taken_back"], found["backup"]) == ([payments.topic], 1, None)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.exception
    assert "was deleted and created again" in done.stdout
    heard = Heard()
    payments.run(watch=heard)
    assert [entry.read for entry in heard.entries] == [12]
    assert ids(payments) == [*range(1, 7), *range(11, 21)]
    assert Counter(sent(payments, out)) == Counter(f"p-{n}" for n in ids(payments))
    assert [letter.offset for letter in payments.dead()] == [3, 0]
    report = payments.verify()
    assert (report.findings, report.dead, report.proof) == ([], 2, {"lake": "by offset", sink: "by offset"})
    assert sum(map(len, report.former)) == 4
    payments.send(good(21))
    payments.run()
    assert ids(payments)[-1] == 21
    refused = CliRunner().invoke(app, ["checkpoint", "seek", str(payments.file), "--to-batch", "0"]).exception
    assert isinstance(refused, BadArgument)
    assert "after batch 0" in refused.what


def test_topic_that_was_read_and_is_deleted_has_advice_that_ends_with_a_pipeline_that_goes_on(
    payments: Payments,
) -> None:
    register()
    payments.send(good(1))
    payments.run()
    deleted(payments)
    with pytest.raises(TopicMissing) as stopped:
        payments.run()
    assert f"'{payments.topic}' was read before" in str(stopped.value.cause)
    doctor = CliRunner().invoke(app, ["doctor", str(payments.file)]).exception
    assert isinstance(doctor, TopicMissing)
    assert (doctor.exit_status, doctor.next_command) == (3, stopped.value.next_command)
    assert str(doctor.next_command).startswith("penstock apply FILE, which makes a new one without records; ")
    assert "`penstock doctor FILE` names the command" in str(doctor.next_command)

    assert CliRunner().invoke(app, ["apply", str(payments.file)]).exit_code == 0
    [found] = [each for each in examined(payments.pipeline)[1] if each.cause == "topic-recreated"]
    words = found.fix.partition("penstock ")[2].replace("FILE", str(payments.file)).split()
    assert CliRunner().invoke(app, words).exit_code == 0
    payments.send(good(2))
    payments.run()
    assert ids(payments) == [1, 2]


def ids(payments: Payments) -> list[int]:
    return sorted(int(row["payment_id"].removeprefix("p-")) for row in payments.rows())


def sent(payments: Payments, topic: str) -> list[str]:
    from penstock.kafka.consume import visible

    return [json.loads(message.value())["payment_id"] for message in visible(payments.config, topic, 1)]


def planned(payments: Payments, other: str) -> None:
    """A batch in Spark's log that was begun with the old topic and could not be ended."""
    log = SparkLog(Home.of(payments.pipeline).spark)
    last = log.committed()
    assert last is not None
    ends = log.end_of(last)
    further = {**ends, (payments.topic, 0): ends[payments.topic, 0] + 3, (other, 0): ends[other, 0] + 1}
    put(
        log.path / "offsets" / str(last + 1),
        with_positions((log.path / f"offsets/{last}").read_text(), further).encode(),
    )
