"""`penstock checkpoint` on a real broker and a real Spark: one test per command, and a run that goes on after each."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from jsonschema import Draft202012Validator
from tests.checkpoint_documents import SCHEMAS
from tests.payments import Heard, Payments, good
from typer.testing import CliRunner

from penstock import failpoint
from penstock.checkpoint.home import Home
from penstock.cli.main import app, register
from penstock.errors import CheckpointForeign, EngineFailed, PenstockError
from penstock.lifecycle import stream
from penstock.observe.events import EventLog
from penstock.plan import build

pytestmark = pytest.mark.usefixtures("spark")

Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def asked(payments: Payments) -> Asked:
    """The document of a command, which must be as its schema says; of one that is refused, its error."""
    register()

    def ask(command: str, *words: object, expect: int = 0) -> dict[str, Any]:
        line = ["checkpoint", command, str(payments.file), *map(str, words), "--json"]
        done = CliRunner().invoke(app, line)
        if isinstance(done.exception, PenstockError):
            assert done.exception.exit_status == expect, done.exception
            return done.exception.as_dict()
        assert done.exit_code == expect, (done.output, done.exception)
        found: dict[str, Any] = json.loads(done.stdout)
        Draft202012Validator(SCHEMAS[command]).validate(found)
        return found

    return ask


def ids(payments: Payments) -> list[int]:
    return sorted(int(row["payment_id"].removeprefix("p-")) for row in payments.rows())


def newest(payments: Payments, kind: str = "commits") -> int:
    return max(int(f.name) for f in (payments.home / "spark" / kind).iterdir() if f.name.isdigit())


def test_show_says_where_it_is_with_lag_and_without_kafka_without(payments: Payments, asked: Asked) -> None:
    assert asked("show", expect=4)["code"] == "checkpoint-missing"
    payments.send(*(good(n) for n in range(20)), b"broken")
    payments.run()
    payments.send(good(20), good(21))
    found = asked("show")
    assert (found["committed"], found["pending"], found["running"], found["damage"]) == (
        newest(payments),
        None,
        None,
        [],
    )
    assert (found["lag"], sum(p["next"] for p in found["partitions"]), len(found["partitions"])) == (2, 21, 3)
    assert (found["ledger"]["read"], found["ledger"]["written"], found["ledger"]["dead"]) == (21, {"lake": 20}, 1)
    assert found["bytes"]["spark/offsets"] > 0
    assert "lag 2 offsets" in payments.cli("checkpoint", "show", str(payments.file)).stdout

    (payments.home / "spark" / "commits" / str(newest(payments))).unlink()
    with Home.of(payments.pipeline).held():
        stuck = asked("show")
    assert (stuck["running"] is not None, stuck["damage"]) == (True, [])
    assert (stuck["pending"]["batch"], stuck["pending"]["written"]) == (found["committed"], True)
    assert asked("seek", "--to", "latest", expect=4)["code"] == "seek-refused"  # no batch is committed
    payments.spec["kafka"]["bootstrap"] = "127.0.0.1:1"
    away = asked("show")
    assert (away["lag"], away["partitions"][0]["end"]) == (None, None)
    assert "127.0.0.1:1" in away["no_lag"]


def test_diff_names_what_changed_and_whether_a_start_goes_on_with_it(payments: Payments, asked: Asked) -> None:
    payments.send(good(1))
    payments.run()
    assert (asked("diff")["changes"], asked("diff")["unchecked"]) == ([], [])
    payments.spec["trigger"] = {"every": "10s"}
    payments.spec["source"]["start"] = "latest"
    payments.spec["contract"]["payments"][0]["otherwise"] = "drop"
    assert [c["what"] for c in asked("diff")["changes"]] == ["start-changed", "option-changed", "rule-changed"]
    payments.spec["sinks"]["lake"]["delta"]["path"] = "elsewhere"
    found = asked("diff", expect=1)
    assert [c["name"] for c in found["changes"] if not c["compatible"]] == ["lake"]
    with pytest.raises(PenstockError) as refused:
        payments.run()
    assert refused.value.code == "table-differs"
    payments.spec["sinks"]["lake"]["delta"]["path"] = "lake"
    payments.spec["checkpoint"], payments.spec["name"] = ".penstock/payments", "renamed"
    found = asked("diff", expect=1)
    assert found["changes"][0]["what"] == "pipeline-renamed"
    with pytest.raises(CheckpointForeign):
        payments.run()
    planned = json.loads(CliRunner().invoke(app, ["plan", str(payments.file), "--json"]).stdout)
    assert [c["what"] for c in planned["changes"] if not c["compatible"]] == ["pipeline-renamed"]


def test_seek_forward_skips_and_verify_accounts_for_it_and_back_over_what_was_skipped_undoes_it(
    payments: Payments, asked: Asked
) -> None:
    payments.send(*(good(n) for n in range(10)))
    payments.run()
    payments.send(*(good(n) for n in range(10, 20)))
    before = newest(payments)
    rehearsed = asked("seek", "--to", "latest", "--dry-run")
    assert (rehearsed["skipped"], rehearsed["again"], rehearsed["refused"], rehearsed["backup"]) == (10, 0, None, None)
    assert newest(payments) == before
    grown = next(p for p in rehearsed["partitions"] if p["skipped"])
    one = asked("seek", "--to", f"{payments.topic}:{grown['partition']}={grown['from'] + 1}", "--dry-run")
    assert (one["skipped"], one["again"]) == (1, 0)  # partitions that are not named stay
    assert asked("seek", "--to", "2100-01-01T00:00:00Z", "--dry-run")["partitions"] == rehearsed["partitions"]
    assert asked("seek", "--to", f"{payments.topic}:0=4711", "--dry-run", expect=4)["code"] == "start-not-there"
    assert asked("seek", "--to", f"{payments.topic}:9=1", "--dry-run", expect=4)["code"] == "start-not-there"
    assert asked("seek", "--to", "yesterday", "--dry-run", expect=2)["code"] == "bad-argument"
    with Home.of(payments.pipeline).held():
        assert asked("seek", "--to", "latest", expect=4)["code"] == "already-running"
    done = asked("seek", "--to", "latest")
    assert (newest(payments), done["batch"], Path(done["backup"]).is_dir()) == (before + 1, before + 1, True)
    payments.send(good(20))
    heard = Heard()
    payments.run(watch=heard)
    assert ([e.batch for e in heard.entries], heard.entries[0].read) == ([before + 2], 1)
    assert ids(payments) == [*range(10), 20]
    report = payments.verify()
    assert report.complete, report.findings
    assert sum(map(len, report.skipped)) == 10

    # Back over what a batch has read: an append sink would have it twice.
    refused = asked("seek", "--to-batch", before + 1, "--dry-run", expect=4)["refused"]
    assert (refused["code"], len(refused["facts"]["alternatives"])) == ("seek-refused", 3)
    assert asked("seek", "--to", "earliest", expect=4)["code"] == "seek-refused"

    # A second skip, undone before anything was read: nothing is twice and nothing is missing.
    payments.send(*(good(n) for n in range(21, 25)))
    asked("seek", "--to", "latest")
    undone = asked("seek", "--to-batch", before + 3)
    assert (undone["again"], undone["unread"]) == (0, 4)
    assert sum(r["end"] - r["start"] for r in asked("show")["ledger"]["skipped"]) == 10
    told = [event.facts for event in EventLog(payments.home / "events").read(["seek"])]
    assert [(each["skipped"], each["again"], each["unread"]) for each in told] == [(10, 0, 0), (4, 0, 0), (0, 0, 4)]
    payments.run()
    assert ids(payments) == [*range(10), *range(20, 25)]
    report = payments.verify()
    assert report.complete, report.findings
    assert sum(map(len, report.skipped)) == 10

    # What was skipped is not there: a row of it would be one that nobody wrote.
    table, skipped = DeltaTable(str(payments.directory / "lake")), report.skipped[0]
    row = table.to_pyarrow_table().slice(0, 1)
    [strange] = row.to_pylist()
    strange["_kafka"] |= {"partition": skipped.partition, "offset": skipped.start}
    write_deltalake(table, pa.Table.from_pylist([strange], row.schema), mode="append")
    [invented] = [f for f in payments.verify().findings if f.kind == "invented"]
    assert (invented.partition, invented.offsets) == (skipped.partition, [skipped.start])


def test_seek_takes_back_a_planned_batch_unless_a_sink_holds_it(
    payments: Payments, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.send(good(0))
    payments.run()

    def end_at(wanted: str) -> Callable[..., None]:
        def reach(place: str, *_: object) -> None:
            if place == wanted:
                raise RuntimeError("as if it was killed")

        return reach

    for place, refused in (("before-sinks", False), ("after-sinks", True)):
        payments.send(good(newest(payments)))
        with monkeypatch.context() as patched, pytest.raises(EngineFailed):
            patched.setattr(failpoint, "reach", end_at(place))
            payments.run()
        planned = newest(payments, "offsets")
        assert asked("seek", "--to", "latest", "--dry-run")["taken_back"] == planned
        found = asked("seek", "--to", "latest", expect=4 if refused else 0)
        if refused:
            assert found["what"] == f"batch {planned} is planned and not committed, and sink 'lake' holds some of it"
        else:
            assert (found["taken_back"], found["batch"], found["skipped"]) == (planned, planned, 1)
    payments.run()  # the batch that could not be taken back

    (payments.home / "spark" / "commits" / str(newest(payments))).unlink()  # as if it had crashed before it
    payments.send(good(25))
    done = asked("seek", "--to", "latest")
    assert (done["skipped"], done["taken_back"]) == (1, None)  # it is in the ledger: only Spark's commit is missing
    payments.run()
    assert ids(payments) == [0, 1]
    report = payments.verify()
    assert report.complete, report.findings
    assert sum(map(len, report.skipped)) == 2


def test_seek_back_into_an_upsert_with_an_order_reads_again_and_leaves_one_row_per_key(
    payments: Payments, asked: Asked
) -> None:
    payments.spec["transform"] = []
    upsert = {"key": ["payment_id"], "order_by": "event_time"}
    payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake", "upsert": upsert}}}
    payments.send(*(good(n) for n in range(10)))
    payments.run()
    done = asked("seek", "--to", "earliest")
    assert (done["again"], done["skipped"]) == (10, 0)
    heard = Heard()
    payments.run(watch=heard)
    assert sum(e.read for e in heard.entries) == 10
    assert ids(payments) == list(range(10))
    report = payments.verify()
    assert report.complete, report.findings
    payments.send(b"broken")
    payments.run()
    assert "dead letter" in asked("seek", "--to", "earliest", "--dry-run", expect=4)["refused"]["what"]


def test_seek_forward_with_a_kafka_sink_goes_on_exactly_once(payments: Payments, asked: Asked) -> None:
    out = f"{payments.topic}-out"
    payments.create(out)
    payments.spec["transform"] = []
    kafka = {"topic": out, "value": {"format": "json"}, "guarantee": "exactly-once", "origin": True}
    payments.spec["sinks"] = {"out": {"from": "payments", "kafka": kafka}}
    payments.send(*(good(n) for n in range(6)))
    payments.run()
    payments.send(*(good(n) for n in range(6, 9)))
    asked("seek", "--to", "latest")
    payments.send(good(9))
    payments.run()
    [sink] = [o.sink for o in build.outlets(payments.pipeline)]
    assert sum(map(len, (sink.positions("_kafka") or {}).values())) == 7
    report = payments.verify()
    assert report.complete, report.findings
    assert asked("seek", "--to", "earliest", expect=4)["code"] == "seek-refused"


def test_backup_while_running_is_restored_and_a_restore_behind_the_sinks_is_refused(
    payments: Payments, asked: Asked, tmp_path: Path
) -> None:
    payments.spec["rate"]["max_offsets"] = 50
    payments.send(*(good(n) for n in range(200)))
    stop, ended = stream.StopRequest(), []

    def run() -> None:
        try:
            stream.run(payments.pipeline, stop=stop)
        finally:
            ended.append(stop.asked)

    thread = threading.Thread(target=run)
    thread.start()
    copies: list[dict[str, Any]] = []
    try:
        until = time.monotonic() + 60
        while not (copies and copies[-1]["committed"] >= 3) and not ended and time.monotonic() < until:
            if (payments.home / "spark" / "commits" / "0").exists():
                copies.append(asked("backup", tmp_path / f"copy-{len(copies)}.tar.gz"))
            time.sleep(0.2)
        assert asked("restore", copies[-1]["backup"], expect=4)["code"] == "already-running"
        assert ended == []  # the run did not notice, and goes on
    finally:
        stop.ask()
        thread.join(60)
    assert ended == [True]
    assert len({copy["committed"] for copy in copies}) > 1  # the run went on between them
    early = asked("restore", copies[0]["backup"], expect=4)
    assert (early["code"], "ahead" in early["what"]) == ("table-differs", True)
    last = asked("backup", tmp_path / "last")
    shutil.rmtree(payments.home)
    assert asked("restore", last["backup"], "--dry-run")["replaced"] is None
    assert asked("restore", last["backup"])["committed"] == last["committed"]
    payments.send(good(200))
    payments.run()
    assert ids(payments) == list(range(201))
    now = asked("backup", tmp_path / "now")["backup"]
    (payments.home / "spark" / "metadata").unlink()
    shutil.rmtree(payments.home / "ledger")
    assert {each["source"] for each in asked("repair", expect=1)["damage"]} == {None}
    assert asked("repair", "--from", now, "--apply")["applied"] is True
    assert payments.verify().complete
    (tmp_path / "last" / "spark" / "metadata").write_text("{}")
    assert asked("restore", last["backup"], expect=4)["code"] == "backup-damaged"
    refused = asked("restore", payments.file, expect=4)
    assert (refused["code"], refused["cause"]) == ("backup-damaged", "it is no archive, or its beginning is damaged")


def test_fork_begins_where_the_old_one_is_with_tables_of_its_own(payments: Payments, asked: Asked) -> None:
    payments.send(*(good(n) for n in range(10)))
    payments.run()
    new = Payments(payments.bootstrap, payments.directory / "new", topic=payments.topic)
    new.spec["name"] = "forked"
    new.spec["sinks"]["lake"]["delta"]["path"] = str(payments.directory / "lake")
    assert asked("fork", new.file, expect=2)["code"] == "bad-argument"  # the same table
    new.spec["sinks"]["lake"]["delta"]["path"] = "lake"
    letters = f"{payments.topic}.new.DLT"
    new.spec["dead_letters"] = {"kafka": {"topic": letters}}
    planned = asked("fork", new.file, "--dry-run")
    assert (planned["missing_topics"], planned["next"]) == ([letters], f"penstock apply {new.file}")
    payments.create(letters)
    made = asked("fork", new.file)
    assert (made["missing_topics"], made["next"]) == ([], f"penstock run {new.file}")
    assert sum(r["next"] for r in made["begins"]) == 10
    payments.send(*(good(n) for n in range(10, 13)))
    new.run()
    payments.run()
    assert (ids(new), ids(payments)) == ([10, 11, 12], list(range(13)))
    assert new.verify().complete
    assert payments.verify().complete
    assert json.loads((new.home / "spark" / "metadata").read_text())["id"] == made["query"]
    assert asked("fork", new.file, expect=2)["code"] == "bad-argument"  # it has a checkpoint by now


def test_repair_makes_harmed_files_again_and_the_run_goes_on(payments: Payments, asked: Asked) -> None:
    payments.spec["rate"]["max_offsets"] = 5
    payments.send(*(good(n) for n in range(15)))
    payments.run()
    assert asked("repair")["damage"] == []
    batch = newest(payments)
    for kind in ("offsets", "commits"):
        file = payments.home / "spark" / kind / str(batch)
        file.write_bytes(file.read_bytes()[:-3])
    (payments.home / "spark" / "offsets" / str(batch - 1)).unlink()
    (payments.home / "spark" / "metadata").write_text("")
    with pytest.raises(CheckpointForeign) as refused:
        payments.run()
    assert "checkpoint repair" in str(refused.value.next_command)
    found = asked("repair", expect=1)
    assert {each["source"] for each in found["damage"]} == {"the ledger"}
    assert len(found["damage"]) == 4
    assert asked("show")["damage"] == found["damage"]
    repaired = asked("repair", "--apply")
    assert (repaired["applied"], asked("show")["aside"]) == (True, [repaired["aside"]])
    payments.send(good(15))
    payments.run()
    assert ids(payments) == list(range(16))

    # A seek that a crash cut off, after its ledger entry and before Spark's log had it.
    payments.send(good(16))
    batch = asked("seek", "--to", "latest")["batch"]
    for kind in ("offsets", "commits"):
        (payments.home / "spark" / kind / str(batch)).unlink()
    with pytest.raises(CheckpointForeign) as cut_off:
        payments.run()
    assert "cut off" in cut_off.value.what
    assert asked("repair", "--apply")["applied"] is True
    payments.send(good(17))
    payments.run()
    assert ids(payments) == [*range(16), 17]
    report = payments.verify()
    assert report.complete, report.findings
