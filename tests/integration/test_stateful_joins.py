"""Joins of two streams against an oracle in plain Python, over random event times, with a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.crash.driver import ROUNDS
from tests.stateful import NO_KEY, RICH_PAIRS, Event, Stream, compared, events, pairs, some_events

from penstock.local.broker import Cluster

pytestmark = pytest.mark.usefixtures("spark")

EVENTS = some_events(5, until=300)
COLUMNS = {
    "key": "coalesce(orders.key, payments.key)",
    "order": "orders.number",
    "payment": "payments.number",
}
JOIN: dict[str, Any] = {
    "left": {"from": "orders", "time": "at", "late_after": "60s"},
    "right": {"from": "payments", "time": "at", "late_after": "30s"},
    "on": ["key"],
    "within": "50s",
    "columns": COLUMNS,
}


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("joins")


def numbered(stream: Stream, name: str, events: list[Event]) -> None:
    first = len(stream.sent[name])
    stream.feed((Event(event.key, event.at, first + n) for n, event in enumerate(events)), name)


@pytest.mark.parametrize("kind", ["left", "full", *(["inner", "right"] if ROUNDS > 1 else [])])
@compared({"left": st.tuples(EVENTS, EVENTS), "right": st.tuples(EVENTS, EVENTS)}, RICH_PAIRS)
def test_pairs_are_those_of_the_oracle(
    kafka: Cluster, directory: Path, kind: str, left: tuple[list[Event], ...], right: tuple[list[Event], ...]
) -> None:
    step = {"view": "paid", "join": {**JOIN, "type": kind}}
    stream = Stream.make(kafka.bootstrap, directory, [step], "orders", "payments")
    # The last ones are far ahead: everything before them is settled, and they have no counterpart.
    last = ([], [Event("z", 5000)]), ([], [Event("y", 5000)])
    for orders, more, payments, others in zip(left, last[0], right, last[1], strict=True):
        numbered(stream, "orders", [*orders, *more])
        numbered(stream, "payments", [*payments, *others])
        stream.run()
    found, alone, alone_right, late = pairs(stream.batches("orders"), stream.batches("payments"), 50, (60, 30))
    expected = {(one.key, one.number, other.number) for one, other in found}
    if kind in ("left", "full"):
        expected |= {(one.key, one.number, None) for one in alone if one.key != "z"}
    if kind in ("right", "full"):
        expected |= {(other.key, None, other.number) for other in alone_right if other.key != "y"}
    rows = stream.rows()
    assert {(row["key"] or NO_KEY, row["order"], row["payment"]) for row in rows} == expected
    assert len(rows) == len(expected)
    assert [entry.stateful["paid"].late for entry in stream.entries()] == late
    assert [entry.stateful["paid"].cut for entry in stream.entries()] == late
    report = stream.payments.verify()
    assert report.complete, report.findings


def test_row_that_nothing_can_join_any_more_comes_with_the_start_after_a_stop(kafka: Cluster, directory: Path) -> None:
    """Though no record comes: see the test of windows."""
    step = {"view": "paid", "join": {**JOIN, "type": "left"}}
    stream = Stream.make(kafka.bootstrap, directory, [step], "orders", "payments")
    numbered(stream, "orders", events("a0 b10 z5000"))
    numbered(stream, "payments", events("b20 y5000"))
    stream.stopped_after_a_batch()
    assert [(row["key"], row["payment"]) for row in stream.rows()] == [("b", 0)]
    stream.run()
    assert sorted((row["key"], row["payment"]) for row in stream.rows()) == [("a", None), ("b", 0)]
    report = stream.payments.verify()
    assert report.complete, report.findings
