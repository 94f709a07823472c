"""Schemas that change while a pipeline runs: producers register new versions and write old and new records mixed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from tests.payments import Heard, Payments

from penstock.errors import RuleStopped, SpecInvalid
from penstock.lifecycle import stream
from penstock.local.registry import LocalRegistry
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry
from penstock.registry.protobuf import message as protobuf

V1 = [("id", "long", None), ("count", "int", None), ("gone", "string", None)]
V2 = [("id", "long", None), ("count", "long", None), ("added", "string", "new")]


class Orders:
    def __init__(self, payments: Payments, registry: LocalRegistry) -> None:
        self.payments, self.client = payments, SchemaRegistryClient({"url": registry.url})
        payments.spec["registry"] = {"url": registry.url}
        payments.spec["contract"], payments.spec["transform"] = {}, []
        payments.spec["sinks"] = {"lake": {"from": "orders", "delta": {"path": "lake"}}}
        payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}
        self.read({"format": "avro"})
        self.context = SerializationContext(payments.topic, MessageField.VALUE)

    def read(self, value: dict[str, Any]) -> None:
        self.payments.spec["source"]["topics"] = {self.payments.topic: {"view": "orders", "value": value}}

    def evolve(self) -> None:
        self.payments.spec["sinks"]["lake"]["delta"]["evolve"] = "add-columns"

    def avro(self, fields: list[tuple[str, Any, Any]]) -> AvroSerializer:
        said = [{"name": n, "type": t, **({} if d is None else {"default": d})} for n, t, d in fields]
        return AvroSerializer(self.client, json.dumps({"type": "record", "name": "Order", "fields": said}))

    def registry(self) -> SchemaRegistry:
        return SchemaRegistry(RegistrySettings(self.payments.spec["registry"]["url"]))

    def anything_goes(self) -> None:
        with self.registry() as registry:
            registry.set_mode("NONE", f"{self.payments.topic}-value")

    def send(self, serialize: Any, *values: Any) -> None:
        self.payments.send(*(serialize(value, self.context) for value in values))

    def rows(self, spark: SparkSession) -> list[dict[str, Any]]:
        """Read by Spark: delta-rs does not read tables with a widened column yet."""
        found = spark.read.format("delta").load(str(self.payments.directory / "lake")).drop("_kafka").collect()
        return sorted((row.asDict() for row in found), key=lambda row: row["id"])

    @contextmanager
    def running(self) -> Iterator[Heard]:
        """The pipeline, going on while a test sends records."""
        stop, heard = stream.StopRequest(), Heard()
        failure: list[BaseException] = []

        def run() -> None:
            try:
                stream.run(self.payments.pipeline, watch=heard, stop=stop)
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield heard
        finally:
            stop.ask()
            thread.join(60)
        assert not failure, failure
        assert not thread.is_alive()

    def until(self, heard: Heard, records: int) -> None:
        deadline = time.monotonic() + 60
        while sum(entry.read for entry in heard.entries) < records:
            assert time.monotonic() < deadline, heard.entries
            time.sleep(0.1)


@pytest.fixture
def orders(payments: Payments, registry: LocalRegistry) -> Orders:
    return Orders(payments, registry)


def test_new_version_while_running_adds_its_column_and_loses_nothing(orders: Orders, spark: SparkSession) -> None:
    """A field added with a default, one dropped, one widened; v1 and v2 mixed."""
    orders.evolve()
    v1 = orders.avro(V1)
    orders.send(v1, {"id": 1, "count": 1, "gone": "a"})
    with orders.running() as heard:
        orders.until(heard, 1)
        v2 = orders.avro(V2)
        orders.send(v2, {"id": 2, "count": 3_000_000_000, "added": "b"})
        orders.send(v1, {"id": 3, "count": 3, "gone": "c"})
        orders.send(v2, {"id": 4, "count": 4, "added": "d"})
        orders.until(heard, 4)
    assert orders.rows(spark) == [
        {"id": 1, "count": 1, "gone": "a", "added": None},
        {"id": 2, "count": 3_000_000_000, "gone": None, "added": "b"},
        {"id": 3, "count": 3, "gone": "c", "added": "new"},
        {"id": 4, "count": 4, "gone": None, "added": "d"},
    ]
    assert orders.payments.dead() == []
    assert any("has gained added: added to the view" in text for text in heard.warnings), heard.warnings
    report = orders.payments.verify()
    assert report.complete, report.findings


def test_without_evolve_columns_stay_and_what_is_new_is_reported(orders: Orders, spark: SparkSession) -> None:
    v1 = orders.avro(V1)
    orders.send(v1, {"id": 1, "count": 1, "gone": "a"})
    with orders.running() as heard:
        orders.until(heard, 1)
        v2 = orders.avro([("id", "long", None), ("count", "int", None), ("added", "string", "new")])
        orders.send(v2, {"id": 2, "count": 2, "added": "b"})
        orders.send(v1, {"id": 3, "count": 3, "gone": "c"})
        orders.until(heard, 3)
    expected = [
        {"id": 1, "count": 1, "gone": "a"},
        {"id": 2, "count": 2, "gone": None},
        {"id": 3, "count": 3, "gone": "c"},
    ]
    assert orders.rows(spark) == expected
    assert any("has gained added: ignored" in text for text in heard.warnings), heard.warnings
    assert any("no longer has gone" in text for text in heard.warnings), heard.warnings
    orders.send(v2, {"id": 4, "count": 4, "added": "d"})
    again = Heard()
    orders.payments.run(watch=again)  # a new start does not change the columns either
    assert again.warnings == []
    assert orders.rows(spark) == [*expected, {"id": 4, "count": 4, "gone": None}]
    assert orders.payments.dead() == []


def test_without_evolve_a_widened_type_is_a_dead_letter_and_not_misread(orders: Orders, spark: SparkSession) -> None:
    orders.send(orders.avro(V1), {"id": 1, "count": 1, "gone": "a"})
    orders.payments.run()
    orders.send(orders.avro(V2), {"id": 2, "count": 3_000_000_000, "added": "b"})
    heard = Heard()
    orders.payments.run(watch=heard)
    assert any("has gained added: ignored" in text for text in heard.warnings), heard.warnings  # while it was stopped
    assert [row["id"] for row in orders.rows(spark)] == [1]
    (dead,) = orders.payments.dead()
    assert dead.error_class == "incompatible-schema"
    assert "count" in dead.reason


def test_protobuf_gains_a_column(orders: Orders, spark: SparkSession) -> None:
    orders.read({"format": "protobuf"})
    orders.evolve()
    text = 'syntax = "proto3"; package shop; message Order {{ int64 id = 1; {} }}'

    def registered(fields: str) -> tuple[Any, Any]:
        """Serialized by hand: Apicurio cannot compare the schemas that confluent-kafka's serializer registers."""
        with orders.registry() as registry:
            number = registry.register(f"{orders.payments.topic}-value", "PROTOBUF", text.format(fields))
        header = b"\0" + number.to_bytes(4, "big") + b"\0"
        kind: Any = GetMessageClass(protobuf.from_text(text.format(fields)).descriptor())
        return kind, lambda message, _context: header + message.SerializeToString()

    first, v1 = registered("string gone = 2;")
    orders.send(v1, first(id=1, gone="a"))
    orders.payments.run()
    orders.anything_goes()  # dropping a field is not backward compatible by Apicurio's rules
    second, v2 = registered("reserved 2; optional string added = 3;")
    orders.send(v2, second(id=2, added="b"))
    orders.send(v1, first(id=3, gone="c"))
    orders.payments.run()
    found = orders.rows(spark)
    assert [(row["id"], row["gone"], row["added"]) for row in found] == [
        (1, "a", None), (2, "", "b"), (3, "c", None),
    ]  # fmt: skip
    assert orders.payments.dead() == []


