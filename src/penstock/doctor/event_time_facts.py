"""What the ledger says of event time, for `doctor`: of the first stateful step, which alone can miss rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from penstock.checkpoint.ledger import Entry
from penstock.doctor.event_time import FAST_CLOCK_S
from penstock.doctor.facts import Timed
from penstock.spec.stateful import sides
from penstock.spec.stateful_check import late_view_names, reads
from penstock.spec.steps import Step, stateful_steps


def timed(
    steps: Sequence[Step],
    entries: Sequence[Entry],
    written: Collection[str] = (),
    *,
    watermark_ms: int = 0,
    now_s: float = 0.0,
    earlier: Sequence[Entry] = (),
) -> Timed | None:
    """None for a pipeline that keeps no state. `written`: the views that sinks read. `watermark_ms`: that of the next
    batch, 0 where nobody knows. `earlier`: the batches before these."""
    step = next(iter(stateful_steps(list(steps))), None)
    if step is None or step.stateful is None:
        return None
    counts = [(entry, entry.stateful[step.view]) for entry in entries if step.view in entry.stateful]
    # Before there is a watermark it is 0; a batch without records says nothing of when records come.
    known = [(entry, count.watermark / 1000) for entry, count in counts if count.watermark and entry.read]
    allowed = [each.late_after.total_seconds() for each in sides(step.stateful) if each.late_after is not None]
    ahead_s = max(0.0, watermark_ms / 1000 - now_s)
    mover = _mover(step.view, [*earlier, *entries]) if ahead_s > FAST_CLOCK_S else None
    bounds = [each.ahead.total_seconds() for each in sides(step.stateful) if each.ahead is not None]
    return Timed(
        step.view,
        came=sum(count.came or 0 for _, count in counts),
        late=sum(count.late for _, count in counts),
        late_after_s=max(allowed, default=None),
        behind_s=[datetime.fromisoformat(entry.time).timestamp() - watermark for entry, watermark in known],
        moved_s=known[-1][1] - known[0][1] if known else 0.0,
        unread=[
            view
            for view in late_view_names([step])
            if view not in written and not any(reads(each, view) for each in steps)
        ],
        watermark_s=watermark_ms / 1000,
        ahead_s=ahead_s,
        bound_s=max(bounds, default=None),
        moved_by=mover.batch if mover else None,
        moved_over=[str(r) for r in mover.ranges if len(r)] if mover else [],
    )


def _mover(view: str, entries: Sequence[Entry]) -> Entry | None:
    """The batch that a watermark that is ahead of the clock now was not ahead before."""
    for entry in reversed(entries):
        count = entry.stateful.get(view)
        if count is None or count.watermark / 1000 - datetime.fromisoformat(entry.time).timestamp() <= FAST_CLOCK_S:
            return entry if count else None
    return None
