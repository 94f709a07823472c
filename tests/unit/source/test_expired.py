"""What of a batch Kafka no longer held when it was about to be read."""

from __future__ import annotations

from dataclasses import replace

from tests.two_batches import ENTRIES

from penstock.checkpoint.ledger import Entry, ViewCount
from penstock.record import OffsetRange
from penstock.source.topics import Loss, expired, settled


def test_only_offsets_before_the_first_that_is_held_are_lost() -> None:
    ranges = [OffsetRange("a", 0, 5, 10), OffsetRange("a", 1, 5, 10), OffsetRange("b", 0, 5, 10)]
    firsts = {("a", 0): 5, ("a", 1): 8, ("b", 0): 99}
    assert expired(ranges, firsts) == [OffsetRange("a", 1, 5, 8), OffsetRange("b", 0, 5, 10)]


def test_a_partition_without_offsets_in_the_batch_loses_none() -> None:
    assert expired([OffsetRange("a", 0, 5, 5)], {("a", 0): 9}) == []


def r(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange("a", partition, start, end)


def test_what_expires_during_the_read_and_is_missing_is_lost() -> None:
    assert settled([], [r(0, 6)], 6) == Loss([r(0, 6)])
    assert settled([r(0, 2)], [r(0, 6), r(0, 1, 1)], 7) == Loss([r(0, 6), r(0, 1, 1)])


def test_what_expires_after_it_was_read_is_not_lost() -> None:
    assert settled([], [r(0, 6)], 0) == Loss()
    assert settled([r(0, 2)], [r(0, 6)], 2) == Loss([r(0, 2)])


def test_what_was_read_in_part_before_it_expired_is_in_doubt() -> None:
    """Three of the offsets are missing: lost, or markers of transactions."""
    assert settled([], [r(0, 6)], 3) == Loss([], [r(0, 6)])
    assert settled([r(0, 2)], [r(0, 6), r(0, 1, 1)], 3) == Loss([r(0, 2)], [r(2, 6), r(0, 1, 1)])


def test_what_may_be_markers_is_in_doubt_however_many_they_are() -> None:
    assert settled([], [r(0, 6)], 50) == Loss([], [r(0, 6)])
    assert settled([r(0, 2)], [r(0, 6)], 50) == Loss([r(0, 2)], [r(2, 6)])


def test_markers_of_a_topic_that_keeps_everything_are_no_loss() -> None:
    assert settled([], [], 3) == Loss()
    assert settled([r(0, 2)], [r(0, 2)], 5) == Loss([r(0, 2)])


def test_the_books_say_how_many_may_be_lost() -> None:
    entry = replace(ENTRIES[0], ranges=[r(0, 10)], views={"t": ViewCount(5, 5, 0)}, lost=[r(0, 2)], doubtful=[r(2, 6)])
    assert entry.in_doubt == 3
    assert Entry.from_line(entry.as_line()) == entry
