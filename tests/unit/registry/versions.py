"""Random versions of a record, each made of the one before it, as each of the three kinds of schema; and records."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass, replace
from typing import Any

import fastavro
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.protobuf.message import from_registered

SCALARS = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    "boolean": st.booleans(),
}
DEFAULTS = {"int": 7, "long": 8, "string": "default", "boolean": True}


@dataclass(frozen=True)
class Field:
    name: str
    number: int
    kind: str | tuple[Field, ...]  # a scalar, or the fields of a record
    listed: bool = False
    optional: bool = False
    default: bool = False
    before: tuple[str, ...] = ()  # names it had

    @property
    def is_record(self) -> bool:
        return not isinstance(self.kind, str)


Version = tuple[Field, ...]


@st.composite
def fields_of(draw: Any, prefix: str, first: int, most: int, depth: int = 0) -> Version:
    made = []
    for i in range(draw(st.integers(1, most))):
        nested = depth < 2 and draw(st.integers(0, 2)) == 0
        kind = draw(fields_of("abc"[depth], 1, 3, depth + 1)) if nested else draw(st.sampled_from(sorted(SCALARS)))
        listed, optional = draw(st.integers(0, 3)) == 0, draw(st.booleans())
        default = not nested and not listed and not optional and draw(st.booleans())
        made.append(Field(f"{prefix}{first + i}", first + i, kind, listed, optional and not listed, default))
    return tuple(made)


first_versions = fields_of("f", 1, 4)


@st.composite
def next_version(draw: Any, before: Version, number: int, *, widen: bool) -> tuple[Version, list[str]]:
    """The version after one, and the paths of what it has gained. `number` is above all that were used."""
    made: list[Field] = []
    gained: list[str] = []
    for field in before:
        match draw(st.sampled_from(["keep", "keep", "drop", "rename", "optional", "widen", "narrow", "inside"])):
            case "drop" if len(before) > 1:
                continue
            case "rename":
                made.append(replace(field, name=f"{field.name}_{number}", before=(field.name, *field.before)))
            case "optional" if not field.listed:
                made.append(replace(field, optional=True, default=False))
            case "widen" if widen and field.kind == "int":
                made.append(replace(field, kind="long"))
            case "narrow" if widen and field.kind == "long":
                made.append(replace(field, kind="int"))
            case "inside" if not isinstance(field.kind, str):
                inner, inside = draw(next_version(field.kind, number, widen=widen))
                made.append(replace(field, kind=inner))
                gained += [f"{field.name}{'[]' if field.listed else ''}.{path}" for path in inside]
            case _:
                made.append(field)
    if not made:
        made = [before[0]]
        gained = []
    if draw(st.booleans()):
        new = draw(fields_of("n", number, 2, 1))
        made += new
        gained += [field.name for field in new]
    return tuple(made), gained


def values_of(version: Version) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: _value(field) for field in version})


def _value(field: Field) -> st.SearchStrategy[Any]:
    one = SCALARS[field.kind] if isinstance(field.kind, str) else values_of(field.kind)
    if field.listed:
        return st.lists(one, max_size=2)
    return st.none() | one if field.optional else one


def avro(version: Version, number: int) -> RegisteredSchema:
    return RegisteredSchema(number, "AVRO", json.dumps(_avro(version, "R")))


def _avro(version: Version, name: str) -> Any:
    fields = []
    for field in version:
        kind = field.kind if isinstance(field.kind, str) else _avro(field.kind, f"{name}_{field.number}")
        kind = {"type": "array", "items": kind} if field.listed else ["null", kind] if field.optional else kind
        made = {"name": field.name, "type": kind, "aliases": list(field.before)}
        fields.append({**made, "default": DEFAULTS[str(field.kind)]} if field.default else made)
    return {"type": "record", "name": name, "fields": fields}


def avro_record(schema: RegisteredSchema, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema.text), {}), row)
    return b"\0" + schema.id.to_bytes(4, "big") + out.getvalue()


def json_schema(version: Version, number: int) -> RegisteredSchema:
    return RegisteredSchema(number, "JSON", json.dumps(_json(version)))


def _json(version: Version) -> Any:
    names = {"int": "integer", "long": "integer", "string": "string", "boolean": "boolean"}
    properties = {}
    for field in version:
        one = {"type": names[field.kind]} if isinstance(field.kind, str) else _json(field.kind)
        properties[field.name] = (
            {"type": "array", "items": one}
            if field.listed
            else {"oneOf": [{"type": "null"}, one]}
            if field.optional
            else one
        )
    return {"type": "object", "properties": properties, "required": [f.name for f in version if not f.optional]}


def protobuf(version: Version, number: int) -> RegisteredSchema:
    file = FileDescriptorProto(name="m.proto", syntax="proto3")
    _message(file.message_type.add(name="M"), version, ".M")
    return RegisteredSchema(number, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode())


def _message(message: Any, version: Version, full: str) -> None:
    kinds = {"int": F.TYPE_INT32, "long": F.TYPE_INT64, "string": F.TYPE_STRING, "boolean": F.TYPE_BOOL}
    for field in version:
        made = message.field.add(name=field.name, number=field.number)
        made.label = F.LABEL_REPEATED if field.listed else F.LABEL_OPTIONAL
        if isinstance(field.kind, str):
            made.type = kinds[field.kind]
        else:
            made.type, made.type_name = F.TYPE_MESSAGE, f"{full}.M{field.number}"
            _message(message.nested_type.add(name=f"M{field.number}"), field.kind, made.type_name)
        if field.optional and isinstance(field.kind, str):
            made.proto3_optional, made.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def protobuf_record(schema: RegisteredSchema, row: dict[str, Any]) -> bytes:
    message = GetMessageClass(from_registered(schema).descriptor())(**_set(row))
    return b"\0" + schema.id.to_bytes(4, "big") + b"\0" + message.SerializeToString()


def _set(row: dict[str, Any]) -> dict[str, Any]:
    def put(value: Any) -> Any:
        return _set(value) if isinstance(value, dict) else list(map(put, value)) if isinstance(value, list) else value

    return {name: put(value) for name, value in row.items() if value is not None}
