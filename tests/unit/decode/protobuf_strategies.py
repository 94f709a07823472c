"""Random Protobuf schemas, and random messages of them, each with the row that decode must make of it."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

from google.protobuf import (
    any_pb2,
    duration_pb2,
    empty_pb2,
    json_format,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from penstock.registry.protobuf.message import MessageSchema

WELL_KNOWN = tuple(
    module.DESCRIPTOR.serialized_pb
    for module in (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2, any_pb2, empty_pb2)
)
WELL_KNOWN_NAMES = [FileDescriptorProto.FromString(data).name for data in WELL_KNOWN]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
LONGEST = 315_576_000_000

# Names that are methods of messages, Python's own words, or ours. All of them are legal names of fields.
NAMES = [
    *("a", "b", "c", "amount", "class", "def", "None", "self", "value", "key", "f0", "f1", "_", "_x", "x_y", "UPPER"),
    *("HasField", "Clear", "SerializeToString", "DiscardUnknownFields", "ParseFromString", "DESCRIPTOR", "seconds"),
]
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    F.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_SFIXED32: st.integers(-(2**31), 2**31 - 1),
    F.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_SINT64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    F.TYPE_UINT32: st.integers(0, 2**32 - 1),
    F.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    F.TYPE_UINT64: st.integers(0, 2**64 - 1),
    F.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    F.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    F.TYPE_DOUBLE: st.floats(allow_nan=False),
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: st.text(max_size=8),
    F.TYPE_BYTES: st.binary(max_size=8),
}
ZERO: dict[int, Any] = {
    **{F.TYPE_BOOL: False, F.TYPE_STRING: "", F.TYPE_BYTES: b"", F.TYPE_FLOAT: 0.0, F.TYPE_DOUBLE: 0.0},
    **{F.TYPE_UINT64: Decimal(0), F.TYPE_FIXED64: Decimal(0)},
}
KEYS = [kind for kind in SCALARS if kind not in (F.TYPE_FLOAT, F.TYPE_DOUBLE, F.TYPE_BYTES)]
DECIMALS = (F.TYPE_UINT64, F.TYPE_FIXED64)
WRAPPERS = {
    "Double": F.TYPE_DOUBLE,
    "Float": F.TYPE_FLOAT,
    "Int64": F.TYPE_INT64,
    "UInt64": F.TYPE_UINT64,
    "Int32": F.TYPE_INT32,
    "UInt32": F.TYPE_UINT32,
    "Bool": F.TYPE_BOOL,
    "String": F.TYPE_STRING,
    "Bytes": F.TYPE_BYTES,
}
ENUM = {0: "ZERO", 1: "ONE", 7: "SEVEN", -2: "MINUS_TWO"}


@dataclass(frozen=True)
class Kind:
    """What a field holds: a scalar type, "enum", a well-known type by name, or a message with its fields."""

    what: int | str
    fields: tuple[Spec, ...] = ()


@dataclass(frozen=True)
class Spec:
    name: str
    number: int
    kind: Kind
    how: str  # "plain", "optional", "required", "repeated", "oneof", "map", "group"
    key: int = F.TYPE_STRING


@dataclass(frozen=True)
class Schema:
    syntax: str
    fields: tuple[Spec, ...]
    compiled: MessageSchema = field(repr=False, compare=False)

    def new(self) -> Any:
        return _class_of(self.compiled)()


@lru_cache(maxsize=8)
def _class_of(schema: MessageSchema) -> Any:
    return GetMessageClass(schema.descriptor())


leaves = st.one_of(
    st.sampled_from([Kind(kind) for kind in SCALARS]),
    st.just(Kind("enum")),
    st.sampled_from([Kind(name) for name in ("Timestamp", "Duration", "Struct", "Value", "ListValue", "Any", "Empty")]),
    st.sampled_from([Kind(f"{name}Value") for name in WRAPPERS]),
)
single_leaves = st.one_of(
    st.sampled_from([Kind(kind) for kind in SCALARS]),
    st.sampled_from([Kind(name) for name in ("enum", "Timestamp", "Duration", "Any")]),
    st.sampled_from([Kind(f"{name}Value") for name in WRAPPERS]),
)
HOWS = {
    "proto3": ["plain", "plain", "optional", "repeated", "oneof", "map"],
    "proto2": ["optional", "required", "repeated", "oneof", "map", "group"],
}
SINGLE = ("plain", "optional", "required", "oneof")


@st.composite
def fields_of(
    draw: Any, syntax: str, kinds: st.SearchStrategy[Kind], most: int, single: bool = False
) -> tuple[Spec, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
    number = st.one_of(st.integers(1, 40), st.sampled_from([15, 16, 2047, 2048, 18_999, 20_000, 100_001, 2**29 - 1]))
    numbers = draw(st.lists(number, min_size=len(names), max_size=len(names), unique=True))
    made = []
    for name, at in zip(names, numbers, strict=True):
        kind, how = draw(kinds), draw(st.sampled_from([h for h in HOWS[syntax] if not single or h in SINGLE]))
        how = "optional" if how == "group" and kind.what != "message" else how
        made.append(Spec(name, at, kind, how, draw(st.sampled_from(KEYS))))
    return tuple(made)


@st.composite
def schemas(draw: Any, most: int = 5, syntaxes: tuple[str, ...] = ("proto3", "proto2"), single: bool = False) -> Schema:
    """`single`: without arrays, maps and groups, and without JSON, which has them inside."""
    syntax = draw(st.sampled_from(syntaxes))
    kinds = st.recursive(
        single_leaves if single else leaves,
        lambda inner: fields_of(syntax, inner, 3, single).map(lambda f: Kind("message", f)),
        max_leaves=4,
    )
    fields = draw(fields_of(syntax, kinds, most, single))
    return compiled(syntax, fields, draw(st.sampled_from(["", "p", "a.b"])))


def compiled(syntax: str, fields: tuple[Spec, ...], package: str = "p") -> Schema:
    file = FileDescriptorProto(name="random.proto", package=package, syntax=syntax, dependency=WELL_KNOWN_NAMES)
    enum = file.enum_type.add(name="Number")
    for number, name in ENUM.items():
        enum.value.add(name=name, number=number)
    dot = f".{package}." if package else "."
    _message(file.message_type.add(name="Root"), fields, f"{dot}Root", dot, syntax)
    return Schema(
        syntax, fields, MessageSchema((*WELL_KNOWN, file.SerializeToString()), f"{dot}Root".removeprefix("."))
    )


def _message(message: Any, fields: tuple[Spec, ...], full: str, dot: str, syntax: str) -> None:
    optional = []
    for i, spec in enumerate(fields):
        label = {"repeated": F.LABEL_REPEATED, "map": F.LABEL_REPEATED, "required": F.LABEL_REQUIRED}
        field = message.field.add(name=spec.name, number=spec.number, label=label.get(spec.how, F.LABEL_OPTIONAL))
        if spec.how == "map":
            name = "".join(part[:1].upper() + part[1:] for part in spec.name.split("_")) + "Entry"
            entry = message.nested_type.add(name=name)
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=spec.key)
            _type(
                entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL),
                spec.kind,
                message,
                full,
                i,
                dot,
                syntax,
            )
            field.type, field.type_name = F.TYPE_MESSAGE, f"{full}.{name}"
            continue
        _type(field, spec.kind, message, full, i, dot, syntax)
        if spec.how == "group":
            field.type = F.TYPE_GROUP
        if spec.how == "oneof":
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0
        if spec.how == "optional" and syntax == "proto3":
            optional.append(field)
    for field in optional:  # the oneofs of proto3's optional fields come last
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"x{field.number}_optional")


def _type(field: Any, kind: Kind, message: Any, full: str, i: int, dot: str, syntax: str) -> None:
    if kind.what == "message":
        field.type, field.type_name = F.TYPE_MESSAGE, f"{full}.Inner{i}"
        _message(message.nested_type.add(name=f"Inner{i}"), kind.fields, f"{full}.Inner{i}", dot, syntax)
    elif kind.what == "enum":
        field.type, field.type_name = F.TYPE_ENUM, f"{dot}Number"
    elif isinstance(kind.what, str):
        field.type, field.type_name = F.TYPE_MESSAGE, f".google.protobuf.{kind.what}"
    else:
        field.type = kind.what


Pair = tuple[Any, Any]
"""What is put into the message, and what decode must give."""

any_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=4)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def values(kind: Kind, syntax: str) -> st.SearchStrategy[Pair]:
    if kind.what == "message":
        return records(kind.fields, syntax)
    if kind.what == "enum":
        unknown = st.integers(-(2**31), 2**31 - 1) if syntax == "proto3" else st.nothing()
        return st.one_of(st.sampled_from(list(ENUM)), unknown).map(lambda n: (n, ENUM.get(n, str(n))))
    if kind.what == "Empty":
        return st.just(({}, True))
    if kind.what == "Any":
        return st.builds(lambda t, v: ({"type_url": t, "value": v},) * 2, st.text(max_size=4), st.binary(max_size=4))
    if kind.what == "Timestamp":
        return st.builds(_timestamp, st.integers(FIRST_SECOND, LAST_SECOND), st.integers(0, 999_999_999))
    if kind.what == "Duration":
        return st.builds(_duration, st.integers(0, LONGEST), st.integers(0, 999_999_999), st.sampled_from([1, -1]))
    if kind.what in ("Struct", "Value", "ListValue"):
        return _json(str(kind.what))
    if isinstance(kind.what, str):
        inner = SCALARS[WRAPPERS[kind.what.removesuffix("Value")]]
        return inner.map(lambda v: ({"value": v}, _expected(v, WRAPPERS[str(kind.what).removesuffix("Value")])))
    return SCALARS[kind.what].map(lambda v: (v, _expected(v, kind.what)))


def _expected(value: Any, kind: Any) -> Any:
    return Decimal(value) if kind in DECIMALS else value


def _timestamp(seconds: int, nanos: int) -> Pair:
    time = EPOCH + datetime.timedelta(seconds=seconds, microseconds=nanos // 1000)
    return {"seconds": seconds, "nanos": nanos}, time


def _duration(seconds: int, nanos: int, sign: int) -> Pair:
    return {"seconds": sign * seconds, "nanos": sign * nanos}, sign * (seconds * 1_000_000 + nanos // 1000)


@dataclass(frozen=True)
class Json:
    value: Any


def _json(name: str) -> st.SearchStrategy[Pair]:
    inner = {"Struct": st.dictionaries(st.text(max_size=3), any_json, max_size=3), "ListValue": st.lists(any_json)}
    return inner.get(name, any_json).map(lambda value: (Json(value), Json(value)))


def records(fields: tuple[Spec, ...], syntax: str) -> st.SearchStrategy[Pair]:
    """What to set, by field; and the row."""

    @st.composite
    def one(draw: Any) -> Pair:
        put: dict[str, Any] = {}
        row: dict[str, Any] = {}
        members = [spec.name for spec in fields if spec.how == "oneof"]
        chosen = draw(st.sampled_from([None, *members])) if members else None
        for spec in fields:
            kind = values(spec.kind, syntax)
            absent = spec.name != chosen if spec.how == "oneof" else spec.how != "required" and draw(st.booleans())
            if spec.how == "repeated":
                pairs = draw(st.lists(kind, max_size=3))
                put[spec.name], row[spec.name] = [p for p, _ in pairs], [e for _, e in pairs]
            elif spec.how == "map":
                entries = draw(st.dictionaries(SCALARS[spec.key], kind, max_size=3))
                put[spec.name] = {k: p for k, (p, _) in entries.items()}
                row[spec.name] = {
                    json.dumps(k) if k in (True, False) and spec.key == F.TYPE_BOOL else str(k): e
                    for k, (_, e) in entries.items()
                }
            elif absent:
                row[spec.name] = _zero(spec)
            else:
                put[spec.name], row[spec.name] = draw(kind)
        return put, row

    return one()


def _zero(spec: Spec) -> Any:
    """What an absent field reads as."""
    if spec.how != "plain" or (isinstance(spec.kind.what, str) and spec.kind.what != "enum"):
        return None
    return "ZERO" if spec.kind.what == "enum" else ZERO.get(int(spec.kind.what), 0)


def written(schema: Schema, put: dict[str, Any]) -> bytes:
    """A message with these fields set, as protobuf's runtime writes it."""
    message = schema.new()
    fill(message, put)
    return bytes(type(message).__base__.SerializePartialToString(message))


