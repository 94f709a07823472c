"""A pipeline over topics of every format, with records that somebody has damaged: each is a row or a dead letter."""

from __future__ import annotations

import datetime
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.protobuf.message_factory import GetMessageClass
from test_formats import Shop
from tests.payments import Payments
from tests.samples.damage import CLASSES, EXPECTED, FROM_REGISTRY, damaged, must_fail, ways_of
from tests.samples.lab import HEADER, UTC, Lab, Sample, id_in, named
from tests.samples.plain import csv_line, is_line, is_text
from tests.samples.protobuf import can_parse

from penstock import record
from penstock.kafka import connection
from penstock.local.registry import LocalRegistry
from penstock.spec.formats import BytesFormat

sys.path.append(str(Path(__file__).parent.parent / "unit" / "decode"))

import protobuf_strategies as proto

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": named("long", "timestamp-micros")},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
message Customer { string name = 1; }
message Order { int64 id = 1; Customer customer = 2; repeated string tags = 3; optional string note = 4; }
"""
JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "at"],
}
CSV_FIELDS = {
    "id": {"type": "bigint", "required": True},
    "total": "decimal(12,2)",
    "at": {"type": "timestamp", "required": True},
    "note": "string",
}
SENT = 200  # to each topic


@dataclass
class Order:
    """What each format is told, in its own words."""

    id: int
    total: Decimal
    at: datetime.datetime
    note: str | None
    tags: list[str]

    @staticmethod
    def any(number: int, chance: random.Random) -> Order:
        at = datetime.datetime(2026, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=chance.randrange(10**15))
        note = chance.choice([None, "n", 'a "quoted", one', "grüße\n😀"])
        tags = [chance.choice(["x", "", "ÿ"]) for _ in range(chance.randrange(4))]
        return Order(number, Decimal(chance.randrange(10**10)).scaleb(-2), at, note, tags)


@dataclass
class Topic:
    name: str
    sample: Sample  # its values are those that were sent, in their order
    fates: list[tuple[str, bytes]]  # how each was damaged, and what it was before


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [7])
def test_a_pipeline_over_topics_a_third_of_which_is_damaged_ends_and_accounts_for_all(
    payments: Payments, registry: LocalRegistry, lab: Lab, seed: int
) -> None:
    chance = random.Random(seed)
    shop = Shop(payments, registry)
    orders = [Order.any(i, chance) for i in range(SENT)]
    topics = {kind: topic_of(kind, shop, lab, orders) for kind in ("json", "avro", "protobuf", "csv", "string")}
    sent = {topic.name: send(topic, lab, chance) for topic in topics.values()}
    payments.run()

    dead = {letter.position: letter for letter in payments.dead()}
    assert len(dead) == len(payments.dead())
    for kind, topic in topics.items():
        found = rows_of_table(payments.directory / kind)
        table = {(r["_kafka"]["topic"], r["_kafka"]["partition"], r["_kafka"]["offset"]): r for r in found}
        letters = {at: letter for at, letter in dead.items() if letter.topic == topic.name}
        assert len(found) == len(table)
        assert not table.keys() & letters.keys()
        assert table.keys() | letters.keys() == set(sent[topic.name])
        assert len(letters) >= SENT // 10
        for at, number in sent[topic.name].items():
            how, original = topic.fates[number]
            value = topic.sample.values[number]
            if at in table:
                assert not (how and must_fail(how, value, original, topic.sample)), (kind, how, value)
                row = {name: found for name, found in table[at].items() if name != record.KAFKA}
                assert topic.sample.holds(row)
                assert how or proto.same(row, topic.sample.rows[number])
            else:
                letter = letters[at]
                assert how, (kind, value, letter)
                assert letter.error_class in EXPECTED.get(how, CLASSES)
                assert 0 < len(letter.reason) <= record.REASON_LIMIT
                assert (letter.stage, letter.value, letter.key) == (record.DECODE, value, str(number).encode())
                named_id = id_in(value) if kind in FROM_REGISTRY else None
                assert letter.schema_id == named_id or (named_id is not None and named_id < 0)
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == SENT * len(topics)
    assert report.dead == len(dead)
    assert sum(report.sinks.values()) == report.records - report.dead


def rows_of_table(path: Path) -> list[dict[str, Any]]:
    """A damaged time may be of a year that nanoseconds cannot tell: the table must be readable all the same."""
    return list(DeltaTable(str(path)).to_pyarrow_dataset().to_table().to_pylist())


def topic_of(kind: str, shop: Shop, lab: Lab, orders: list[Order]) -> Topic:
    how = {"csv": {"schema": {"fields": CSV_FIELDS}}, "protobuf": {"message": "shop.Order"}}.get(kind, {})
    name = shop.topic(kind, {"format": kind, **how})
    context = SerializationContext(name, MessageField.VALUE)
    serialize, rows_of, holds, more = serializer_of(kind, shop)
    values = [serialize(order, context) for order in orders]
    sample = Sample(kind, lab.prepared(BytesFormat(format="bytes")), values, list(map(rows_of, orders)), holds, **more)
    return Topic(name, sample, [("", value) for value in values])


def serializer_of(kind: str, shop: Shop) -> tuple[Any, Any, Any, dict[str, Any]]:
    """What makes a record of an order; the row it is; whether a row is one; and more about the records."""

    def has(**types: type | tuple[type, ...]) -> Callable[[dict[str, Any]], bool]:
        return lambda row: row.keys() == types.keys() and all(isinstance(row[k], t) for k, t in types.items())

    none, time = type(None), datetime.datetime
    match kind:
        case "avro":
            return (
                AvroSerializer(shop.client, json.dumps(AVRO), to_dict=lambda order, _: vars(order)),
                vars,
                has(id=int, total=Decimal, at=time, note=(str, none), tags=list),
                {"header": HEADER},
            )
        case "protobuf":
            from penstock.registry.protobuf import message

            order_class = GetMessageClass(message.from_text(PROTO, "shop.Order").descriptor())
            serialize = ProtobufSerializer(order_class, shop.client)

            def made(order: Order) -> Any:
                return order_class(id=order.id, customer={"name": str(order.total)}, tags=order.tags, note=order.note)

            return (
                lambda order, context: serialize(made(order), context),
                lambda o: {"id": o.id, "customer": {"name": str(o.total)}, "tags": o.tags, "note": o.note},
                has(id=int, customer=(dict, none), tags=list, note=(str, none)),
                {"header": HEADER + 2, "at": 1, "parses": lambda body: can_parse(order_class, body)},
            )
        case "json":
            return (
                JSONSerializer(
                    json.dumps(JSON_SCHEMA),
                    shop.client,
                    to_dict=lambda o, _: {"id": o.id, "at": o.at.isoformat(), "note": o.note, "tags": o.tags},
                ),
                lambda o: {"id": o.id, "at": o.at, "note": o.note, "tags": o.tags},
                has(id=int, at=time, note=(str, none), tags=(list, none)),
                {"header": HEADER},
            )
        case "csv":
            return (
                lambda o, _: csv_line([o.id, o.total, o.at.isoformat(), o.note]),
                lambda o: {"id": o.id, "total": o.total, "at": o.at, "note": o.note},
                has(id=int, total=(Decimal, none), at=time, note=(str, none)),
                {"parses": lambda value: is_line(value, len(CSV_FIELDS), ",")},
            )
    return (
        lambda o, _: f"{o.id} {o.note}".encode(),
        lambda o: {"value": f"{o.id} {o.note}"},
        has(value=str),
        {"parses": is_text},
    )


def send(topic: Topic, lab: Lab, chance: random.Random) -> dict[tuple[str, int, int], int]:
    """Damage a third and send all of them. Returns which one is where."""
    sample, found = topic.sample, {}
    for number, value in enumerate(sample.values):
        if chance.randrange(3) == 0:
            how = chance.choice(ways_of(sample.kind))
            topic.fates[number] = (how, value)
            sample.values[number] = damaged(how, value, sample, chance, lab.of_kind)

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        found[message.topic(), message.partition(), message.offset()] = int(message.key())

    producer = connection.producer(connection.connect_to(lab.servers))
    for number, value in enumerate(sample.values):
        producer.produce(topic.name, value, str(number), on_delivery=delivered)
    assert producer.flush(30) == 0
    assert len(found) == SENT
    return found
