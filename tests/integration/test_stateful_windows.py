"""Windows, sessions and de-duplication against oracles in plain Python, over random event times, with a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.stateful import FEW, Event, Stream, firsts, seconds, sessions, some_events, windows

from penstock.local.broker import Cluster

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = some_events(8)


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


@pytest.mark.parametrize("slide", [60, 20])
@FEW
@given(first=EVENTS, second=EVENTS)
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


@FEW
@given(first=EVENTS, second=EVENTS)
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


@FEW
@given(first=EVENTS, second=EVENTS)
def test_duplicates_are_those_of_the_oracle(
    kafka: Cluster, directory: Path, first: list[Event], second: list[Event]
) -> None:
    step = {"deduplicate": {"from": "events", "time": "at", "within": "60s", "key": ["key"]}}
    stream = fed(kafka, directory, step, first, second)
    expected, late, twice = firsts(stream.batches(), 60)
    found = Counter((row["key"], row["number"]) for row in stream.rows())
    assert found == Counter((event.key, event.number) for event in expected)
    assert [entry.stateful["made"].duplicates for entry in stream.entries()] == twice
    check_late(stream, late)
