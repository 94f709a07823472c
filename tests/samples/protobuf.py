"""Protobuf: random messages, by protobuf's runtime and confluent-kafka's serializer."""

from __future__ import annotations

import datetime
import sys
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from penstock.spec.formats import ProtobufFormat
from tests.samples.lab import (
    HEADER,
    Lab,
    Sample,
    in_subject,
    serialized,
)

sys.path.append(str(Path(__file__).parent.parent / "unit" / "decode"))

import protobuf_strategies as proto

# Fields of these names hide from confluent-kafka's serializer what it calls on a message.
HIDING = {"SerializeToString": "serialize", "DESCRIPTOR": "descriptor"}


@st.composite
def protobuf_schemas(draw: Any) -> proto.Schema:
    drawn = draw(proto.schemas(most=6))
    fields = tuple(replace(spec, name=HIDING.get(spec.name, spec.name)) for spec in drawn.fields)
    return proto.compiled(drawn.syntax, fields, draw(st.sampled_from(["", "p", "a.b"])))


def protobuf_class(schema: proto.Schema, before: int) -> Any:
    """The message, in a file that has some others before it."""
    *imported, own = schema.compiled.files
    file = FileDescriptorProto.FromString(own)
    messages = list(file.message_type)
    del file.message_type[:]
    for i in range(before):
        other = file.message_type.add(name=f"Before{i}")
        other.field.add(
            name="a", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL, type=FieldDescriptorProto.TYPE_STRING
        )
    file.message_type.extend(messages)
    pool = DescriptorPool()
    for data in (*imported, file.SerializeToString()):
        pool.AddSerializedFile(data)
    return GetMessageClass(pool.FindMessageTypeByName(schema.compiled.message))


def protobuf_holds(spec: proto.Spec, value: Any) -> bool:
    one = replace(spec, how="optional")
    match spec.how:
        case "repeated":
            return isinstance(value, list) and all(protobuf_holds(one, v) for v in value)
        case "map":
            return isinstance(value, dict) and all(
                type(k) is str and v is not None and protobuf_holds(one, v) for k, v in value.items()
            )
    kind = spec.kind
    if value is None:
        return spec.how != "required" and not (spec.how == "plain" and (kind.what == "enum" or type(kind.what) is int))
    if kind.what == "message":
        return all(protobuf_holds(inner, value[inner.name]) for inner in kind.fields)
    if kind.what == "Any":
        return type(value["type_url"]) is str and type(value["value"]) is bytes
    kinds = {"Timestamp": datetime.datetime, "Duration": int, "Empty": bool}
    if isinstance(kind.what, str) and kind.what.removesuffix("Value") not in proto.WRAPPERS:
        return type(value) is kinds.get(kind.what, str)
    number = proto.WRAPPERS[kind.what.removesuffix("Value")] if isinstance(kind.what, str) else kind.what
    if number in proto.DECIMALS:
        return type(value) is Decimal and value == int(value) and 0 <= value < 2**64
    return type(value) is type(proto.ZERO.get(number, 0))


def protobuf_sample(draw: Any, lab: Lab) -> Sample:
    schema = draw(protobuf_schemas())
    before = draw(st.integers(0, 2))
    pairs = draw(st.lists(proto.records(schema.fields, schema.syntax), min_size=1, max_size=8))
    message_class, messages = protobuf_class(schema, before), []
    for put, _ in pairs:
        messages.append(message_class())
        proto.fill(messages[-1], put)
    subject = f"protobuf-{uuid.uuid4().hex}"
    values = serialized(ProtobufSerializer(message_class, lab.client, in_subject(subject)), messages)
    header = HEADER + (2 if before else 1)
    assert {value[HEADER:header] for value in values} == {b"\x02" + bytes([2 * before]) if before else b"\x00"}
    return Sample(
        "protobuf",
        lab.prepared(ProtobufFormat(format="protobuf", message=schema.compiled.message), subject),
        values,
        [row for _, row in pairs],
        lambda row: all(protobuf_holds(spec, row[spec.name]) for spec in schema.fields),
        header,
        parses=lambda body: can_parse(message_class, body),
        at=before,
    )


def can_parse(message_class: Any, body: bytes) -> bool:
    try:
        message = message_class.FromString(body)
    except DecodeError:
        return False
    return bool(message_class.__base__.IsInitialized(message))
