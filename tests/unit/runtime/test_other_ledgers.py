"""Sinks that hold an offset more than once, and rightly: by backfills beside the stream, and of a topic made again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.two_batches import ENTRIES, IN_KAFKA, IN_SINK, by, evidence, facts, table, without

from penstock.checkpoint.ledger import Entry, SinkCount, TopicFact, ViewCount
from penstock.record import OffsetRange
from penstock.runtime import fingerprint
from penstock.runtime.proof import sinks as sink_proof
from penstock.runtime.proof.other_ledgers import Other
from penstock.runtime.proof.renewed import Former
from penstock.runtime.proof.report import Report


def backfilled(number: int, first: int, end: int, offsets: Iterable[int]) -> Other:
    """A backfill of partition 0 that wrote these offsets."""
    found = np.array(sorted(offsets), dtype=np.int64)
    count = SinkCount(len(found), 0, fingerprint.of_offsets("t", 0, found))
    ranges = [OffsetRange("t", 0, first, end)]
    return Other(f"backfill {number}", [replace(ENTRIES[0], query=f"b{number}", ranges=ranges, sinks={"lake": count})])


def fingered(entry: Entry) -> Entry:
    which = sum(
        fingerprint.of_offsets("t", p, np.array([o for o in offsets if r.start <= o < r.end], dtype=np.int64))
        for p, offsets in IN_SINK.items()
        for r in entry.ranges
        if r.partition == p
    )
    return replace(entry, sinks={"lake": replace(entry.sinks["lake"], fingerprint=which)})


BEFORE = [-4, -3, -2, -1]  # what only a backfill has read
AGAIN = sorted(o for o in IN_SINK[0] if o < 10)
BESIDE = [backfilled(1, -4, 10, [*BEFORE, *AGAIN]), backfilled(2, 5, 10, [o for o in AGAIN if o >= 5])]


@pytest.mark.parametrize(
    ("gone", "more", "found"),
    [
        pytest.param([], [], [], id="healthy"),
        pytest.param([7, 7, 7], [], [("sink-differs", 0, None, None, []), ("lost", 0, "t", 0, [7])], id="deleted"),
        pytest.param([7], [], [("sink-differs", 0, None, None, [])], id="one of three deleted"),
        pytest.param([7], [8], [("sink-differs", 0, None, None, [])], id="another one in its place"),
        pytest.param([], [12], [("duplicate", None, "t", 0, [12])], id="twice where no backfill was"),
        pytest.param([12], [], [("sink-differs", 1, None, None, []), ("lost", 1, "t", 0, [12])], id="deleted beyond"),
        pytest.param([], [99], [("invented", None, "t", 0, [99])], id="not in Kafka"),
    ],
)
def test_rows_that_backfills_brought_too_are_proven_together_with_theirs(
    tmp_path: Path, gone: list[int], more: list[int], found: list[tuple[object, ...]]
) -> None:
    rows = [*IN_SINK[0], *(o for other in BESIDE for e in other.entries for o in written(other)), *more]
    for offset in gone:
        rows.remove(offset)
    sink = table(tmp_path, {0: rows, 1: list(IN_SINK[1])})
    report = Report("payments")
    second = replace(ENTRIES[1], views={"t": ViewCount(8, 8, 0)})  # nothing dropped: what is lost can be named
    entries = [fingered(ENTRIES[0]), fingered(second)]
    kafka = without(IN_KAFKA, 15)
    sink_proof.in_sink(evidence(entries, by(kafka), others=BESIDE), sink, sink.positions("_kafka"), report)
    assert facts(report) == found
    assert report.proof == {"lake": "by offset"}


def test_batch_that_shares_offsets_with_an_unfinished_backfill_is_not_judged(tmp_path: Path) -> None:
    class Unfinished(Other):
        @property
        def unfinished(self) -> list[OffsetRange]:
            return [OffsetRange("t", 0, 0, 3)]

    sink = table(tmp_path, {0: [*(o for o in IN_SINK[0] if o != 5), 1], 1: list(IN_SINK[1])})
    report = Report("payments")
    sink_proof.in_sink(evidence(ENTRIES, others=[Unfinished("b", [])]), sink, sink.positions("_kafka"), report)
    assert report.findings == []
    assert report.unproven == ["sink 'lake': batch 0, which shares offsets with a batch that is not finished"]


def written(other: Other) -> list[int]:
    first = other.entries[0].ranges[0].start
    return [*BEFORE, *AGAIN] if first < 0 else [o for o in AGAIN if o >= first]


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
    found = evidence(entries, records, by({}), former=Former({"t": "id-2"}))
    sink_proof.in_sink(found, sink, sink.positions("_kafka"), report)
    return report


@pytest.mark.parametrize(
    ("held", "found"),
    [
        pytest.param([0, 1, 2, 3, 25, 26], [], id="healthy"),
        pytest.param([0, 1, 2, 25, 26], [("sink-differs", 0), ("lost", 2)], id="one of the new topic is not there"),
        pytest.param([0, 1, 2, 2, 25, 26], [("sink-differs", 0), ("lost", 2)], id="another one in its place"),
        pytest.param([0, 1, 2, 3, 3, 25, 26], [("sink-differs", 0)], id="one too many"),
        pytest.param([0, 1, 2, 3, 25], [("sink-differs", 3), ("lost", 3)], id="beyond the former offsets"),
        pytest.param([0, 1, 2, 3, 25, 26, 26], [("duplicate", None)], id="twice beyond the former offsets"),
        pytest.param([0, 1, 2, 3, 25, 26, 99], [("invented", None)], id="in neither topic"),
    ],
)
def test_rows_of_a_former_topic_are_proven_together_with_those_of_the_one_that_came_after(
    tmp_path: Path, held: list[int], found: list[tuple[str, int | None]]
) -> None:
    assert [(each.kind, each.batch) for each in renewed(held, tmp_path).findings] == found
