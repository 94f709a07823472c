"""One checkpoint, one mode: a pipeline that was begun in real-time mode goes on in it, and no other one does.

The two write offsets at other moments (real-time mode when a batch ends, the other before it begins), and say other
things in the ledger. Nobody has shown that one can go on where the other was cut off, so it is refused.
"""

from __future__ import annotations

from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointForeign, NotInRealTime
from penstock.spec.model import Pipeline
from penstock.spec.real_time import WORD, batch_of


def is_real_time(home: Home) -> bool | None:
    """In which mode this checkpoint was made; None where there is none yet."""
    last = Ledger(home.ledger).last_batch()
    if last is not None:
        return last.real_time
    if SparkLog(home.spark).query_id() is None:
        return None
    said = remembered.read(home)
    return said is not None and said.trigger == WORD


def mendable(home: Home) -> bool:
    """Whether the newest batch was committed in real-time mode just before its ledger entry could be written: the next
    start writes it."""
    last, committed = Ledger(home.ledger).last_batch(), SparkLog(home.spark).committed()
    behind = 0 if last is None else last.batch + 1
    return committed == behind and is_real_time(home) is True


def check(home: Home, pipeline: Pipeline) -> None:
    """Called once per start and by `plan`. Raises CheckpointForeign."""
    before, now = is_real_time(home), batch_of(pipeline.trigger) is not None
    if before is None or before == now:
        return
    was, becomes = ("real-time", "ordinary batches") if before else ("ordinary batches", "real-time")
    raise CheckpointForeign(
        f"the checkpoint in {home.path} was made in {was} mode, and the spec now asks for {becomes}",
        cause="the two write down offsets at different moments; going on could lose or repeat records unseen",
        next_command="bring `trigger` back to what it was; or give the pipeline a new `checkpoint:`, with `start:` at "
        "the offsets of `penstock checkpoint show`",
    )


def require_ledger(pipeline: Pipeline, command: str) -> None:
    """For commands that prove something from the ledger of the stream."""
    if batch_of(pipeline.trigger) is not None:
        raise NotInRealTime(
            f"`penstock {command}` has nothing to say about a pipeline in real-time mode",
            cause="it sends records at least once, before their batch ends: what a sink holds cannot be held against "
            "the ledger, because records may be there twice",
            next_command="penstock lag FILE, penstock checkpoint show FILE and penstock dlq stats FILE work as ever",
        )
