"""The batch without records that a start has to plan, because the engine forgets it.

Behind the last records the engine runs a batch without any: it closes what the new watermark has passed, and fires
timers. Whether one is due it asks the batch that it ran before, in memory. A query that was just started has none: what
was due when the one before it ended would be withheld until a record comes, which may be never. So a start plans this
batch as the engine would have, and the engine takes it for one that it planned before a crash.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.checkpoint.files import put
from penstock.checkpoint.log import SparkLog, with_times
from penstock.spec.stateful import State
from penstock.spec.steps import Step


def by_clock(keeping: Sequence[Step]) -> bool:
    """Whether timers of the clock are among the state."""
    return any(isinstance(step.stateful, State) and step.stateful.timers == "processing" for step in keeping)


def plan(log: SparkLog, keeping: Sequence[Step]) -> None:
    """Called before each start of the query, with the lock held. `keeping`: the steps that keep state.

    Where another batch is planned already that one does it. After such a batch the watermark stands still, and nothing
    is due until records come; but for timers of the clock, which are looked at with every start."""
    last = log.committed()
    if last is None or log.planned() != last:
        return
    before, watermark = log.watermark(last), log.next_watermark(last)
    closes = watermark > before and any(step.stateful.drops_late for step in keeping if step.stateful)
    if closes or by_clock(keeping):
        offsets = log.path / "offsets"
        like = (offsets / str(last)).read_text()
        put(offsets / str(last + 1), with_times(like, max(before, watermark), round(time.time() * 1000)).encode())
