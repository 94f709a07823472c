"""State per key with timers, output modes, chains, what fails in the stream, and what state does not allow."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tests.stateful_processors as processors
from hypothesis import given
from tests.stateful import FEW, START, WINDOW, Event, Stream, Watermark, seconds, some_events, windows_of

from penstock.errors import BadArgument, CheckpointForeign, SeekRefused, StepFailed
from penstock.local.broker import Cluster
from penstock.runtime import backfill, inspection
from penstock.runtime.doctor import examined

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = some_events(8)
COUNT_AND_SUM = {"n": "count(*)", "shares": "sum(share)"}
STATE = {
    "from": "events",
    "key": ["key"],
    "time": "at",
    "late_after": "60s",
    "timers": "event",
    "processor": "quiet.py:Quiet",
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


@FEW
@given(first=EVENTS, second=EVENTS)
def test_timers_fire_as_those_of_the_oracle(
    kafka: Cluster, directory: Path, first: list[Event], second: list[Event]
) -> None:
    stream = Stream.make(kafka.bootstrap, directory, [{"view": "quiet", "state": STATE}])
    shutil.copy(processors.__file__, stream.payments.directory / "quiet.py")
    for part in (first, [*second, Event("z", 2000)]):
        stream.feed(part)
        stream.run()
    assert Counter((r["key"], r["n"]) for r in stream.rows()) == Counter(quiet(stream.batches(), 60, 60))
    assert stream.rows()
    assert stream.payments.verify().complete


def test_updates_are_upserted_and_a_row_without_a_time_is_a_dead_letter(kafka: Cluster, directory: Path) -> None:
    step = {"view": "counts", "window": {**WINDOW, "emit": "update"}}
    sinks = {"lake": {"from": "counts", "delta": {"path": "lake", "upsert": {"key": ["window_start", "key"]}}}}
    stream = Stream.make(kafka.bootstrap, directory, [step], sinks=sinks)
    stream.feed([Event("a", 0), Event("a", 5), Event("b", 7), Event("a", None), Event("a", 30), Event("b", 65)])
    stream.run()
    stream.feed([Event("a", 40), Event("a", 70)])
    stream.run()
    found = {(seconds(row["window_start"]), row["key"]): row["n"] for row in stream.payments.rows()}
    expected = Counter((windows_of(e.at, 60, 60)[0], e.key) for e in stream.sent["events"] if e.at is not None)
    assert found == expected
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


def test_what_state_does_not_allow(kafka: Cluster, directory: Path) -> None:
    from penstock.runtime import plan, seek

    stream = Stream.make(kafka.bootstrap, directory, [{"view": "counts", "window": WINDOW}])
    payments = stream.payments
    stream.feed([Event("a", n) for n in range(10)])
    stream.run()
    store = inspection.inspect(payments.pipeline).state
    assert [each.operator for each in store] == [0]
    assert store[0].bytes > 0
    with pytest.raises(SeekRefused, match="keeps state"):
        seek.seek(payments.pipeline, "earliest")
    with pytest.raises(BadArgument, match="cannot reach sink 'out'"):
        backfill.run(payments.pipeline, backfill.Range("earliest", "latest"))
    changed = {**WINDOW, "size": "30s"}
    payments.spec["transform"] = [{"view": "counts", "window": changed}]
    [change] = plan.plan(payments.pipeline).changes
    assert (change.what, change.compatible) == ("step-changed", False)
    with pytest.raises(CheckpointForeign, match="not that of step 'counts'"):
        stream.run()
    payments.spec["transform"] = [{"view": "counts", "window": {**WINDOW, "time": "number"}}]
    [problem] = [p for p in plan.plan(payments.pipeline).problems if isinstance(p, StepFailed)]
    assert "'number' is a int" in problem.what


def test_complete_output_takes_the_place_of_what_was_there(kafka: Cluster, directory: Path, spark: Any) -> None:
    window = {name: value for name, value in WINDOW.items() if name != "late_after"}
    step = {"view": "counts", "window": {**window, "emit": "complete"}}
    sinks = {"out": {"from": "counts", "memory": {"table": "all_counts"}}}
    stream = Stream.make(kafka.bootstrap, directory, [step], sinks=sinks)
    stream.feed([Event("a", n) for n in range(6)])
    stream.run()
    [row] = spark.table("all_counts").collect()
    assert (row["key"], row["n"]) == ("a", 6)


def test_doctor_names_state_that_only_grows(kafka: Cluster, directory: Path) -> None:
    step = {"view": "firsts", "deduplicate": {"from": "events", "time": "at", "within": "60s", "key": ["number"]}}
    stream = Stream.make(kafka.bootstrap, directory, [step])
    stream.feed([Event("a", 0, n) for n in range(24)])  # event time stands still
    stream.run()
    facts, findings = examined(stream.payments.pipeline)
    assert [finding.cause for finding in findings] == ["state-growth"]
    assert "the watermark stands still" in findings[0].evidence[1]
    assert facts.batches[-1].state["firsts"].rows == 24


def test_steady_state_is_not_growth(kafka: Cluster, directory: Path) -> None:
    step = {"view": "firsts", "deduplicate": {"from": "events", "time": "at", "within": "60s", "key": ["number"]}}
    stream = Stream.make(kafka.bootstrap, directory, [step])
    stream.feed([Event("a", 30 * n, n) for n in range(24)])
    stream.run()
    assert examined(stream.payments.pipeline)[1] == []
    assert len(stream.rows()) == 24