def fill(message: Any, put: dict[str, Any]) -> None:
    set_in_parent = type(message).__base__.SetInParent
    set_in_parent(message)
    for name, value in put.items():
        field = getattr(message, name)
        if isinstance(value, Json):
            json_format.ParseDict(value.value, field)
            type(field).__base__.SetInParent(field)
        elif isinstance(value, list):
            for item in value:
                _append(field, item)
        elif isinstance(value, dict) and type(field).__name__.endswith("MapContainer"):
            for key, item in value.items():
                _put(field, key, item)
        elif isinstance(value, dict):
            fill(field, value)
        else:
            setattr(message, name, value)


def _append(field: Any, item: Any) -> None:
    if isinstance(item, dict):
        fill(field.add(), item)
    elif isinstance(item, Json):
        json_format.ParseDict(item.value, field.add())
    else:
        field.append(item)


def _put(field: Any, key: Any, item: Any) -> None:
    if isinstance(item, dict):
        fill(field[key], item)
    elif isinstance(item, Json):
        json_format.ParseDict(item.value, field[key])
    else:
        field[key] = item


def same(found: Any, expected: Any) -> bool:
    """Whether a decoded value is the expected one; JSON text is compared as what it says, a map as a dict."""
    if isinstance(expected, Json):
        return found is not None and json.loads(found) == expected.value
    if isinstance(expected, dict):
        found = dict(found) if isinstance(found, list) else found
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(same(found[k], expected[k]) for k in expected)
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and found == expected


@st.composite
def damaged(draw: Any, schema: Schema) -> bytes:
    """A message with some bytes changed, cut off, doubled or put in: still close enough to get far into a parser."""
    put, _ = draw(records(schema.fields, schema.syntax))
    raw = bytearray(written(schema, put))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(raw)))
        match draw(st.sampled_from(["change", "cut", "twice", "put", "group"])):
            case "change" if at < len(raw):
                raw[at] = draw(st.integers(0, 255))
            case "cut":
                del raw[at : at + draw(st.integers(1, 4))]
            case "twice":
                raw += (
                    raw[at:] if draw(st.booleans()) else written(schema, draw(records(schema.fields, schema.syntax))[0])
                )
            case "group":
                raw += bytes([0x0B, *draw(st.binary(max_size=4)), 0x0C])
            case _:
                raw[at:at] = draw(st.binary(max_size=4))
    return bytes(raw)
