"""The time of the record at a position: how far behind a reader is, in seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import pairwise

from penstock.kafka import connection
from penstock.kafka.connection import Config
from penstock.kafka.consume import READER

Place = tuple[str, int]

_WITHIN_S = 2.0  # for the records to come


def times_at(config: Config, positions: Mapping[Place, int]) -> dict[Place, int]:
    """The timestamp (ms) of the first visible record at or after each position. Left out are partitions without one,
    and those that did not answer in time."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

    if not positions:
        return {}
    consumer = connection.consumer(
        {
            **config,
            **READER,
            "auto.offset.reset": "earliest",
            # One record of each is enough. But a broker sends whole batches, and one larger than this only where it
            # comes first in an answer: with too small a number it sends one partition at a time.
            "fetch.message.max.bytes": "131072",
            "queued.max.messages.kbytes": "65536",
            "fetch.wait.max.ms": "10",
        }
    )
    found: dict[Place, int] = {}
    deadline = time.monotonic() + _WITHIN_S
    try:
        consumer.assign([TopicPartition(topic, partition, at) for (topic, partition), at in positions.items()])
        while len(found) < len(positions) and (left := deadline - time.monotonic()) > 0:
            fresh: list[TopicPartition] = []
            for message in consumer.consume(1_000, timeout=min(left, 0.05)):
                topic, partition = message.topic(), message.partition()
                if message.error() is not None or topic is None or partition is None or (topic, partition) in found:
                    continue
                kind, at = message.timestamp()
                found[topic, partition] = -1 if kind == TIMESTAMP_NOT_AVAILABLE else at
                fresh.append(TopicPartition(topic, partition))
            if fresh:
                consumer.pause(fresh)  # nothing more of them
    finally:
        consumer.close()
    return {place: at for place, at in found.items() if at >= 0}


def estimated(at: int, known: Iterable[tuple[int, int]]) -> int | None:
    """A time for an offset between offsets whose times are known (offset, ms), in proportion; None outside of them."""
    pairs = sorted(set(known))
    for (low, began), (high, ended) in pairwise(pairs):
        if low <= at <= high and high > low:
            return began + (ended - began) * (at - low) // (high - low)
    return None
