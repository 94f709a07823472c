"""The numbers of a run, from ledger entries and Kafka's ends."""

from __future__ import annotations

import pytest

from penstock.checkpoint.ledger import Entry, SinkCount, TopicFact, ViewCount
from penstock.observe.books import Share
from penstock.observe.progress import Progress
from penstock.record import OffsetRange


def entry(batch: int, *ranges: OffsetRange, read: int | None = None, sink_dropped: int | None = 0) -> Entry:
    offsets = sum(len(r) for r in ranges)
    count = offsets if read is None else read
    return Entry(
        pipeline="payments",
        query="q1",
        batch=batch,
        time="2026-01-01T00:00:00Z",
        start="earliest",
        ranges=list(ranges),
        topics={"payments": TopicFact("payments", "id-1")},
        views={"payments": ViewCount(count, count - 4, 1, {"no-zero": 2, "!tombstone": 1})},
        sinks={"lake": SinkCount(count - 4 - (sink_dropped or 0), sink_dropped)},
    )


def test_before_the_first_batch_nothing_is_known() -> None:
    progress = Progress()
    assert (progress.rate, progress.lag, progress.seconds_left) == (None, None, None)
    progress.ends_are({("payments", 0): 100})
    assert (progress.rate, progress.lag, progress.seconds_left) == (None, None, None)


def test_lag_is_not_known_before_kafka_was_asked() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 10)), 2.0)
    assert (progress.rate, progress.lag, progress.seconds_left) == (5.0, None, None)


def test_counts_add_up_over_batches_and_what_steps_leave_out_is_not_dropped() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 20), sink_dropped=5), 1.0)
    progress.batch_done(entry(1, OffsetRange("payments", 0, 20, 30), sink_dropped=None), 1.0)
    assert (progress.batches, progress.read, progress.dead, progress.dropped) == (2, 30, 2, 3 + 3)
    assert progress.sinks == {"lake": Share(11 + 6, left_out=5)}


def test_rate_counts_offsets_and_not_only_records() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 60), OffsetRange("payments", 1, 0, 40), read=50), 4.0)
    assert progress.rate == 25.0


def test_rate_follows_the_last_five_batches_and_weighs_them_by_their_time() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 1_000_000)), 1.0)
    for batch, (start, end, seconds) in enumerate([(0, 10, 1), (10, 20, 1), (20, 30, 1), (30, 40, 1), (40, 100, 6)], 1):
        progress.batch_done(entry(batch, OffsetRange("payments", 0, start, end)), seconds)
    assert progress.rate == 10.0


def test_lag_sums_what_each_partition_is_behind_and_time_left_is_lag_over_rate() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 10), OffsetRange("payments", 1, 0, 10)), 2.0)
    progress.ends_are({("payments", 0): 25, ("payments", 1): 10, ("payments", 2): 5})
    assert progress.lag == 15 + 0 + 5
    assert progress.seconds_left == pytest.approx(2.0)


def test_partition_that_is_past_an_end_seen_earlier_does_not_hide_the_lag_of_another() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 100), OffsetRange("payments", 1, 0, 10)), 1.0)
    progress.ends_are({("payments", 0): 50, ("payments", 1): 17})
    assert progress.lag == 7


def test_pipeline_that_caught_up_has_no_time_left_and_one_that_reads_nothing_has_no_estimate() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 10)), 1.0)
    progress.ends_are({("payments", 0): 10})
    assert (progress.lag, progress.seconds_left) == (0, 0.0)
    idle = Progress()
    idle.batch_done(entry(0, OffsetRange("payments", 0, 0, 0), read=4), 1.0)
    idle.ends_are({("payments", 0): 10})
    assert (idle.rate, idle.lag, idle.seconds_left) == (0.0, 10, None)


def test_batch_that_took_no_measurable_time_gives_no_rate() -> None:
    progress = Progress()
    progress.batch_done(entry(0, OffsetRange("payments", 0, 0, 10)), 0.0)
    assert progress.rate is None


def test_batch_that_is_run_again_because_it_was_not_committed_counts_once() -> None:
    progress = Progress()
    again = entry(0, OffsetRange("payments", 0, 0, 20))
    assert [progress.batch_done(each, 1.0) for each in (again, again)] == [True, False]
    assert (progress.batches, progress.read, progress.sinks) == (1, 20, {"lake": Share(16)})