def test_json_schema_gains_a_column(orders: Orders, spark: SparkSession) -> None:
    orders.read({"format": "json"})
    orders.evolve()

    def serializer(**properties: Any) -> JSONSerializer:
        said = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}, **properties}}
        return JSONSerializer(json.dumps({**said, "required": ["id"]}), orders.client)

    v1 = serializer(gone={"type": "string"})
    orders.send(v1, {"id": 1, "gone": "a"})
    orders.payments.run()
    orders.anything_goes()  # added to an open object
    v2 = serializer(added={"type": "string"})
    orders.send(v2, {"id": 2, "added": "b"})
    orders.send(v1, {"id": 3, "gone": "c"})
    orders.payments.run()
    assert orders.rows(spark) == [
        {"id": 1, "gone": "a", "added": None},
        {"id": 2, "gone": None, "added": "b"},
        {"id": 3, "gone": "c", "added": None},
    ]


def test_pipeline_starts_with_the_columns_it_knows_while_the_registry_is_away(
    orders: Orders, spark: SparkSession, registry: LocalRegistry
) -> None:
    orders.payments.spec["registry"]["timeout"] = "500ms"
    v1 = orders.avro(V1)
    orders.send(v1, {"id": 1, "count": 1, "gone": "a"})
    orders.payments.run()
    orders.send(v1, {"id": 2, "count": 2, "gone": "b"})
    registry.pause()
    try:
        orders.payments.run()
    finally:
        registry.resume()
    assert [row["id"] for row in orders.rows(spark)] == [1, 2]


