"""What all ledgers say of each offset, against a sink: backfills and replays beside the stream, topics made again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.two_batches import ENTRIES, IN_KAFKA, IN_SINK, by, evidence, facts, table

from penstock.batch import fingerprint
from penstock.checkpoint.ledger import Entry, SinkCount, TopicFact, ViewCount
from penstock.record import OffsetRange
from penstock.sinks.delta.append import DeltaSink
from penstock.verification import sinks as sink_proof
from penstock.verification.renewed import Former
from penstock.verification.report import Report
from penstock.verification.writers import Writer


def backfilled(number: int, first: int, end: int, offsets: Iterable[int]) -> Writer:
    """A backfill of partition 0 that wrote these offsets."""
    found = np.array(sorted(offsets), dtype=np.int64)
    count = SinkCount(len(found), 0, fingerprint.of_offsets("t", 0, found))
    ranges = [OffsetRange("t", 0, first, end)]
    entry = replace(ENTRIES[0], query=f"b{number}", ranges=ranges, sinks={"lake": count})
    return Writer(f"backfill {number}", [entry])


def fingered(entry: Entry) -> Entry:
    which = sum(
        fingerprint.of_offsets("t", p, np.array([o for o in offsets if r.start <= o < r.end], dtype=np.int64))
        for p, offsets in IN_SINK.items()
        for r in entry.ranges
        if r.partition == p
    )
    return replace(entry, sinks={"lake": replace(entry.sinks["lake"], fingerprint=which)})


BEFORE = [1000, 1001, 1002, 1003]  # what only a backfill has read
AGAIN = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]  # 3 died in the stream, and the backfill wrote it
BESIDE = [
    backfilled(1, 0, 10, AGAIN),
    backfilled(2, 5, 10, [5, 6, 7, 8, 9]),
    backfilled(3, 1000, 1004, BEFORE),
]
BROUGHT = [*BEFORE, *AGAIN, 5, 6, 7, 8, 9]
SHARED = ("sink-differs", None, None, None, [])


@pytest.mark.parametrize(
    ("gone", "more", "found"),
    [
        pytest.param([], [], [], id="healthy"),
        pytest.param([7, 7, 7], [], [SHARED, ("lost", None, "t", 0, [7])], id="deleted"),
        pytest.param([7], [], [SHARED, ("lost", None, "t", 0, [7])], id="one of three deleted"),
        pytest.param([3], [], [SHARED, ("lost", None, "t", 0, [3])], id="what only the backfill wrote is deleted"),
        pytest.param([1002], [], [SHARED, ("lost", None, "t", 0, [1002])], id="what only the backfill read is deleted"),
        pytest.param(
            [7], [8], [("duplicate", None, "t", 0, [8]), SHARED, ("lost", None, "t", 0, [7])], id="another in its place"
        ),
        pytest.param([], [12], [("duplicate", None, "t", 0, [12])], id="twice where no backfill was"),
        pytest.param([], [3], [("duplicate", None, "t", 0, [3])], id="one copy more than all ledgers say"),
        pytest.param([12], [], [("sink-differs", 1, None, None, []), ("lost", 1, "t", 0, [12])], id="deleted beyond"),
        pytest.param([], [99], [("invented", None, "t", 0, [99])], id="not in Kafka"),
    ],
)
def test_each_offset_is_there_as_often_as_all_ledgers_together_say(
    tmp_path: Path, gone: list[int], more: list[int], found: list[tuple[object, ...]]
) -> None:
    rows = [*IN_SINK[0], *BROUGHT, *more]
    for offset in gone:
        rows.remove(offset)
    sink = table(tmp_path, {0: rows, 1: list(IN_SINK[1])})
    report = Report("payments")
    second = replace(ENTRIES[1], views={"t": ViewCount(8, 8, 0)})  # nothing dropped: what is lost can be named
    entries = [fingered(ENTRIES[0]), fingered(second)]
    kafka = {**IN_KAFKA, 0: (IN_KAFKA[0] | set(BEFORE)) - {15}}
    sink_proof.in_sink(evidence(entries, by(kafka), others=BESIDE), sink, sink.positions("_kafka"), report)
    assert facts(report) == found
    assert (report.proof, report.sinks) == ({"lake": "by offset"}, {"lake": 39 + len(more) - len(gone)})
    assert report.written == {"lake": {"the stream": 20, "backfill 1": 10, "backfill 2": 5, "backfill 3": 4}}


@pytest.mark.parametrize("held", [[], [1, 2], [0, 1, 2]], ids=["nothing", "some", "all"])
def test_what_an_unfinished_backfill_has_written_may_be_there_or_not(tmp_path: Path, held: list[int]) -> None:
    unfinished = Writer("backfill b", [], [OffsetRange("t", 0, 0, 3), OffsetRange("t", 0, 3, 4)])
    rows = {0: [*IN_SINK[0], *held, 3], 1: list(IN_SINK[1])}
    sink = table(tmp_path, rows)
    report = Report("payments")
    sink_proof.in_sink(evidence(ENTRIES, others=[unfinished]), sink, sink.positions("_kafka"), report)
    assert report.findings == []
    assert report.unproven == ["sink 'lake': records that an unfinished batch of backfill b may have written too"]


def test_sink_that_came_later_is_held_against_the_backfill_that_filled_it(tmp_path: Path) -> None:
    entries = [replace(ENTRIES[0], sinks={}), ENTRIES[1]]
    late = [o for o in IN_SINK[0] if o > 10]
    for rows, found in (([*AGAIN, *late], []), ([*AGAIN[1:], *late], [SHARED, ("lost", None, "t", 0, [0])])):
        report = Report("payments")
        positions = {("t", 0): rows}
        sink = DeltaSink("lake", tmp_path)
        sink_proof.in_sink(evidence(entries, others=BESIDE[:1]), sink, positions, report)
        assert facts(report) == found


# A topic that was deleted and created again: batch 0 read the former one, batch 2 the one that is there now.


def renewed(held: list[int], tmp_path: Path) -> Report:
    now = replace(
        ENTRIES[0],
        batch=2,
        ranges=[OffsetRange("t", 0, 0, 4)],
        topics={"t": TopicFact("t", "id-2")},
        views={"t": ViewCount(4, 4, 0)},
        sinks={"lake": SinkCount(4, 0, fingerprint.of_offsets("t", 0, np.arange(4)))},
    )
    later = replace(now, batch=3, ranges=[OffsetRange("t", 0, 25, 27)], sinks={"lake": SinkCount(2, 0)})
    sink = table(tmp_path, {0: [*IN_SINK[0], *held], 1: list(IN_SINK[1])})
    report = Report("payments")
    entries = [fingered(ENTRIES[0]), fingered(ENTRIES[1]), now, later]
    records = by({0: {0, 1, 2, 3, 25, 26}})
    found = evidence(entries, records, former=Former({"t": "id-2"}))
    sink_proof.in_sink(found, sink, sink.positions("_kafka"), report)
    return report


@pytest.mark.parametrize(
    ("held", "found"),
    [
        pytest.param([0, 1, 2, 3, 25, 26], [], id="healthy"),
        pytest.param([0, 1, 2, 25, 26], ["sink-differs", "lost"], id="one of the new topic is not there"),
        pytest.param([0, 1, 2, 2, 25, 26], ["duplicate", "sink-differs", "lost"], id="another one in its place"),
        pytest.param([0, 1, 2, 3, 3, 25, 26], ["duplicate"], id="one too many"),
        pytest.param([0, 1, 2, 3, 25], ["sink-differs", "lost"], id="beyond the former offsets"),
        pytest.param([0, 1, 2, 3, 25, 26, 26], ["duplicate"], id="twice beyond the former offsets"),
        pytest.param([0, 1, 2, 3, 25, 26, 99], ["invented"], id="in neither topic"),
    ],
)
def test_rows_of_a_former_topic_are_proven_together_with_those_of_the_one_that_came_after(
    tmp_path: Path, held: list[int], found: list[str]
) -> None:
    assert [each.kind for each in renewed(held, tmp_path).findings] == found
