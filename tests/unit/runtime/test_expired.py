"""What of a batch Kafka no longer held when it was about to be read."""

from __future__ import annotations

from penstock.record import OffsetRange
from penstock.runtime.topics import expired


def test_only_offsets_before_the_first_that_is_held_are_lost() -> None:
    ranges = [OffsetRange("a", 0, 5, 10), OffsetRange("a", 1, 5, 10), OffsetRange("b", 0, 5, 10)]
    firsts = {("a", 0): 5, ("a", 1): 8, ("b", 0): 99}
    assert expired(ranges, firsts) == [OffsetRange("a", 1, 5, 8), OffsetRange("b", 0, 5, 10)]


def test_a_partition_without_offsets_in_the_batch_loses_none() -> None:
    assert expired([OffsetRange("a", 0, 5, 5)], {("a", 0): 9}) == []
