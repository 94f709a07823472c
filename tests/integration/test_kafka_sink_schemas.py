"""Kafka as a sink with a schema registry: what is registered, and what confluent-kafka's own deserializers read."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import LongType, StructField, StructType
from tests.forwarding import Forward, event
from tests.payments import Payments

from penstock.encode.formats import prepare
from penstock.errors import PenstockError, SchemaIncompatible, SpecInvalid, SubjectMissing
from penstock.local.registry import LocalRegistry
from penstock.registry.client.http import RegistrySettings
from penstock.registry.client.registry import SchemaRegistry
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.protobuf import message as protobuf
from penstock.spec.sinks import EncodeProtobuf

pytestmark = pytest.mark.usefixtures("spark")


@dataclass
class Registered:
    """A pipeline with a registry: what Penstock encodes, confluent-kafka's own deserializers read."""

    forward: Forward
    client: SchemaRegistryClient

    def context(self) -> SerializationContext:
        return SerializationContext(self.forward.out, MessageField.VALUE)


@pytest.fixture
def registered(payments: Payments, registry: LocalRegistry) -> Registered:
    payments.spec["registry"] = {"url": registry.url}
    return Registered(Forward(payments), SchemaRegistryClient({"url": registry.url}))


def test_avro_with_the_schema_of_the_columns_registered(registered: Registered) -> None:
    registered.forward.to(
        value={"format": "avro", "register": True}, key={"format": "avro", "columns": ["id"], "register": True}
    )
    registered.forward.send(*(event(n, tags=["x"] if n else None) for n in range(10)))
    registered.forward.payments.run()
    read = AvroDeserializer(registered.client)
    found = sorted(
        (read(each.value, registered.context()) for each in registered.forward.seen()), key=lambda d: d["id"]
    )
    assert [d["id"] for d in found] == list(range(10))
    assert (str(found[3]["amount"]), found[3]["at"].isoformat(), found[0]["tags"], found[3]["tags"]) == (
        "1.50", "2026-01-02T03:04:05.678901+00:00", None, ["x"],
    )  # fmt: skip
    keys = {read(each.key, registered.context())["id"] for each in registered.forward.seen()}
    assert keys == set(range(10))
    assert {f"{registered.forward.out}-value", f"{registered.forward.out}-key"} <= set(registered.client.get_subjects())


def test_nothing_is_registered_for_a_pipeline_that_another_sink_keeps_from_starting(registered: Registered) -> None:
    forward = registered.forward
    forward.to(value={"format": "avro", "register": True})
    forward.payments.spec["sinks"]["lake"] = {"from": "events", "delta": {"path": "lake", "partition_by": ["no_such"]}}
    with pytest.raises(PenstockError, match="no_such"):
        forward.payments.run()
    assert f"{forward.out}-value" not in registered.client.get_subjects()
    del forward.payments.spec["sinks"]["lake"]
    forward.payments.run()
    assert f"{forward.out}-value" in registered.client.get_subjects()


def test_protobuf_with_the_schema_of_the_columns_registered(registered: Registered) -> None:
    registered.forward.to(value={"format": "protobuf", "register": True})
    registered.forward.send(*(event(n) for n in range(10)))
    registered.forward.payments.run()
    text = registered.client.get_latest_version(f"{registered.forward.out}-value").schema.schema_str
    kind: Any = GetMessageClass(protobuf.from_registered(RegisteredSchema(1, "PROTOBUF", text)).descriptor())
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False}, registered.client)
    found = sorted((read(each.value, registered.context()) for each in registered.forward.seen()), key=lambda m: m.id)
    assert [(m.id, m.who) for m in found] == [(n, f"w{n}") for n in range(10)]


def test_json_schema_registered(registered: Registered) -> None:
    registered.forward.to(value={"format": "json", "wire": "registry", "register": True})
    registered.forward.send(*(event(n) for n in range(10)))
    registered.forward.payments.run()
    text = registered.client.get_latest_version(f"{registered.forward.out}-value").schema.schema_str
    read = JSONDeserializer(text, schema_registry_client=registered.client)
    found = sorted(
        (read(each.value, registered.context()) for each in registered.forward.seen()), key=lambda d: d["id"]
    )
    assert [(d["id"], d["who"]) for d in found] == [(n, f"w{n}") for n in range(10)]


