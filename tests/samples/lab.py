"""A broker, a registry, and what samples of every format share."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import strategies as st

from penstock.decode.formats import Place, Prepared, prepare
from penstock.kafka import admin, connection
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry
from penstock.spec.model import TopicSettings

Pair = tuple[Any, Any]
"""What is given to a serializer, and what decode must make of it."""


UTC = datetime.UTC
OTHER_JSON = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {}}}'
HEADER = 5  # the magic byte and the schema id


class Wire:
    """One topic. What is sent comes back as the broker has it, in the order it was sent."""

    def __init__(self, servers: str) -> None:
        self.topic = f"random-{uuid.uuid4().hex[:8]}"
        config = connection.connect_to(servers)
        admin.create_missing(config, {self.topic: TopicSettings(partitions=1)})
        self.producer = connection.producer(config, linger_ms=0)
        self.consumer = connection.consumer(
            {**config, "group.id": self.topic, "enable.auto.commit": "false", "fetch.wait.max.ms": "50"}
        )
        self.consumer.assign([TopicPartition(self.topic, 0, 0)])

    def through(self, values: list[bytes]) -> list[bytes]:
        example = uuid.uuid4().hex.encode()
        for value in values:
            self.producer.produce(self.topic, value, example)
        assert self.producer.flush(30) == 0
        found: list[bytes] = []
        while len(found) < len(values):
            message = self.consumer.poll(30)
            assert message is not None and message.error() is None, message and message.error()
            if message.key() == example:  # others are of an example that failed before it was read
                found.append(message.value() or b"")
        assert found == values
        return found


class Lab:
    def __init__(self, servers: str, url: str) -> None:
        self.servers = servers
        self.client = SchemaRegistryClient({"url": url})
        self.registry = SchemaRegistry(RegistrySettings(url=url))
        self.wires: dict[str, Wire] = {}
        # Of each kind a schema that records of the other kinds can name by mistake.
        self.of_kind = {
            "avro": self.registry.register(f"other-{uuid.uuid4().hex}", "AVRO", '"string"'),
            "json": self.registry.register(f"other-{uuid.uuid4().hex}", "JSON", OTHER_JSON),
            "protobuf": self.registry.register(
                f"other-{uuid.uuid4().hex}", "PROTOBUF", 'syntax = "proto3"; message M { int32 a = 1; }'
            ),
        }

    def wire(self, kind: str) -> Wire:
        if kind not in self.wires:
            self.wires[kind] = Wire(self.servers)
        return self.wires[kind]

    def prepared(self, how: Any, subject: str | None = None) -> Prepared:
        """As a pipeline makes a format ready whose reader schema is the newest of a subject."""
        return prepare(
            how, Place(Path(), subject, lambda s, *_: self.registry.latest(s).schema, lambda: self.registry.by_id)
        )


@dataclass
class Sample:
    """Records of one random schema as a serializer wrote them, and what is known of them without our decoder."""

    kind: str
    prepared: Prepared
    values: list[bytes]
    rows: list[dict[str, Any]]
    holds: Callable[[dict[str, Any]], bool]  # whether a row is one of the schema
    header: int = 0  # bytes before the record itself
    parses: Callable[[bytes], bool] = field(default=lambda _: True)  # False where no reader could read these bytes
    at: int = 0  # Protobuf: the place of the message in its file


def id_in(value: bytes) -> int | None:
    return int.from_bytes(value[1:HEADER], "big", signed=True) if len(value) >= HEADER and value[0] == 0 else None


aware = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(
        datetime.datetime(1900, 1, 1),
        datetime.datetime(2100, 1, 1),
        timezones=st.integers(-14 * 60, 14 * 60).map(lambda m: datetime.timezone(datetime.timedelta(minutes=m))),
    ),
)


def named(name: str, logical: str) -> dict[str, Any]:
    return {"type": name, "logicalType": logical}


def twice(value: Any) -> Pair:
    return value, value


def unzipped(pairs: list[Pair]) -> Pair:
    return [given for given, _ in pairs], [expected for _, expected in pairs]


def unzipped_dict(pairs: dict[str, Pair]) -> Pair:
    return {k: given for k, (given, _) in pairs.items()}, {k: expected for k, (_, expected) in pairs.items()}


def in_subject(subject: str) -> dict[str, Any]:
    return {"subject.name.strategy": lambda _context, _name: subject}


def serialized(serialize: Any, given: list[Any]) -> list[bytes]:
    return [serialize(value, SerializationContext("any", MessageField.VALUE)) for value in given]
