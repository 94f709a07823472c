"""Rules of `doctor` about event time: rows that come too late for a step, and a watermark that lags behind the clock.

The first loses rows from windows, joins and keys, the second keeps their results back. Neither makes a pipeline slow,
so no other rule of `observe.doctor` sees them.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observe.facts import Facts, Finding
from penstock.spec.duration import span

_MANY = 0.01  # of the rows that came: so many are no stragglers
_BATCHES = 3
_LONG_S = 600.0  # behind what is asked for: less than that is the pace of batches


def late(facts: Facts) -> Iterator[Finding]:
    step = facts.timed
    if step is None or not step.late:
        return
    share = step.late / max(step.came, 1)
    allowed = f"it waits for rows that are {span(step.late_after_s)} behind the newest" if step.late_after_s else ""
    sinks = " and ".join(f"a sink `from: {view}`" for view in step.unread)
    yield Finding(
        "late-records",
        "warning" if share >= _MANY else "note",
        f"{step.late:,} of {step.came:,} rows came too late for '{step.view}' ({share:.1%})",
        tuple(filter(None, ("they are in no window, pair or key: what they belong to was closed", allowed))),
        f"raise `late_after` (`within`) of '{step.view}'" + (f"; to keep them: {sinks}" if sinks else ""),
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
