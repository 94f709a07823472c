"""What a consumer that is not ours sees in a topic with read_committed: the judge of everything written to Kafka."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_QUIET_S = 2


@dataclass(frozen=True)
class Seen:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def origin(self) -> tuple[str, int, int]:
        said = dict(self.headers)["penstock.origin"]
        assert said is not None
        topic, partition, offset = said.decode().rsplit("/", 2)
        return topic, int(partition), int(offset)


def hidden(bootstrap: str, *topics: str) -> bool:
    """Whether some transaction in these topics has not ended. Kafka shows a partition up to the first record of the
    oldest one that is open, so that records which were committed behind it are not seen yet either."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    there = admin.list_topics(timeout=10).topics
    asked = {TopicPartition(t, p): OffsetSpec.latest() for t in topics for p in there[t].partitions}
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        found = admin.list_offsets(asked, isolation_level=level)
        ends.append({(place.topic, place.partition): each.result(10).offset for place, each in found.items()})
    return ends[0] != ends[1]


def committed(
    bootstrap: str, *topics: str, to_the_end: bool = True, within: float = 60, isolation: str = "read_committed"
) -> list[Seen]:
    """Every visible record. Fails when a transaction is left open, so that the end cannot be reached; without
    `to_the_end`, in the middle of a crash, it is whatever can be read now. With the isolation "read_uncommitted" also
    what was given up."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "the-judge",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    found: list[Seen] = []
    deadline = time.monotonic() + within
    try:
        left: dict[tuple[str, int], int] = {}
        for topic in topics:
            for number in consumer.list_topics(topic, 10).topics[topic].partitions:
                place = TopicPartition(topic, number, OFFSET_BEGINNING)
                low, high = consumer.get_watermark_offsets(place, 10)
                if high > low:
                    left[topic, number] = high
        consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in left])
        quiet_since = time.monotonic()
        while left:
            assert time.monotonic() < deadline, f"not readable to the end: {left}; a transaction is open"
            message: Any = consumer.poll(0.2)
            if message is not None:
                assert not message.error(), message.error()
                headers = tuple((name, value) for name, value in message.headers() or [])
                found.append(
                    Seen(
                        message.topic(), message.partition(), message.offset(), message.key(), message.value(), headers
                    )
                )
                quiet_since = time.monotonic()
                continue
            if not to_the_end and time.monotonic() - quiet_since > _QUIET_S:
                break
            for place in consumer.position([TopicPartition(t, p) for t, p in left]):
                if place.offset >= left[place.topic, place.partition]:
                    del left[place.topic, place.partition]
    finally:
        consumer.close()
    return found