def test_pinned_version_is_given_up_on_like_any_other(orders: Orders, registry: LocalRegistry) -> None:
    orders.read({"format": "avro", "version": 1})
    orders.payments.spec["registry"] |= {"timeout": "500ms", "wait": "1s"}
    orders.send(orders.avro(V1), {"id": 1, "count": 1, "gone": "a"})
    orders.payments.run()
    orders.send(orders.avro([*V1, ("added", "string", "new")]), {"id": 2, "count": 2, "gone": "b", "added": "c"})
    registry.pause()
    try:
        orders.payments.run()
    finally:
        registry.resume()
    (dead,) = orders.payments.dead()
    assert dead.error_class == "unknown-schema"


def test_unknown_schemas_wait_for_the_registry_and_then_the_policy_decides(
    orders: Orders, spark: SparkSession, registry: LocalRegistry
) -> None:
    orders.payments.spec["registry"] |= {"timeout": "500ms", "wait": "1s"}
    orders.send(orders.avro(V1), {"id": 1, "count": 1, "gone": "a"})
    orders.payments.run()
    unseen = orders.avro([*V1, ("added", "string", "new")])
    orders.send(unseen, {"id": 2, "count": 2, "gone": "b", "added": "c"})
    heard = Heard()
    registry.pause()
    try:
        orders.read({"format": "avro", "unreadable": "stop"})
        with pytest.raises(RuleStopped, match="the registry does not answer"):
            orders.payments.run()
        assert orders.payments.dead() == []
        orders.read({"format": "avro", "unreadable": "dead-letter"})
        orders.payments.run(watch=heard)
    finally:
        registry.resume()
    (dead,) = orders.payments.dead()
    assert dead.error_class == "unknown-schema"
    assert "the registry does not answer" in dead.reason
    assert any("the registry stayed away" in text for text in heard.warnings), heard.warnings
    orders.send(unseen, {"id": 3, "count": 3, "gone": "b", "added": "c"})
    orders.payments.run()
    assert [row["id"] for row in orders.rows(spark)] == [1, 3]
    assert orders.payments.verify().complete


def test_schema_with_a_field_that_would_hide_a_column_of_ours_is_refused(orders: Orders) -> None:
    orders.send(orders.avro([("id", "long", None), ("_kafka", "string", None)]), {"id": 1, "_kafka": "x"})
    with pytest.raises(SpecInvalid, match="cannot be a view") as refused:
        orders.payments.run()
    assert "'_kafka' is Penstock's own column" in str(refused.value.cause)
