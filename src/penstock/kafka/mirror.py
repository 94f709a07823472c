"""The pipeline's positions as offsets of an ordinary consumer group, so that every Kafka tool sees its lag (O2).

Spark never commits offsets to Kafka: its checkpoint owns them. The group is a copy for onlookers; nothing reads it
back, nobody joins it, and a pipeline whose copy cannot be written goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.kafka import connection
from penstock.kafka.transaction import said_by_kafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer


def group_of(pipeline: str) -> str:
    return f"penstock.{pipeline}"


class Mirror:
    """Holds one client, so that a copy costs one request."""

    def __init__(self, config: connection.Config, pipeline: str) -> None:
        self.group = group_of(pipeline)
        self._config = {**config, "group.id": self.group, "enable.auto.commit": "false"}
        self._consumer: Consumer | None = None

    def show(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Raises KafkaUnreachable, or whatever Kafka has against it."""
        from confluent_kafka import TopicPartition

        if not positions:
            return
        if self._consumer is None:
            self._consumer = connection.consumer(self._config)
        with said_by_kafka(f"the offsets of group '{self.group}' cannot be written"):
            self._consumer.commit(
                offsets=[TopicPartition(topic, partition, at) for (topic, partition), at in positions.items()],
                asynchronous=False,
            )

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
