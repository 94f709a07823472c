"""Rules of `doctor` about event time: a watermark that is ahead of the clock or lags behind it, and rows that come too
late for a step.

The first makes nearly all rows late, late ones are lost from windows, joins and keys, and a watermark that lags keeps
their results back. None of it makes a pipeline slow, so no other rule of `doctor.rules` sees it.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.facts import Facts, Finding, Timed
from penstock.spec.duration import span
from penstock.spec.start import time_text

_MANY = 0.01  # of the rows that came: so many are no stragglers
_BATCHES = 3
_LONG_S = 600.0  # behind what is asked for: less than that is the pace of batches
FAST_CLOCK_S = 60.0  # ahead of ours: clocks of machines that look after them are closer
_SOON_S = 3600.0  # the clock gets there while somebody looks on
_DAY_S = 86_400.0
_YEAR_S = 365.25 * _DAY_S


def ahead(facts: Facts) -> Iterator[Finding]:
    """Nothing brings a watermark back: what it has closed was emitted. With `ahead` it cannot get far, but it may have
    got there before there was such a bound, or with a larger one."""
    step = facts.timed
    if step is None or step.ahead_s <= FAST_CLOCK_S:
        return
    at, away = time_text(round(step.watermark_s * 1000)), _away(step.ahead_s)
    evidence = [f"it is at {at}: until then rows with correct event times are dropped as late"]
    if step.moved_by is None:
        evidence.append("batches that are no longer looked back at brought it there")
    else:
        evidence.append(f"batch {step.moved_by} read the event time behind it: {', '.join(step.moved_over)}")
    if step.late:
        evidence.append(f"{step.late:,} of {step.came:,} rows came too late")
    soon = step.ahead_s <= _SOON_S
    yield Finding(
        "watermark-ahead",
        "warning" if soon else "critical",
        f"the watermark of '{step.view}' is {away} ahead of the clock",
        tuple(evidence),
        f"correct the clock that sets the event times; in {away} rows are in time again" if soon else _anew(step),
        {"view": step.view, "watermark": at, "ahead_s": step.ahead_s, "batch": step.moved_by},
    )


def _anew(step: Timed) -> str:
    """`late_after` is not among it: another one does not move the watermark, and the state does not allow it."""
    begin = "before that" if step.moved_by is None else f"before what batch {step.moved_by} read"
    allowed = step.bound_s is not None and step.ahead_s + (step.late_after_s or 0.0) <= step.bound_s
    smaller = f", with a smaller `ahead` of '{step.view}' than {_away(step.bound_s or 0.0)}" if allowed else ""
    return (
        f"a watermark never moves back: start over with a new `checkpoint:`, new sinks, and `start:` {begin}{smaller}; "
        "the record is a dead letter then"
    )


def late(facts: Facts) -> Iterator[Finding]:
    step = facts.timed
    if step is None or not step.late or any(ahead(facts)):
        return
    share = step.late / max(step.came, 1)
    allowed = f"it waits for rows that are {span(step.late_after_s)} behind the newest" if step.late_after_s else ""
    sinks = " and ".join(f"a sink `from: {view}`" for view in step.unread)
    yield Finding(
        "late-records",
        "warning" if share >= _MANY else "note",
        f"{step.late:,} of {step.came:,} rows came too late for '{step.view}' ({share:.1%})",
        tuple(filter(None, ("they are in no window, pair or key: what they belong to was closed", allowed))),
        f"raise `late_after` (`within`) of '{step.view}', which takes another `checkpoint:` and other sinks: the state "
        "in this one is that of the step as it is" + (f"; to keep late rows: {sinks}" if sinks else ""),
        {"view": step.view, "late": step.late, "came": step.came},
    )


def behind(facts: Facts) -> Iterator[Finding]:
    """A watermark is behind by what the spec allows to be late, and by as much as records wait. More has a cause."""
    step = facts.timed
    if step is None or not facts.running:
        return
    recent = step.behind_s[-_BATCHES:]
    expected = (step.late_after_s or 0.0) + (facts.lag.behind_s or 0.0)
    if len(recent) < _BATCHES or min(recent) - expected <= max(_LONG_S, step.late_after_s or 0.0):
        return
    if step.moved_s:
        why = f"it went on by {span(step.moved_s)} in the last {len(step.behind_s)} batches: the event times are old"
    else:
        why = "it stands still: event times do not go on, or one side of a join brings nothing"
    yield Finding(
        "watermark-behind",
        "warning",
        f"the watermark of '{step.view}' is {span(recent[-1])} behind the clock",
        (f"{span(expected)} would be as the spec and the lag have it", why),
        f"look at the event times of the records (`time` of '{step.view}'): a clock or a time zone that is wrong, a "
        "producer that sends old records, a topic with nothing new",
        {"view": step.view, "behind_s": recent[-1], "expected_s": expected},
    )


def _away(seconds: float) -> str:
    if seconds >= 10 * _YEAR_S:
        return f"{seconds / _YEAR_S:,.0f} years"
    return f"{seconds / _DAY_S:,.0f} days" if seconds >= 2 * _DAY_S else span(seconds)
