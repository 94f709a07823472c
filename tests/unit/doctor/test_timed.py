"""What is gathered of event time from the ledger."""

from __future__ import annotations

from penstock.checkpoint.ledger import Entry, StepCount, ViewCount
from penstock.doctor.event_time_facts import timed
from penstock.spec.steps import Step

WINDOW = {"from": "events", "time": "at", "late_after": "10m", "size": "1m", "columns": {"n": "count(*)"}}
STEP = Step.model_validate({"view": "w", "window": WINDOW})


def entry(batch: int, read: int, late: int, watermark_s: int) -> Entry:
    return Entry(
        pipeline="p",
        query="q",
        batch=batch,
        time=f"1970-01-01T02:{batch:02}:00+00:00",
        start="earliest",
        ranges=[],
        topics={},
        views={"events": ViewCount(read, read, 0)},
        sinks={},
        stateful={"w": StepCount(came=read, late=late, watermark=watermark_s * 1000)},
    )


def test_late_rows_are_added_up_and_the_watermark_is_held_against_the_clock() -> None:
    found = timed([STEP], [entry(0, 10, 0, 0), entry(1, 10, 2, 6600), entry(2, 10, 3, 6700), entry(3, 0, 0, 6900)])
    assert found is not None
    assert (found.view, found.came, found.late, found.late_after_s) == ("w", 30, 5, 600.0)
    assert list(found.behind_s) == [7260 - 6600, 7320 - 6700]  # batches with records, once there is a watermark
    assert found.moved_s == 100


def test_views_of_late_rows_are_unread_where_neither_a_sink_nor_a_step_reads_them() -> None:
    after = Step.model_validate({"view": "v", "sql": "select * from w_late"})
    found = [timed([STEP], []), timed([STEP], [], ["w", "w_late"]), timed([STEP, after], [])]
    assert [each and list(each.unread) for each in found] == [["w_late"], [], []]


def test_batch_that_brought_the_watermark_ahead_of_the_clock_is_named() -> None:
    far = 10**9
    batches = [entry(0, 10, 0, 0), entry(1, 10, 2, 6600), entry(2, 0, 0, far), entry(3, 10, 10, far)]
    found = timed([STEP], batches[2:], watermark_ms=far * 1000, now_s=7500.0, earlier=batches[:2])
    assert found is not None
    assert (found.moved_by, found.watermark_s, found.ahead_s, found.bound_s) == (1, far, far - 7500, 3600)
    unknown = timed([STEP], batches[2:], watermark_ms=far * 1000, now_s=7500.0)
    sound = timed([STEP], batches[:2], watermark_ms=6700 * 1000, now_s=7500.0)
    assert [each and each.moved_by for each in (unknown, sound)] == [None, None]
    assert sound is not None
    assert sound.ahead_s == 0


def test_pipeline_that_keeps_no_state_has_no_event_time() -> None:
    assert timed([Step.model_validate({"view": "v", "sql": "select 1"})], [entry(0, 10, 0, 0)]) is None
