"""What `doctor` says of late rows and of the watermark, and when it stays silent."""

from __future__ import annotations

from dataclasses import replace

from penstock.doctor.facts import Facts, Stuck, Timed
from penstock.doctor.rules import examine
from penstock.observe.lag import PartitionLag, measured

FACTS = Facts(running=True, lag=measured([], 5_000.0), cap=10_000, adaptive=False)
STEP = Timed("w", came=10_000, late=0, late_after_s=600.0, behind_s=[610.0] * 5, moved_s=60.0)
OLD = replace(STEP, behind_s=[9_000.0] * 5)


def causes(step: Timed, facts: Facts = FACTS) -> list[tuple[str, str]]:
    return [(finding.cause, finding.severity) for finding in examine(replace(facts, timed=step))]


def test_step_whose_rows_come_in_time_has_no_finding() -> None:
    assert causes(STEP) == []
    assert examine(FACTS) == []


def test_late_rows_are_named_and_many_of_them_are_a_warning() -> None:
    assert causes(replace(STEP, late=5)) == [("late-records", "note")]
    [found] = examine(replace(FACTS, timed=replace(STEP, late=250)))
    assert (found.cause, found.severity) == ("late-records", "warning")
    assert found.what == "250 of 10,000 rows came too late for 'w' (2.5%)"
    assert "10 min behind the newest" in found.evidence[1]
    assert "another `checkpoint:`" in found.fix  # another `late_after` is another step
    assert "to keep" not in found.fix  # they are kept already
    [found] = examine(replace(FACTS, timed=replace(STEP, late=250, unread=["w_late_left", "w_late_right"])))
    assert found.fix.endswith("; to keep late rows: a sink `from: w_late_left` and a sink `from: w_late_right`")


def test_watermark_far_ahead_of_the_clock_is_the_cause_of_late_rows_and_needs_a_new_checkpoint() -> None:
    far = replace(
        STEP,
        late=250,
        watermark_s=253_402_300_199.0,
        ahead_s=251_608_000_000.0,
        bound_s=3600.0,
        moved_by=7,
        moved_over=["events-0 [100, 200)"],
    )
    assert causes(far) == causes(far, replace(FACTS, running=False)) == [("watermark-ahead", "critical")]
    [found] = examine(replace(FACTS, timed=far))
    assert found.what == "the watermark of 'w' is 7,973 years ahead of the clock"
    assert found.evidence[0].startswith("it is at 9999-12-31T23:49:59Z")
    assert "batch 7" in found.evidence[1]
    assert "events-0 [100, 200)" in found.evidence[1]
    assert found.evidence[2] == "250 of 10,000 rows came too late"
    assert "a new `checkpoint:`, new sinks, and `start:` before what batch 7 read; the record" in found.fix
    allowed = replace(far, ahead_s=5_000_000.0, bound_s=6_000_000.0, moved_by=None)
    [found] = examine(replace(FACTS, timed=allowed))
    assert "with a smaller `ahead` of 'w' than 69 days; the record" in found.fix
    assert "no longer looked back at" in found.evidence[1]


def test_watermark_a_little_ahead_of_the_clock_is_a_fast_clock() -> None:
    assert causes(replace(STEP, ahead_s=59.0)) == []
    fast = replace(STEP, watermark_s=1_800_000_000.0, ahead_s=1_800.0, bound_s=3600.0)
    assert causes(fast) == [("watermark-ahead", "warning")]
    [found] = examine(replace(FACTS, timed=fast))
    assert found.fix == "correct the clock that sets the event times; in 30 min rows are in time again"


def test_watermark_that_is_behind_the_clock_says_whether_it_moves() -> None:
    [found] = examine(replace(FACTS, timed=OLD))
    assert (found.cause, found.severity) == ("watermark-behind", "warning")
    assert found.what == "the watermark of 'w' is 2 h 30 min behind the clock"
    assert "the event times are old" in found.evidence[1]
    [found] = examine(replace(FACTS, timed=replace(OLD, moved_s=0.0)))
    assert "it stands still" in found.evidence[1]


def test_watermark_is_behind_by_what_waits_and_what_may_be_late() -> None:
    waiting = PartitionLag("t", 0, 0, end=9, group=0, behind_s=9_000.0, estimated=False, arriving=100.0)
    assert causes(OLD, replace(FACTS, lag=measured([waiting], 5_000.0))) == []
    assert causes(replace(OLD, late_after_s=9_000.0)) == []
    assert causes(replace(OLD, behind_s=[9_000.0, 610.0, 9_000.0])) == []
    assert causes(replace(OLD, behind_s=[9_000.0] * 2)) == []


def test_pipeline_that_does_not_run_has_other_troubles() -> None:
    assert causes(OLD, replace(FACTS, running=False)) == []


def test_batch_that_is_running_hides_nothing() -> None:
    assert causes(OLD, replace(FACTS, stuck=Stuck(3, 5.0))) == [("watermark-behind", "warning")]
