"""Going on with a topic that was deleted and created again: what a seek has to do beside moving the positions (S8).

The operator says that the new topic is the one to read, and from where; the ledger then knows its id. Marks of Kafka
sinks are offsets of the topic, or stand beside it. Kafka forgets them with the topic, but later: until then records of
the new one would be taken for sent. So they are set to where the new topic begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kafka import admin, transaction
from penstock.kafka.connection import client_config
from penstock.kafka.transaction import Mark
from penstock.operations.refusal import Move
from penstock.spec.model import Pipeline

_BY_BATCH = ".batches"  # groups whose marks are numbers of batches (`sinks.kafka.exactly_once`)
_LETTERS = ".dead-letters"  # marks of dead letters stand beside their own topics


def set_marks(pipeline: Pipeline, query: str, written: int, moves: Sequence[Move]) -> None:
    """`written`: the newest batch that sinks hold; `moves`: those of the topics that were made again."""
    config, prefix = client_config(pipeline), f"penstock.{pipeline.name}.{query}."
    for group in admin.groups(config):
        if not group.startswith(prefix) or group.endswith(_LETTERS):
            continue
        by_batch = group.endswith(_BY_BATCH)
        marks = {(move.topic, move.partition): Mark(move.to) for move in moves if not by_batch}
        marks |= {(move.topic, 0): Mark(written + 1) for move in moves if by_batch}
        transaction.set_marks(config, group, marks)
