"""Making a batch smaller that no driver survives (B4).

Spark runs a batch that is in its offset log with the same offsets until it could commit it. Where it never can, for
want of memory, the entry is rewritten to end earlier; what it leaves out comes with the batches after it. That is safe
only while nobody holds any of the batch: marks of sinks name batches, and with other offsets behind the same number
they would be taken for something they are not. So, with the lock of the checkpoint held:

    1. The batch must be planned, not committed, and not in the ledger.
    2. No sink holds any of it, and no dead letter of it is written; else nothing is changed, and the error says who.
    3. The old entry is copied beside it, synced. The new one takes its place by one rename.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import BEFORE_SPLIT, SparkLog, with_positions
from penstock.errors import BadArgument, BatchTooLarge, CheckpointForeign, counted
from penstock.lifecycle import preconditions
from penstock.lifecycle.realtime import same_mode
from penstock.observe.noted import note
from penstock.plan import build
from penstock.record import Batch, OffsetRange, ends_of
from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class Split:
    batch: int
    before: int  # offsets
    after: int
    ranges: list[OffsetRange]
    kept: Path  # the old entry


def split(pipeline: Pipeline, most: int | None = None) -> Split:
    """Let the next batch end earlier: after about `most` offsets, or half of what it has."""
    same_mode.require_ledger(pipeline, "split")
    home = Home.of(pipeline)
    with home.held():
        preconditions.check(home, pipeline.name, frozenset())
        log, attempts = SparkLog(home.spark), Attempts(home)
        batch = _batch(pipeline, log, attempts.batch)
        _require_untouched(pipeline, batch)
        whole = sum(map(len, batch.ranges))
        ranges = _shortened(batch.ranges, most or whole // 2)
        size = sum(map(len, ranges))
        if not 0 < size < whole:
            raise BadArgument(
                f"batch {batch.id} of {counted(whole, 'offset')} cannot be split to {most or whole // 2:,}",
                next_command="give the driver more memory: `spark.driver.memory` under `spark: conf:`"
                if whole <= 1
                else f"penstock split FILE --offsets {whole // 2}",
            )
        kept = _rewritten(home.spark / "offsets", batch.id, ranges)
        attempts.forgive()
        note(pipeline, "split", batch=batch.id, before=whole, after=size)
    return Split(batch.id, whole, size, ranges, kept)


def _batch(pipeline: Pipeline, log: SparkLog, unfinished: int | None) -> Batch:
    """Step 1."""
    if unfinished is None:
        pending = log.pending()
        why = f"batch {pending} is in the ledger: it lacks only Spark's commit, which the next run adds"
        raise BadArgument(
            "there is nothing to split",
            cause="no batch is planned that is not finished" if pending is None else why,
            next_command="penstock run FILE",
        )
    return Batch(pipeline.name, log.query_id() or "", unfinished, tuple(log.ranges(unfinished)))


def _require_untouched(pipeline: Pipeline, batch: Batch) -> None:
    """Step 2."""
    holders = build.holders(pipeline, batch)
    if holders:
        raise BatchTooLarge(
            f"batch {batch.id} cannot be split: {build.hold_some(holders)}",
            cause="what is written says which batch it is, and would be taken for the whole of a smaller one",
            next_command="give the driver more memory (`spark.driver.memory` under `spark: conf:`), then: "
            f"penstock run FILE --accept {BatchTooLarge.code}",
            facts={"batch": batch.id, "holders": holders},
        )


def _shortened(ranges: tuple[OffsetRange, ...], most: int) -> list[OffsetRange]:
    """Of each partition its share of `most`."""
    whole = sum(map(len, ranges))
    cut = [OffsetRange(r.topic, r.partition, r.start, r.start + len(r) * most // max(whole, 1)) for r in ranges]
    if not any(map(len, cut)) and most > 0:  # every share is below one offset: the longest gets one
        longest = max(range(len(ranges)), key=lambda at: len(ranges[at]))
        r = ranges[longest]
        cut[longest] = OffsetRange(r.topic, r.partition, r.start, min(r.start + 1, r.end))
    return cut


def _rewritten(directory: Path, batch: int, ranges: list[OffsetRange]) -> Path:
    """Step 3. A crash at any moment leaves the old entry or the new one."""
    file = directory / str(batch)
    text = file.read_text()
    lines = text.splitlines()
    if len(lines) != 3 or not isinstance(json.loads(lines[-1]), dict):
        raise CheckpointForeign(
            f"{file} is not an entry of the offset log as this version knows it",
            cause=f"it has {len(lines)} lines, not 3",
            next_command="run the version of Penstock that wrote it",
        )
    kept = next(path for n in count(1) if not (path := directory / f"{batch}.{BEFORE_SPLIT}-{n}").exists())
    put(kept, file.read_bytes())
    put(file, with_positions(text, ends_of(ranges)).encode())
    return kept
