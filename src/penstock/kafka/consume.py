"""Reading a topic from end to end as a committed reader sees it, without a group and without leaving a trace."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import KafkaUnreachable
from penstock.kafka import connection

if TYPE_CHECKING:
    from confluent_kafka import Message

_IDLE_LIMIT = 30  # seconds without a record before the broker counts as gone
_AT_ONCE = 10_000

READER = {
    "group.id": "penstock.reader",  # the client asks for one; it is never joined and nothing is committed
    "enable.auto.commit": "false",
    "isolation.level": "read_committed",
}


def visible(
    config: dict[str, str], topic: str, partitions: int, ranges: dict[int, tuple[int, int]] | None = None
) -> Iterator[Message]:
    """Every committed record of `topic`, or of the offset ranges given per partition.

    A range ends where the consumer's position has reached its end: the last offsets may be markers, aborted
    records or compaction gaps, and no record will ever come for them.
    """
    from confluent_kafka import KafkaError, TopicPartition

    consumer = connection.consumer({**config, **READER, "enable.partition.eof": "true", "auto.offset.reset": "error"})
    try:
        spans = _spans(consumer, topic, ranges if ranges is not None else dict.fromkeys(range(partitions), None))
        consumer.assign([TopicPartition(topic, p, first) for p, (first, _) in spans.items()])
        ends = {p: end for p, (_, end) in spans.items()}
        left = {p: end - first for p, (first, end) in spans.items()}
        heard = time.monotonic()
        while ends:
            # Not more than can come: the client would wait for the rest until the time-out.
            messages = consumer.consume(min(_AT_ONCE, sum(left.values())), timeout=1.0)
            found = [message for message in messages if message.error() is None]
            heard = time.monotonic() if found else heard
            if time.monotonic() - heard > _IDLE_LIMIT:
                raise _stopped(topic, f"no data and no end for {_IDLE_LIMIT} s; a transaction may be open")
            for message in found:
                partition, offset = position(message)
                if partition in ends and offset < ends[partition]:
                    yield message
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # Below the end a transaction is still open; what it hides may come yet.
                    partition, offset = position(message)
                    if partition in ends and offset >= ends[partition]:
                        del ends[partition], left[partition]
                elif error is not None and not passes(error):
                    raise _stopped(topic, error.str())
            for at in consumer.position([TopicPartition(topic, p) for p in ends]):
                if at.offset >= ends[at.partition]:
                    del ends[at.partition], left[at.partition]
                    consumer.pause([TopicPartition(topic, at.partition)])
                elif at.offset >= 0:
                    left[at.partition] = ends[at.partition] - at.offset
    finally:
        consumer.close()


def _spans(consumer: Any, topic: str, asked: Mapping[int, tuple[int, int] | None]) -> dict[int, tuple[int, int]]:
    """Where each partition begins and ends that has something of what was asked for; None: all of it."""
    from confluent_kafka import KafkaException, TopicPartition

    spans = {}
    for p, wanted in asked.items():
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_IDLE_LIMIT)
        except KafkaException as error:
            raise _stopped(topic, error.args[0].str()) from None
        first, end = wanted or (low, high)
        if min(end, high) > max(first, low):
            spans[p] = (max(first, low), min(end, high))
    return spans


def passes(error: Any) -> bool:
    from confluent_kafka import KafkaError

    away = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)
    return bool(error.retriable()) or error.code() in away


def _stopped(topic: str, cause: str) -> KafkaUnreachable:
    return KafkaUnreachable(f"topic {topic} stopped answering", cause=cause, next_command="penstock ps")


def position(message: Message) -> tuple[int, int]:
    """Partition and offset of a record that was read."""
    return _known(message.partition()), _known(message.offset())


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """In the order they were written, with names that repeat."""
    return message.headers() or []  # type: ignore[return-value]  # typed for the producer's side, which takes more


def _known(value: int | None) -> int:
    assert value is not None  # only a record that was not sent yet has none
    return value
