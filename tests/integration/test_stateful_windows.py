"""Windows, sessions and de-duplication against oracles in plain Python, over random event times, with a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.crash.driver import ROUNDS
from tests.stateful import (
    RICH,
    START,
    WINDOW,
    Event,
    Stream,
    compared,
    firsts,
    last_watermark,
    late_groups,
    seconds,
    sessions,
    some_events,
    windows,
    windows_of,
)

from penstock.checkpoint.home import Home
from penstock.doctor.gather import examined
from penstock.local.broker import Cluster
from penstock.observe.events import EventLog
from penstock.observe.metrics import Meters

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = some_events(8)
NOW = 1_900_000_000.0


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stateful")


def fed(kafka: Cluster, directory: Path, step: dict[str, Any], first: list[Event], second: list[Event]) -> Stream:
    """Two runs: the second begins with the state that the first one left. Late rows go to a sink of their own."""
    stream = Stream.make(kafka.bootstrap, directory, [{"view": "made", **step}])
    stream.payments.spec["sinks"]["late"] = {"from": "made_late", "parquet": {"path": "late"}}
    for part in (first, second):
        stream.feed(Event(event.key, event.at, len(stream.sent["events"]) + n) for n, event in enumerate(part))
        stream.run()
    return stream


def check_late(stream: Stream, late: list[int]) -> None:
    counts = [entry.stateful["made"] for entry in stream.entries()]
    assert [count.late for count in counts] == late
    assert len(stream.rows("late")) == sum(late)
    report = stream.payments.verify()
    assert report.complete, report.findings
    assert report.late == {"made": sum(late)}


def check_metrics(stream: Stream, **expected: float) -> None:
    """The values that a run would have shown after its last batch, had it ended at NOW."""
    meters = Meters("stateful")
    for entry in stream.entries():
        meters.batch_done(entry, 1.0, NOW)
    for name, value in expected.items():
        labels = {"pipeline": "stateful"} | ({} if name.startswith("watermark") else {"view": "made"})
        assert meters.registry.get_sample_value(f"penstock_{name}", labels) == value, name
    assert (meters.registry.get_sample_value("penstock_state_bytes", labels | {"view": "made"}) or 0) > 0


@pytest.mark.parametrize("slide", [20, 60] if ROUNDS > 1 else [20])  # tumbling ones are in the last test too
@compared({"first": EVENTS, "second": EVENTS}, RICH)
def test_windows_are_those_of_the_oracle(
    kafka: Cluster, directory: Path, slide: int, first: list[Event], second: list[Event]
) -> None:
    columns = {"n": "count(*)", "total": "sum(number)"}
    window = {"from": "events", "time": "at", "late_after": "90s", "size": "60s", "by": ["key"], "columns": columns}
    window |= {} if slide == 60 else {"slide": f"{slide}s"}
    stream = fed(kafka, directory, {"window": window}, first, second)
    expected, late, still_open = windows(stream.batches(), 60, slide, 90)
    found = {(seconds(row["window_start"]), row["key"]): row["n"] for row in stream.rows()}
    assert found == expected
    assert len(stream.rows()) == len(expected)
    check_late(stream, late)
    assert stream.entries()[-1].stateful["made"].held == still_open
    check_metrics(
        stream,
        state_rows=still_open,
        records_late_total=sum(late),
        rows_dropped_by_watermark_total=late_groups(stream.batches(), 60, slide, 90),
        watermark_delay_seconds=NOW - last_watermark(stream.batches(), 90),
    )


@compared({"first": EVENTS, "second": EVENTS}, RICH)
def test_sessions_are_those_of_the_oracle(
    kafka: Cluster, directory: Path, first: list[Event], second: list[Event]
) -> None:
    columns = {"n": "count(*)"}
    window = {"from": "events", "time": "at", "late_after": "60s", "session": "40s", "by": ["key"], "columns": columns}
    stream = fed(kafka, directory, {"window": window}, first, second)
    expected, late = sessions(stream.batches(), 40, 60)
    rows = stream.rows()
    found = sorted((r["key"], seconds(r["window_start"]), seconds(r["window_end"]), r["n"]) for r in rows)
    assert found == expected
    check_late(stream, late)


@compared({"first": EVENTS, "second": EVENTS}, RICH)
def test_duplicates_are_those_of_the_oracle(
    kafka: Cluster, directory: Path, first: list[Event], second: list[Event]
) -> None:
    step = {"deduplicate": {"from": "events", "time": "at", "within": "60s", "key": ["key"]}}
    stream = fed(kafka, directory, step, first, second)
    expected, late, twice = firsts(stream.batches(), 60)
    found = Counter((row["key"], row["number"]) for row in stream.rows())
    assert found == Counter((event.key, event.number) for event in expected)
    assert [entry.stateful["made"].duplicates for entry in stream.entries()] == twice
    assert [entry.stateful["made"].cut for entry in stream.entries()] == late
    check_late(stream, late)
    said = {finding.cause: finding.facts for finding in examined(stream.payments.pipeline)[1]}
    assert said.get("late-records", {}).get("late", 0) == sum(late)


@compared({"first": EVENTS, "second": EVENTS}, RICH)
def test_window_over_windows_is_that_of_the_oracle(
    kafka: Cluster, directory: Path, first: list[Event], second: list[Event]
) -> None:
    """Windows of three minutes over windows of one: both close by the watermark of the first step."""
    minutes = {"from": "events", "time": "at", "late_after": "30s", "size": "60s", "by": ["key"]}
    threes = {"from": "minutes", "time": "window_time", "size": "180s", "by": ["key"]}
    steps = [
        {"view": "minutes", "window": {**minutes, "columns": {"n": "count(*)"}}},
        {"view": "threes", "window": {**threes, "columns": {"n": "sum(n)", "minutes": "count(*)", "most": "max(n)"}}},
    ]
    stream = Stream.make(kafka.bootstrap, directory, steps)
    for part in (first, [*second, Event("z", 1000)]):
        stream.feed(part)
        stream.run()
    closed, late, _ = windows(stream.batches(), 60, 60, 30)
    until = last_watermark(stream.batches(), 30)
    inside: dict[tuple[int, str], list[int]] = {}
    for (start, key), n in closed.items():
        inside.setdefault((windows_of(start, 180, 180)[0], key), []).append(n)
    expected = {
        (start, key): (sum(counts), len(counts), max(counts))
        for (start, key), counts in inside.items()
        if START + start + 180 <= until
    }
    rows = stream.rows()
    found = {(seconds(r["window_start"]), r["key"]): (r["n"], r["minutes"], r["most"]) for r in rows}
    assert found == expected
    assert len(rows) == len(expected) > 2
    assert [entry.stateful["minutes"].late for entry in stream.entries()] == late
    report = stream.payments.verify()
    assert report.complete, report.findings


def test_windows_that_closed_before_a_stop_come_with_the_next_start(kafka: Cluster, directory: Path) -> None:
    """Though no record comes: the batch without records, which the stop was before, is run once and not again."""
    stream = Stream.make(kafka.bootstrap, directory, [{"view": "made", "window": WINDOW}])
    stream.feed(RICH["first"])
    stream.stopped_after_a_batch()
    assert stream.rows() == []
    stream.payments.spec["rate"] |= {"target_batch": "10s"}
    for _ in range(2):
        stream.run()
        assert [len(batch) for batch in stream.batches()] == [len(RICH["first"]), 0]
        expected, late, _ = windows(stream.batches(), 60, 60, 60)
        found = {(seconds(row["window_start"]), row["key"]): row["n"] for row in stream.rows()}
        assert found == expected
        assert len(stream.rows()) == len(expected) > 2
    decided = EventLog(Home.of(stream.payments.pipeline).events).last(["rate"], 10)
    assert [event.facts["reason"] for event in decided] == ["no-input"]  # it is no replay of an earlier run's batch
    assert [entry.stateful["made"].late for entry in stream.entries()] == late
    report = stream.payments.verify()
    assert report.complete, report.findings
