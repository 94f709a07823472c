"""Which records are the first thousand, and when they have been read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.batch.first_records import FirstRecords, portions
from penstock.checkpoint.ledger import Entry, ViewCount
from penstock.record import OffsetRange

PIPELINE: Any = None
ENTRY = Entry("p", "q", 0, "", "earliest", [], {}, {"v": ViewCount(400, 40, 360)}, {})


def entries(*batches: int) -> list[Entry]:
    return [replace(ENTRY, batch=number) for number in batches]


def test_batches_count_until_a_thousand_records_were_read_and_an_old_checkpoint_is_not_judged() -> None:
    found = FirstRecords.since(PIPELINE, entries(0, 1))
    assert found is not None
    assert (found.read, found.dead, found.following) == (800, 720, 2)
    assert found.took(entries(1)[0]) is False  # its batch ran again
    assert found.read == 800
    assert FirstRecords.since(PIPELINE, entries(0, 1, 2)) is None
    assert FirstRecords.since(PIPELINE, entries(5)) is None  # the ledger before is gone
    assert FirstRecords.since(PIPELINE, []) == FirstRecords(PIPELINE)


@pytest.mark.parametrize(
    ("sizes", "wanted", "tried"),
    [
        ((999,), 1000, []),
        ((1000,), 1000, [[1000]]),
        ((5000,), 1000, [[1000], [2000], [4000], [5000]]),
        ((3000, 0, 1000), 1000, [[750, 250], [1500, 500], [3000, 1000]]),
        ((10**9, 1), 10, [[10, 1], [20, 1]]),
    ],
)
def test_each_partition_gives_its_share_and_offsets_without_records_are_made_up_for(
    sizes: tuple[int, ...], wanted: int, tried: list[list[int]]
) -> None:
    ranges = [OffsetRange("t", p, 7, 7 + size) for p, size in enumerate(sizes)]
    found = [[len(r) for r in some] for some, _ in zip(portions(ranges, wanted), range(4), strict=False)]
    assert found[: len(tried)] == tried
    assert bool(found) is bool(tried)
