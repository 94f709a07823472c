"""Every format from serializers we did not write, through real Kafka, a real registry and real Spark, into a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from google.protobuf.message_factory import GetMessageClass
from tests.payments import Heard, Payments

from penstock import record
from penstock.errors import RegistryUnreachable, RuleStopped
from penstock.lifecycle import stream
from penstock.local.registry import LocalRegistry
from penstock.registry.protobuf import message as protobuf_schema

pytestmark = pytest.mark.usefixtures("spark")

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
PROTO = """
syntax = "proto3";
package shop;
message Order { int64 id = 1; string note = 2; repeated string tags = 3; }
"""
JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}},
    "required": ["id"],
}


class Shop:
    """A pipeline over topics of any formats, each into a table of its own."""

    def __init__(self, payments: Payments, registry: LocalRegistry) -> None:
        self.payments = payments
        self.client = SchemaRegistryClient({"url": registry.url})
        payments.spec["registry"] = {"url": registry.url}
        payments.spec["source"]["topics"] = {}
        payments.spec["contract"], payments.spec["transform"], payments.spec["sinks"] = {}, [], {}
        payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}

    def topic(self, name: str, value: dict[str, Any], **more: Any) -> str:
        topic = f"{self.payments.topic}-{name}"
        self.payments.create(topic, 2)
        self.payments.spec["source"]["topics"][topic] = {"view": name, "value": value, **more}
        self.payments.spec["sinks"][name] = {"from": name, "delta": {"path": name}}
        return topic

    def send(self, topic: str, serialize: Callable[..., bytes | None], *values: Any) -> None:
        context = SerializationContext(topic, MessageField.VALUE)
        self.payments.send(*(serialize(value, context) for value in values), topic=topic)

    def rows(self, name: str) -> list[dict[str, Any]]:
        table = DeltaTable(str(self.payments.directory / name)).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: json.dumps(row, default=str))

    def avro(self, schema: dict[str, Any] = AVRO) -> AvroSerializer:
        return AvroSerializer(self.client, json.dumps(schema))

    def protobuf(self, text: str = PROTO) -> tuple[Any, ProtobufSerializer]:
        kind = GetMessageClass(protobuf_schema.from_text(text).descriptor())
        return kind, ProtobufSerializer(kind, self.client, {"use.deprecated.format": False})

    def json(self) -> JSONSerializer:
        return JSONSerializer(json.dumps(JSON_SCHEMA), self.client)


@pytest.fixture
def shop(payments: Payments, registry: LocalRegistry) -> Shop:
    return Shop(payments, registry)


def test_json_avro_and_protobuf_topics_in_one_pipeline(shop: Shop) -> None:
    of_json = shop.topic("of_json", {"format": "json"})
    of_avro = shop.topic("of_avro", {"format": "avro"})
    of_protobuf = shop.topic("of_protobuf", {"format": "protobuf"})
    shop.send(of_json, shop.json(), {"id": 1, "note": "a"}, {"id": 2, "note": None})
    shop.send(of_avro, shop.avro(), {"id": 3, "total": "12.50", "note": "b"} | {"total": _decimal("12.50")})
    kind, serialize = shop.protobuf()
    shop.send(of_protobuf, serialize, kind(id=4, note="c", tags=["x", "y"]))
    for topic in (of_json, of_avro, of_protobuf):
        shop.payments.send(b"\x00\x00\x0f\x42\x3f\x00rest", b"\x01junk", topic=topic)  # id 999999; no magic byte
    shop.payments.run()
    assert [(r["id"], r["note"]) for r in shop.rows("of_json")] == [(1, "a"), (2, None)]
    assert [(r["id"], r["total"], r["note"]) for r in shop.rows("of_avro")] == [(3, _decimal("12.50"), "b")]
    assert [(r["id"], r["note"], r["tags"]) for r in shop.rows("of_protobuf")] == [(4, "c", ["x", "y"])]
    died = {(d.topic, d.error_class, d.schema_id) for d in shop.payments.dead()}
    assert died == {
        (topic, *what)
        for topic in (of_json, of_avro, of_protobuf)
        for what in ((record.UNKNOWN_SCHEMA, 999_999), (record.MALFORMED, None))
    }
    assert shop.payments.verify().complete


def test_two_versions_of_a_schema_in_one_batch_are_both_read_as_the_reader_schema(shop: Shop) -> None:
    topic = shop.topic("orders", {"format": "avro", "version": 1})
    widened = {
        **AVRO,
        "fields": [AVRO["fields"][0], AVRO["fields"][1], {"name": "rating", "type": "int", "default": 3}],  # type: ignore[index]
    }
    shop.send(topic, shop.avro(), {"id": 1, "total": _decimal("1.00"), "note": "old"})
    shop.client.set_compatibility(f"{topic}-value", "NONE")
    shop.send(topic, shop.avro(widened), {"id": 2, "total": _decimal("2.00"), "rating": 5})
    shop.payments.run()
    assert [(r["id"], r["note"]) for r in shop.rows("orders")] == [(1, "old"), (2, None)]
    assert shop.payments.verify().complete


def test_keys_headers_text_bytes_csv_and_deletes(shop: Shop) -> None:
    text = shop.topic("texts", {"format": "string"}, key={"format": "string"}, kafka_columns=["header_map"])
    shop.topic("raws", {"format": "bytes"})
    fields = {"id": {"type": "bigint", "required": True}, "price": "decimal(8,2)", "when": "timestamp"}
    lines = shop.topic("lines", {"format": "csv", "schema": {"fields": fields}, "delimiter": ";"})
    fields = {"id": {"type": "bigint", "required": True}}
    how = {"format": "json", "schema": {"fields": fields}, "tombstones": "delete"}
    keyed = shop.topic("keyed", how, key={"format": "json", "schema": {"fields": {"k": "string"}}})
    send = shop.payments.send
    send("grüße".encode(), key=b"k1", headers=[("a", b"1"), ("b", b"2"), ("a", b"3")], topic=text)
    send(b"\xff", key=b"k2", topic=text)
    send(b"fine", key=b"\xff", topic=text)
    send(b"\x00\xff", topic=f"{shop.payments.topic}-raws")
    send(b'7;"1.50";2026-11-01T10:00:00Z', b"8;;", b";1;", b"9;1", b"x;1.00;", b'1;"', topic=lines)
    shop.payments.spec["contract"]["keyed"] = [{"name": "positive", "rule": "id > 0"}]  # a delete has no id
    send(b'{"id": 1}', None, b'{"id": -1}', key=b'{"k": "one"}', topic=keyed)
    send(None, key=b"broken", topic=keyed)
    shop.payments.run()
    [row] = shop.rows("texts")
    assert (row["value"], row["_key"], dict(row["_kafka"]["header_map"])) == ("grüße", "k1", {"a": b"3", "b": b"2"})
    assert [r["value"] for r in shop.rows("raws")] == [b"\x00\xff"]
    assert [(r["id"], r["price"]) for r in shop.rows("lines")] == [(7, _decimal("1.50")), (8, None)]
    assert [(r["id"], r["_key"], r["_deleted"]) for r in shop.rows("keyed")] == [
        (1, {"k": "one"}, False),
        (None, {"k": "one"}, True),
    ]
    reasons = sorted((d.error_class, d.reason) for d in shop.payments.dead())
    assert (record.MALFORMED, "key: invalid UTF-8: byte 0xff at position 0") in reasons
    assert (record.MISSING_FIELD, "id: required, but absent") in reasons
    assert (record.MALFORMED, "2 fields, the schema has 3") in reasons
    assert (record.BROKEN_RULE, "positive: not true: id > 0; id = -1") in reasons
    assert len(reasons) == 8
    assert shop.payments.verify().complete


def test_an_unknown_schema_stops_the_pipeline_where_the_spec_says_so(shop: Shop) -> None:
    topic = shop.topic("orders", {"format": "avro", "unreadable": "stop"})
    shop.payments.spec["contract"]["orders"] = [{"name": "positive", "rule": "abs(id) = id"}]
    shop.send(topic, shop.avro(), {"id": 1, "total": _decimal("1.00"), "note": None})
    shop.payments.send(b"\x00\x00\x0f\x42\x3frest", topic=topic)
    with pytest.raises(RuleStopped) as stopped:
        shop.payments.run()
    assert "999999" in stopped.value.what


@pytest.mark.parametrize("stops", ["key", "value"])
def test_an_unknown_schema_of_a_key_follows_what_the_key_says(shop: Shop, stops: str) -> None:
    schema = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]}
    (shop.payments.directory / "key.avsc").write_text(json.dumps(schema))
    how = {"format": "avro", "schema": "key.avsc"}
    value, key = ({**how, "unreadable": "stop" if stops == part else "dead-letter"} for part in ("value", "key"))
    topic = shop.topic("keyed", value, key=key)
    encoded = shop.avro(schema)({"id": 1}, SerializationContext(topic, MessageField.VALUE))
    shop.payments.send(encoded, key=b"\x00\x00\x0f\x42\x3f", topic=topic)
    if stops == "key":
        with pytest.raises(RuleStopped) as stopped:
            shop.payments.run()
        assert "key: the registry has no schema 999999" in stopped.value.what
        return
    shop.payments.run()
    assert [letter.reason for letter in shop.payments.dead()] == ["key: the registry has no schema 999999"]


def test_known_ids_go_on_without_the_registry_and_unknown_ones_wait_for_it(shop: Shop, registry: LocalRegistry) -> None:
    topic = shop.topic("orders", {"format": "avro", "schema": "order.avsc"})
    (shop.payments.directory / "order.avsc").write_text(json.dumps(AVRO))
    shop.payments.spec["registry"]["timeout"] = "1s"
    first, second = shop.avro(), shop.avro({**AVRO, "doc": "another one"})
    shop.send(topic, first, {"id": 1, "total": _decimal("1.00"), "note": None})
    shop.payments.run()
    shop.send(topic, first, {"id": 2, "total": _decimal("1.00"), "note": None})
    encoded = second(
        {"id": 3, "total": _decimal("1.00"), "note": None}, SerializationContext(topic, MessageField.VALUE)
    )
    registry.pause()
    try:
        shop.payments.run()
        assert [r["id"] for r in shop.rows("orders")] == [1, 2]
        shop.payments.send(encoded, topic=topic)
        heard = Heard()
        heard.retrying = lambda error, _: (heard.warnings.append(error.code), registry.resume())  # type: ignore[method-assign]
        stream.run(shop.payments.pipeline, until_caught_up=True, watch=heard)
    finally:
        registry.resume()
    assert heard.warnings == [RegistryUnreachable.code]
    assert [r["id"] for r in shop.rows("orders")] == [1, 2, 3]
    assert shop.payments.dead() == []
    assert shop.payments.verify().complete


def _decimal(text: str) -> Any:
    from decimal import Decimal

    return Decimal(text)
