"""From Kafka through the engine and back: what is deleted, and formats without a registry."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from deltalake import DeltaTable
from google.protobuf.message_factory import GetMessageClass
from tests.committed import committed
from tests.payments import Payments

from penstock.registry.protobuf import message as protobuf_schema

pytestmark = pytest.mark.usefixtures("spark")

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
PROTO = 'syntax = "proto3";\nmessage Order { int64 id = 1; optional string note = 2; }\n'


def table(payments: Payments, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(str(payments.directory / name)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_tombstone_deletes_its_key_from_a_table_and_goes_out_without_a_value(payments: Payments) -> None:
    """The steps of examples/cdc-upsert."""
    payments.create(out := f"{payments.topic}-out")
    fields = {"id": {"type": "bigint", "required": True}, "name": "string"}
    payments.spec["source"]["topics"][payments.topic] = {
        "view": "customers",
        "key": {"format": "json", "schema": {"fields": {"id": {"type": "bigint", "required": True}}}},
        "value": {"format": "json", "schema": {"fields": fields}, "tombstones": "delete"},
    }
    payments.spec["contract"] = {}
    steps = "select coalesce(id, _key.id) as id, name, _deleted, _kafka from customers"
    payments.spec["transform"] = [{"view": "changes", "sql": steps}]
    payments.spec["sinks"] = {
        "lake": {"from": "changes", "delta": {"path": "lake", "upsert": {"key": ["id"]}}},
        "out": {
            "from": "changes",
            "kafka": {"topic": out, "key": {"format": "json", "columns": ["id"]}, "value": {"format": "json"}},
        },
    }

    def change(number: int, name: str | None) -> None:
        value = None if name is None else json.dumps({"id": number, "name": name}).encode()
        payments.send(value, key=json.dumps({"id": number}).encode())

    for number, name in [(1, "a"), (2, "b"), (3, "c"), (2, None), (4, "d"), (4, None), (4, "back")]:
        change(number, name)
    payments.run()
    assert [(row["id"], row["name"]) for row in table(payments, "lake")] == [(1, "a"), (3, "c"), (4, "back")]
    change(1, None)  # what an earlier batch brought
    change(9, None)  # never there
    payments.send(None)  # has no key: there is nothing to delete by it, and it is sent on as it is
    payments.run()
    assert [(row["id"], row["name"]) for row in table(payments, "lake")] == [(3, "c"), (4, "back")]
    gone = [json.loads(each.key or b"").get("id") for each in committed(payments.bootstrap, out) if each.value is None]
    assert sorted(gone, key=str) == [1, 2, 4, 9, None]
    [letter] = payments.dead()
    assert (letter.stage, letter.error_class, letter.sinks) == ("sink", "missing-field", "lake")
    assert letter.reason == "sink 'lake' upserts by id, which is null"
    assert (letter.key, letter.value) == (None, None)
    assert payments.verify().findings == []


def test_avro_and_protobuf_without_a_registry_text_and_bytes_go_out_and_come_in(payments: Payments) -> None:
    (payments.directory / "order.avsc").write_text(json.dumps(AVRO))
    (payments.directory / "order.proto").write_text(PROTO)
    raw = {
        "avro": {"format": "avro", "wire": "raw", "schema": "order.avsc"},
        "protobuf": {"format": "protobuf", "wire": "raw", "schema": "order.proto"},
    }
    made = {
        **{kind: {**how, "columns": ["id", "note"]} for kind, how in raw.items()},
        "text": {"format": "string", "column": "note"},
        "bytes": {"format": "bytes", "column": "_kafka.value"},
    }
    topics = {kind: f"{payments.topic}-{kind}" for kind in made}
    for topic in topics.values():
        payments.create(topic)
    fields = {"id": {"type": "bigint", "required": True}, "note": "string"}
    payments.spec["source"]["topics"][payments.topic] = {
        "view": "orders", "value": {"format": "json", "schema": {"fields": fields}}, "kafka_columns": ["value"],
    }  # fmt: skip
    payments.spec["contract"], payments.spec["transform"] = {}, []
    payments.spec["sinks"] = {
        kind: {"from": "orders", "kafka": {"topic": topics[kind], "value": how}} for kind, how in made.items()
    }
    sent = [{"id": 1, "note": "grün"}, {"id": 2, "note": "x" * 300}]
    payments.send(*(json.dumps(order).encode() for order in sent))
    payments.run()
    found = {kind: [each.value or b"" for each in committed(payments.bootstrap, topics[kind])] for kind in made}
    kind = GetMessageClass(protobuf_schema.from_text(PROTO).descriptor())
    messages = [kind.FromString(value) for value in found["protobuf"]]
    assert sorted((each.id, each.note) for each in messages) == [(order["id"], order["note"]) for order in sent]
    datums: list[Any] = [fastavro.schemaless_reader(io.BytesIO(value), AVRO, None) for value in found["avro"]]
    assert sorted(datums, key=lambda order: order["id"]) == sent
    assert sorted(value.decode() for value in found["text"]) == ["grün", "x" * 300]
    assert sorted(map(json.loads, found["bytes"]), key=lambda order: order["id"]) == sent

    payments.spec["name"] = "back"
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}
    payments.spec["source"]["topics"] = {topics[kind]: {"view": kind, "value": how} for kind, how in raw.items()}
    payments.spec["sinks"] = {kind: {"from": kind, "delta": {"path": kind}} for kind in raw}
    payments.send(b"\xff", topic=topics["avro"])
    payments.send(b"\xff", topic=topics["protobuf"])
    payments.run()
    for kind in raw:
        assert [{"id": row["id"], "note": row["note"]} for row in table(payments, kind)] == sent
    assert sorted(dead.topic for dead in payments.dead()) == sorted(topics[kind] for kind in raw)
    assert payments.verify().findings == []
