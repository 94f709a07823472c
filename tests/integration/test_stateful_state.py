"""State per key with timers, output modes, chains, what fails in the stream, and what state does not allow."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
import tests.stateful_processors as processors
from deltalake import DeltaTable
from ruamel.yaml import YAML
from tests.crash.driver import ROUNDS
from tests.doctor_score import named
from tests.stateful import (
    RICH,
    START,
    WINDOW,
    Event,
    Stream,
    Watermark,
    compared,
    seconds,
    some_events,
    windows_of,
)
from typer.testing import CliRunner

from penstock.checkpoint.log import SparkLog
from penstock.cli.main import app, register
from penstock.doctor.gather import examined
from penstock.errors import BadArgument, CheckpointForeign, PenstockError, SeekRefused, StepFailed
from penstock.lifecycle import backfill
from penstock.lifecycle import stream as streams
from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from penstock.operations import show
from penstock.operations.seek_target import Wanted
from penstock.spec.load import load
from penstock.spec.model import Pipeline
from penstock.testing import case

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = some_events(8)
COUNT_AND_SUM = {"n": "count(*)", "shares": "sum(share)"}
STATE = {
    "from": "events",
    "key": ["key"],
    "time": "at",
    "late_after": "60s",
    "timers": "event",
    "processor": "quiet:Quiet",
    "fields": {"key": "string", "n": "int"},
}


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def quiet(batches: list[list[Event]], quiet: int, delay: int) -> list[tuple[str, int]]:
    """Counts of keys that were quiet for so long, by the watermark."""
    mark, known, out = Watermark(delay), {}, []
    for batch in batches:
        mark.begin()
        for key in {event.key for event in batch}:
            times = [event.at for event in batch if event.key == key and event.at is not None and event.at > mark.late]
            if times:
                n, last = known.get(key, (0, -START))
                known[key] = n + len(times), max(last, *times)
        for key in [key for key, (_, last) in known.items() if last + quiet <= mark.closes]:
            out.append((key, known.pop(key)[0]))
        mark.end(batch)
    return out


@pytest.mark.parametrize("behind", ["deduplicate", "source"] if ROUNDS > 1 else ["deduplicate"])
@compared({"first": EVENTS, "second": EVENTS}, RICH)
def test_timers_fire_as_those_of_the_oracle(
    kafka: Cluster, directory: Path, behind: str, first: list[Event], second: list[Event]
) -> None:
    """Behind a step they have its watermark."""
    once = {"from": "events", "time": "at", "within": "60s", "key": ["number"]}
    state = {**{name: value for name, value in STATE.items() if name != "late_after"}, "from": "firsts"}
    steps = {
        "deduplicate": [{"view": "firsts", "deduplicate": once}, {"view": "quiet", "state": state}],
        "source": [{"view": "quiet", "state": STATE}],
    }
    stream = Stream.make(kafka.bootstrap, directory, steps[behind])
    shutil.copy(processors.__file__, stream.payments.directory / "quiet.py")
    for part in (first, [*second, Event("z", 2000)]):
        sent = len(stream.sent["events"])
        stream.feed(Event(event.key, event.at, sent + n) for n, event in enumerate(part))
        stream.run()
    assert Counter((r["key"], r["n"]) for r in stream.rows()) == Counter(quiet(stream.batches(), 60, 60))
    assert stream.rows()
    report = stream.payments.verify()
    assert report.complete, report.findings


def test_timers_of_the_clock_fire_once_their_time_has_come(kafka: Cluster, directory: Path) -> None:
    """And the class gets every row, also those that come after the watermark: nothing is late for it."""
    step = {"view": "idle", "state": {**STATE, "timers": "processing", "processor": "quiet:Idle"}}
    stream = Stream.make(kafka.bootstrap, directory, [step], rate={"max_offsets": 7}, trigger={"every": "1s"})
    stream.payments.spec["sinks"]["late"] = {"from": "idle_late", "parquet": {"path": "late"}}
    shutil.copy(processors.__file__, stream.payments.directory / "quiet.py")
    stream.feed([Event(key, 1000) for key in "abacbab"])
    stream.run()
    assert stream.rows() == []  # one batch, and no later one that could look at the clock
    stream.run()  # a start looks at it, though nothing has come
    assert Counter((row["key"], row["n"]) for row in stream.rows()) == Counter([("a", 3), ("b", 3), ("c", 1)])
    assert [entry.stateful["idle"].gave for entry in stream.entries()] == [0, 3]
    stream.feed([Event(key, 0) for key in "ededeee" + "dz"])  # two batches, long behind the watermark
    stream.run()
    # The rows of a batch come before its timers: in the last one "d" is not idle any more.
    assert [entry.stateful["idle"].gave for entry in stream.entries()] == [0, 3, 0, 0, 1]
    stream.run()
    found = Counter((row["key"], row["n"]) for row in stream.rows())
    assert found == Counter([("a", 3), ("b", 3), ("c", 1), ("e", 5), ("d", 3), ("z", 1)])
    assert {entry.stateful["idle"].late for entry in stream.entries()} == {0}
    assert stream.rows("late") == []
    report = stream.payments.verify()
    assert report.complete, report.findings


def test_updates_are_upserted_and_a_row_without_a_time_is_a_dead_letter(
    kafka: Cluster, directory: Path, postgres: LocalPostgres, spark: Any
) -> None:
    """Into every kind of sink that can replace a row; and those that a condition no longer holds for are taken out."""
    steps = [
        {"view": "counts", "window": {**WINDOW, "emit": "update"}},
        {"view": "few", "sql": "select *, (n < 3) is not true as _deleted from counts"},
    ]
    upsert, table = {"key": ["window_start", "key"]}, f"counts_{uuid.uuid4().hex[:8]}"
    warehouse = directory / table
    catalog = {"type": "hadoop", "warehouse": str(warehouse)}
    sinks = {
        "lake": {"from": "counts", "delta": {"path": "lake", "upsert": upsert}},
        "ice": {"from": "counts", "iceberg": {"table": "live.counts", "catalog": catalog, "upsert": upsert}},
        "few": {"from": "few", "delta": {"path": "few", "upsert": upsert}},
        "db": {"from": "counts", "postgres": {"url": postgres.url, "table": f"public.{table}", "upsert": upsert}},
    }
    stream = Stream.make(kafka.bootstrap, directory, steps, sinks=sinks)
    stream.feed([Event("a", 0), Event("a", 5), Event("b", 7), Event("a", None)])  # a batch, and the next one:
    stream.feed([Event("a", 30), Event("b", 65), Event("a", 40), Event("a", 70)])
    stream.run()
    assert len(stream.entries()) >= 2
    found = {(seconds(row["window_start"]), row["key"]): row["n"] for row in stream.payments.rows()}
    expected = Counter((windows_of(e.at, 60, 60)[0], e.key) for e in stream.sent["events"] if e.at is not None)
    assert found == expected
    few = DeltaTable(stream.payments.directory / "few").to_pyarrow_table().to_pylist()
    assert {(seconds(row["window_start"]), row["key"]): row["n"] for row in few} == {
        key: n for key, n in expected.items() if n < 3
    }
    with psycopg.connect(postgres.url) as connection:
        rows = connection.execute(f"select window_start, key, n from public.{table}").fetchall()
    assert [((seconds(start), key), n) for start, key, n in sorted(rows)] == sorted(expected.items())
    reader = f"reader_{table}"
    spark.conf.set(f"spark.sql.catalog.{reader}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{reader}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{reader}.warehouse", str(warehouse))
    held = spark.table(f"{reader}.live.counts").collect()
    assert sorted(((seconds(r["window_start"]), r["key"]), r["n"]) for r in held) == sorted(expected.items())
    [letter] = stream.payments.dead()
    assert letter.position == (stream.payments.topic, 0, 3)
    report = stream.payments.verify()
    assert report.complete, report.findings
    assert report.taken == {"counts": 7}


def test_chain_of_deduplicate_and_window_with_sql_between(kafka: Cluster, directory: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"view": "timed", "sql": "select key, at, number, 100 / number as share from events"},
        {"view": "firsts", "deduplicate": {"from": "timed", "time": "at", "within": "60s", "key": ["number"]}},
        {"view": "some", "sql": "select *, upper(key) as name from firsts where number < 1000"},
        {"view": "counts", "window": {**WINDOW, "from": "some", "by": ["name"], "columns": COUNT_AND_SUM}},
        {"view": "large", "sql": "select * from counts where n > 1"},
    ]
    del steps[3]["window"]["late_after"]
    stream = Stream.make(kafka.bootstrap, directory, steps, rate={"max_offsets": 5})
    events = [Event("a", 1, 1), Event("a", 2, 1), Event("a", 3, 2), Event("b", 4, 3), Event("a", 5, 0)]
    stream.feed([*events, Event("a", 6, 2), Event("a", 500, 7), Event("b", 501, 2000), Event("b", 900, 8)])
    stream.run()
    # 100 / 0 fails in the stream, in batch 0: that record is set aside, and the rest of the batch goes on.
    [letter] = stream.payments.dead()
    assert letter.position == (stream.payments.topic, 0, 4)
    assert "DIVIDE_BY_ZERO" in letter.reason
    rows = [(seconds(r["window_start"]), r["name"], r["n"]) for r in stream.rows()]
    assert rows == [(windows_of(1, 60, 60)[0], "A", 2)]
    report = stream.payments.verify()
    assert report.complete, report.findings
    assert report.duplicates == {"firsts": 2}
    assert report.late == {"firsts": 0, "counts": 0}


def refusal(*words: object) -> PenstockError:
    """What the command says, which must be a mistake of its caller."""
    register()
    raised = CliRunner().invoke(app, [*map(str, words)]).exception
    assert isinstance(raised, PenstockError), raised
    assert raised.exit_status == 2
    return raised


def test_what_state_does_not_allow(kafka: Cluster, directory: Path) -> None:
    from penstock.lifecycle import preview
    from penstock.operations import seek

    stream = Stream.make(kafka.bootstrap, directory, [{"view": "counts", "window": WINDOW}])
    payments = stream.payments
    stream.feed([*(Event("a", n) for n in range(10)), Event("a", None)])
    stream.run()
    store = show.inspect(payments.pipeline).state
    assert [each.operator for each in store] == [0]
    assert store[0].bytes > 0
    with pytest.raises(SeekRefused, match="keeps state"):
        seek.seek(payments.pipeline, Wanted("earliest"))
    with pytest.raises(BadArgument, match="cannot reach sink 'out'"):
        backfill.run(payments.pipeline, backfill.Range("earliest", "latest"))
    assert len(payments.dead()) == 1  # there is something to replay
    for apply in ("--dry-run", "--apply"):
        refused = refusal("dlq", "replay", payments.file, apply)
        assert refused.what == "a replay cannot reach sink 'out': its view 'counts' is made by steps that keep state"
        assert "produce the records to their topic again" in str(refused.next_command)
    other = payments.directory / "other.yaml"
    forked = {**payments.spec, "name": "forked", "sinks": {"out": {"from": "counts", "parquet": {"path": "other"}}}}
    YAML().dump(forked, other)
    refused = refusal("checkpoint", "fork", payments.file, other)
    assert refused.what == "the state of 'stateful' cannot be forked"
    assert "give 'forked' a `start:` of its own" in str(refused.next_command)
    assert not (payments.directory / ".penstock" / "forked").exists()
    changed = {**WINDOW, "size": "30s"}
    payments.spec["transform"] = [{"view": "counts", "window": changed}]
    planned = preview.plan(payments.pipeline)
    [change] = planned.changes
    assert (change.what, change.compatible) == ("step-changed", False)
    with pytest.raises(CheckpointForeign, match="not that of step 'counts'") as raised:
        stream.run()
    assert [problem.as_dict() for problem in planned.problems] == [raised.value.as_dict()]
    payments.spec["transform"] = [
        {"view": "some", "sql": "select * from events"},
        {"view": "counts", "window": {**WINDOW, "from": "some", "time": "number"}},
    ]
    payments.spec["sinks"]["late"] = {"from": "counts_late", "parquet": {"path": "late"}}
    [problem] = [p for p in preview.plan(payments.pipeline).problems if isinstance(p, StepFailed)]
    assert "'number' is a int" in problem.what


def test_columns_that_no_longer_fit_the_state_are_refused_before_anything_is_written(
    kafka: Cluster, directory: Path
) -> None:
    """The steps are what they were: what a source view or a class keeps is another. Only the engine can tell."""
    step = {"view": "quiet", "state": STATE}
    stream = Stream.make(kafka.bootstrap, directory, [step])
    payments = stream.payments
    file = payments.directory / "quiet.py"
    shutil.copy(processors.__file__, file)
    stream.feed([Event("a", n) for n in range(3)])
    stream.run()
    before = stream.entries()

    def refused(pipeline: Pipeline) -> CheckpointForeign:
        with pytest.raises(CheckpointForeign) as raised:
            streams.run(pipeline, until_caught_up=True)
        assert raised.value.what == "the state in the checkpoint does not fit the steps"
        assert "STATE_STORE_" in str(raised.value.cause)
        assert "another `checkpoint:`" in str(raised.value.next_command)
        assert "\n" not in str(raised.value.cause)
        return raised.value

    stream.feed([Event("a", 10)])
    (topic,) = payments.spec["source"]["topics"].values()
    topic["value"]["schema"]["fields"]["key"] = "int"
    refused(payments.pipeline)
    topic["value"]["schema"]["fields"]["key"] = {"type": "string", "required": True}
    # The same spec from another directory, where the class keeps a text instead of a number.
    elsewhere = payments.directory / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "quiet.py").write_text(file.read_text().replace("n int, last bigint", "n string, last bigint"))
    changed = {**payments.spec, "checkpoint": str(payments.home), "sinks": payments.spec["sinks"]}
    changed["sinks"] = {"out": {"from": "quiet", "parquet": {"path": str(payments.directory / "out")}}}
    YAML().dump(changed, elsewhere / "spec.yaml")
    refused(load(elsewhere / "spec.yaml"))
    assert stream.entries() == before
    stream.run()  # as it was, it goes on
    assert len(stream.entries()) > len(before)


def test_class_that_fails_is_told_and_once_it_is_mended_the_batch_runs_again(kafka: Cluster, directory: Path) -> None:
    """`init` fails before there is any state: the checkpoint has the offsets of its first batch and nothing else."""
    stream = Stream.make(kafka.bootstrap, directory, [{"view": "quiet", "state": STATE}])
    broken, file = stream.payments.directory / "broken", stream.payments.directory / "quiet.py"
    lines = Path(processors.__file__).read_text().split("\n")
    methods = ("init", "handleInputRows", "handleExpiredTimer")
    for method in methods:  # of the first class
        at = next(i for i, line in enumerate(lines) if line.startswith(f"    def {method}("))
        lines.insert(at + 1, f'        assert open({str(broken)!r}).read() != "{method}", "not yet"')
    file.write_text("\n".join(lines))
    stream.feed([Event("a", 0), Event("a", 10), Event("b", 5), Event("z", 2000)])
    for method in methods:
        broken.write_text(method)
        with pytest.raises(StepFailed, match="step 'quiet': quiet:Quiet fails") as raised:
            stream.run()
        assert str(raised.value.cause).startswith("AssertionError: not yet (quiet.py:")
        assert str(raised.value.cause).endswith(f", in {method})")
        assert str(raised.value.next_command).startswith("correct quiet:Quiet, then: penstock run FILE")
        assert raised.value.facts == {"view": "quiet"}  # of which the command says the line
        assert stream.rows() == []
        assert SparkLog(stream.payments.home / "spark").stateful == (method != "init")
    broken.write_text("")
    stream.run()
    assert Counter((row["key"], row["n"]) for row in stream.rows()) == Counter([("a", 2), ("b", 1)])
    report = stream.payments.verify()
    assert report.complete, report.findings


def test_class_that_fails_on_a_row_stops_before_anything_is_written_and_says_where(tmp_path: Path) -> None:
    """As a case of `penstock test`, which also ends although the timers are those of the clock."""
    text, fails = Path(processors.__file__).read_text(), 'assert key[0] != "bad", "no such key"\n        before = '
    (tmp_path / "fails.py").write_text(text.replace("before = ", fails))
    state = {"from": "t", "key": ["key"], "timers": "processing", "processor": "fails:Idle", "fields": STATE["fields"]}
    spec = {
        "name": "fails",
        "kafka": {"bootstrap": "nowhere:9092"},
        "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": {"key": "string"}}}}}},
        "transform": [{"view": "idle", "state": state}],
        "sinks": {"out": {"from": "idle", "console": {}}},
        "trigger": "available-now",
    }
    YAML().dump(spec, tmp_path / "fails.yaml")
    good, bad = ({"t": [{"value": {"key": key}}]} for key in ("good", "bad"))
    error = {"code": "step-failed", "says": "AssertionError: no such key (fails.py:"}
    cases = [
        {"name": "nobody was idle yet", "given": [good, good], "expect": {"sinks": {"out": []}}},
        {"name": "it fails", "given": [good, bad], "expect": {"error": error}},
    ]
    YAML().dump({"cases": cases}, tmp_path / "fails.test.yaml")
    assert [result.text() for result in case.run(tmp_path / "fails.yaml")] == ["", ""]


def test_complete_output_takes_the_place_of_what_was_there(kafka: Cluster, directory: Path, spark: Any) -> None:
    window = {name: value for name, value in WINDOW.items() if name != "late_after"}
    step = {"view": "counts", "window": {**window, "emit": "complete"}}
    sinks = {"out": {"from": "counts", "memory": {"table": "all_counts"}}}
    stream = Stream.make(kafka.bootstrap, directory, [step], sinks=sinks)
    stream.feed([Event("a", n) for n in range(6)])
    stream.run()
    [row] = spark.table("all_counts").collect()
    assert (row["key"], row["n"]) == ("a", 6)


def test_doctor_names_state_that_only_grows_and_not_one_that_is_steady(kafka: Cluster, directory: Path) -> None:
    step = {"view": "firsts", "deduplicate": {"from": "events", "time": "at", "within": "60s", "key": ["number"]}}
    stream = Stream.make(kafka.bootstrap, directory, [step])
    stream.feed([Event("a", 0, n) for n in range(24)])  # event time stands still
    stream.run()
    facts, findings = examined(stream.payments.pipeline)
    named(["state-growth"], (finding.cause for finding in findings))
    assert "the watermark stands still" in findings[0].evidence[1]
    assert facts.batches[-1].state["firsts"].rows == 24
    stream.feed([Event("a", 30 * n, 100 + n) for n in range(24)])  # now it goes on
    stream.run()
    named([], (finding.cause for finding in examined(stream.payments.pipeline)[1]))
    assert len(stream.rows()) == 48
