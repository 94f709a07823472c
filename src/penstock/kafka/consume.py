"""Reading a topic from end to end as a committed reader sees it, without a group and without leaving a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import KafkaUnreachable
from penstock.kafka import connection

if TYPE_CHECKING:
    from confluent_kafka import Message

_IDLE_LIMIT = 30  # empty polls of a second each before the broker counts as gone
_AT_ONCE = 10_000


def visible(
    config: dict[str, str], topic: str, partitions: int, ranges: dict[int, tuple[int, int]] | None = None
) -> Iterator[Message]:
    """Every committed record of `topic`, or of the offset ranges given per partition.

    A range ends where the consumer's position has reached its end: the last offsets may be markers, aborted
    records or compaction gaps, and no record will ever come for them.
    """
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

    consumer = connection.consumer(
        {
            **config,
            "group.id": "penstock.reader",  # the client asks for one; it is never joined and nothing is committed
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
    )
    try:
        ends: dict[int, int] = {}
        start: list[Any] = []
        for p in ranges if ranges is not None else range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)
            first, end = ranges[p] if ranges is not None else (low, high)
            if min(end, high) > max(first, low):
                ends[p] = min(end, high)
                start.append(TopicPartition(topic, p, max(first, low) if ranges is not None else OFFSET_BEGINNING))
        consumer.assign(start)
        idle = 0
        while ends:
            messages = consumer.consume(_AT_ONCE, timeout=1.0)
            idle = 0 if messages else idle + 1
            if idle > _IDLE_LIMIT:
                cause = "no data and no end for 30 s; a transaction may be open"
                raise KafkaUnreachable(f"topic {topic} stopped answering", cause=cause)
            for message in messages:
                error, partition, offset = message.error(), _known(message.partition()), message.offset()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # Below the end a transaction is still open; what it hides may come yet.
                    if partition in ends and _known(offset) >= ends[partition]:
                        del ends[partition]
                elif error is not None:
                    raise KafkaException(error)
                elif partition in ends and _known(offset) < ends[partition]:
                    yield message
            for position in consumer.position([TopicPartition(topic, p) for p in ends]):
                if position.offset >= ends[position.partition]:
                    del ends[position.partition]
                    consumer.pause([TopicPartition(topic, position.partition)])
    finally:
        consumer.close()


def position(message: Message) -> tuple[int, int]:
    """Partition and offset of a record that was read."""
    return _known(message.partition()), _known(message.offset())


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """In the order they were written, with names that repeat."""
    return message.headers() or []  # type: ignore[return-value]  # typed for the producer's side, which takes more


def _known(value: int | None) -> int:
    assert value is not None  # only a record that was not sent yet has none
    return value
