"""A pipeline from one topic into others, for tests of Kafka as a sink."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.committed import Seen, committed
from tests.payments import Payments

SCHEMA = {
    "fields": {
        "id": {"type": "bigint", "required": True},
        "who": "string",
        "amount": "decimal(12,2)",
        "at": "timestamp",
        "tags": "array<string>",
    }
}


class Forward:
    """A pipeline from one topic into others, and what arrives there."""

    def __init__(self, payments: Payments) -> None:
        self.payments = payments
        self.out = f"{payments.topic}-out"
        payments.create(self.out, 2)
        payments.spec["source"]["topics"] = {
            payments.topic: {"view": "events", "value": {"format": "json", "schema": SCHEMA}}
        }
        payments.spec["contract"], payments.spec["transform"], payments.spec["sinks"] = {}, [], {}

    def to(self, name: str = "out", from_: str = "events", where: str | None = None, **kafka: Any) -> None:
        said = {"from": from_, "kafka": {"topic": self.out, **kafka}}
        self.payments.spec["sinks"][name] = said if where is None else {**said, "where": where}

    def send(self, *events: Any) -> None:
        for number, event in enumerate(events):
            value = json.dumps(event).encode() if isinstance(event, dict) else event
            self.payments.send(value, key=str(number % 7).encode(), headers=[("trace", str(number).encode())])

    def seen(self, *topics: str) -> list[Seen]:
        return committed(self.payments.bootstrap, *(topics or (self.out,)))

    def offsets_of_groups(self) -> dict[tuple[str, int], int]:
        """What any tool reads from the sink's group."""
        query = json.loads((self.payments.home / "spark" / "metadata").read_text())["id"]
        consumer = Consumer(
            {"bootstrap.servers": self.payments.bootstrap, "group.id": f"penstock.payments.{query}.out"}
        )
        places = [TopicPartition(self.payments.topic, p) for p in range(self.payments.partitions)]
        found = {(m.topic, m.partition): m.offset for m in consumer.committed(places, 10)}
        consumer.close()
        return found


def event(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "who": f"w{number}", "amount": "1.50", "at": "2026-01-02T03:04:05.678901Z", **more}