def test_row_that_the_schema_cannot_hold_is_a_dead_letter_and_the_others_go_out(registered: Registered) -> None:
    schema = {
        "type": "record",
        "name": "Event",
        "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
    }
    (registered.forward.payments.directory / "event.avsc").write_text(json.dumps(schema))
    registered.forward.to(
        value={"format": "avro", "schema": "event.avsc", "columns": ["id", "who"], "register": True}, origin=True
    )
    registered.forward.payments.spec["sinks"]["lake"] = {"from": "events", "delta": {"path": "lake"}}
    registered.forward.send(event(1), event(2, who=None), event(3))
    registered.forward.payments.run()
    read = AvroDeserializer(registered.client)
    assert sorted(read(each.value, registered.context())["id"] for each in registered.forward.seen()) == [1, 3]
    (dead,) = registered.forward.payments.dead()
    assert (dead.stage, dead.error_class) == ("sink", "missing-field")
    assert "who" in dead.reason
    assert "'out'" in dead.reason
    assert sorted(row["id"] for row in registered.forward.payments.rows()) == [1, 2, 3]  # the other sink takes it
    report = registered.forward.payments.verify()
    assert report.complete, report.findings


def test_without_leave_to_register_the_newest_schema_of_the_subject_is_used(registered: Registered) -> None:
    registered.forward.to(value={"format": "avro", "columns": ["id"]})
    registered.forward.send(event(1))
    with pytest.raises(SubjectMissing) as missing:
        registered.forward.payments.run()
    assert "register: true" in str(missing.value.next_command)
    schema = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "long"}]}
    number = registered.client.register_schema(f"{registered.forward.out}-value", Schema(json.dumps(schema), "AVRO"))
    registered.forward.payments.run()
    (seen,) = registered.forward.seen()
    assert seen.value is not None
    assert int.from_bytes(seen.value[1:5], "big") == number


def test_version_that_another_client_registered_of_the_same_file_is_found(
    registered: Registered, tmp_path: Path
) -> None:
    """confluent-kafka registers the descriptor of its Python class, `penstock registry register` the text."""
    text = 'syntax = "proto3";\nmessage Event { int64 id = 1; string who_is = 2; }\n'
    (tmp_path / "event.proto").write_text(text)
    compiled = FileDescriptorProto.FromString(protobuf.from_text(text).files[-1])
    compiled.name = "event.proto"
    for field in compiled.message_type[0].field:
        field.ClearField("json_name")
    other = text.replace("who_is", "whom")
    how, fields = EncodeProtobuf(format="protobuf", schema="event.proto"), StructType([StructField("id", LongType())])
    with SchemaRegistry(RegistrySettings(registered.forward.payments.spec["registry"]["url"])) as registry:
        for place, version in {
            "class": base64.b64encode(compiled.SerializeToString()).decode(),
            "text": text,
            "other": other,
        }.items():
            subject = f"{registered.forward.out}-{place}"
            number = registered.client.register_schema(subject, Schema(version, "PROTOBUF"))
            if place == "other":
                with pytest.raises(SpecInvalid, match="no version of"):
                    prepare(how, "out", fields.fields, subject, tmp_path, lambda: registry)
                continue
            made = prepare(how, "out", fields.fields, subject, tmp_path, lambda: registry)
            assert made.encoder is not None
            [value] = made.encoder(pa.RecordBatch.from_pydict({"id": [7]})).values.to_pylist()
            assert int.from_bytes(value[1:5], "big") == number


def test_schema_that_the_registry_refuses_stops_before_anything_is_written(registered: Registered) -> None:
    other = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "string"}]}
    registered.client.register_schema(f"{registered.forward.out}-value", Schema(json.dumps(other), "AVRO"))
    registered.forward.to(value={"format": "avro", "columns": ["id"], "register": True})
    registered.forward.send(event(1))
    with pytest.raises(SchemaIncompatible):
        registered.forward.payments.run()
    assert registered.forward.seen() == []
