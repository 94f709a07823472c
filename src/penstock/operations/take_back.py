"""Taking back a batch that is planned and not committed, where nobody holds any of it: its offsets come anew (C2).

A stop often leaves one behind, planned before it was asked for. One that reads a topic that is gone no run can end.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.files import checksum_of, sync_directory
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.errors import SeekRefused
from penstock.operations.refusal import NEW_TABLE
from penstock.plan import build
from penstock.record import Batch
from penstock.spec.model import Pipeline

_TO_ITS_END = "run it to its end first: penstock run FILE, stopped after a batch"


def take_back(pipeline: Pipeline, home: Home, batch: int, gone: Mapping[str, str]) -> None:
    """`gone`: topics that were made again. Raises SeekRefused where a sink or the dead letters hold some of the batch.
    With the lock held."""
    log = SparkLog(home.spark)
    ranges = tuple(r for r in log.ranges(batch) if r.topic not in gone)
    holders = build.holders(pipeline, Batch(pipeline.name, log.query_id() or "", batch, ranges))
    if holders:
        cause, instead = "what is written of it would be written a second time by the next one", _TO_ITS_END
        if gone:
            cause, instead = f"it reads a topic that is gone, so that no run can end it, and {cause}", NEW_TABLE
        raise SeekRefused(
            f"batch {batch} is planned and not committed, and {build.hold_some(holders)}",
            cause=cause,
            next_command=instead,
            facts={"alternatives": [instead], "batch": batch, "holders": holders},
        )
    file = home.spark / "offsets" / str(batch)
    checksum_of(file).unlink(missing_ok=True)
    file.unlink()
    sync_directory(file.parent)
