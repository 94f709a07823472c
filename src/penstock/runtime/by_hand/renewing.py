"""Going on with a topic that was deleted and created again: what a seek has to do beside moving the positions (S8).

The operator says that the new topic is the one to read, and from where; the ledger then knows its id. Two things speak
of offsets of the old one, and have to be brought in line first:

    1. Marks of Kafka sinks, which are offsets of the topic, or stand beside it. Kafka forgets them with the topic, but
       later: until then records of the new one would be taken for sent.
    2. A batch that is planned and not committed. It covers records that are gone, so that no run can end it. Where
       nobody holds any of it, it is taken back; what it had of other topics comes with the next one.

A crash after either leaves what the same command finds again, and does again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.checkpoint.files import checksum_of, sync_directory
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.errors import SeekRefused
from penstock.kafka import admin, transaction
from penstock.kafka.connection import client_config
from penstock.kafka.transaction import Mark
from penstock.record import Batch
from penstock.runtime import build
from penstock.runtime.by_hand.refusal import NEW_TABLE, Move
from penstock.spec.model import Pipeline

_BY_BATCH = ".batches"  # groups whose marks are numbers of batches (`sink.kafka.exactly_once`)
_LETTERS = ".dead-letters"  # marks of dead letters stand beside their own topics


def set_marks(pipeline: Pipeline, query: str, written: int, moves: Sequence[Move]) -> None:
    """Step 1. `written`: the newest batch that sinks hold; `moves`: those of the topics that were made again."""
    config, prefix = client_config(pipeline), f"penstock.{pipeline.name}.{query}."
    for group in admin.groups(config):
        if not group.startswith(prefix) or group.endswith(_LETTERS):
            continue
        by_batch = group.endswith(_BY_BATCH)
        marks = {(move.topic, move.partition): Mark(move.to) for move in moves if not by_batch}
        marks |= {(move.topic, 0): Mark(written + 1) for move in moves if by_batch}
        transaction.set_marks(config, group, marks)


def take_back(pipeline: Pipeline, home: Home, batch: int, renewed: Mapping[str, str]) -> None:
    """Step 2. Raises SeekRefused where a sink or the dead letters hold some of the batch."""
    log = SparkLog(home.spark)
    ranges = tuple(r for r in log.ranges(batch) if r.topic not in renewed)
    planned = Batch(pipeline.name, log.query_id() or "", batch, ranges)
    holders = [f"sink '{outlet.sink.name}'" for outlet in build.outlets(pipeline) if outlet.sink.holds(planned)]
    if build.dead_letters(pipeline).written(planned) is not None:
        holders.append("the dead letters")
    if holders:
        raise SeekRefused(
            f"batch {batch} is planned and not committed, and {' and '.join(holders)} "
            f"hold{'s' * (len(holders) == 1)} some of it",
            cause="it reads a topic that is gone, so that it cannot be run to its end, and what is written of it would "
            "be written a second time by the next one",
            next_command=NEW_TABLE,
            facts={"alternatives": [NEW_TABLE], "batch": batch},
        )
    file = home.spark / "offsets" / str(batch)
    checksum_of(file).unlink(missing_ok=True)
    file.unlink()
    sync_directory(file.parent)
