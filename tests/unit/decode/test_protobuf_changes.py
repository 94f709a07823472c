"""What one Protobuf schema wrote comes out of another as the same value, or its schema is refused: never as another."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as F
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import record
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.protobuf.message import from_registered, from_text

ONE = b"\0\0\0\0\x05\0"  # header of schema 5, the first message of its file
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

small, wide = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
moment = st.builds(
    lambda seconds, nanos: {"seconds": seconds, "nanos": nanos}, st.integers(0, 2**31), st.integers(0, 999) | st.just(0)
)


def _number(value: Any) -> Any:
    return ("number", int(value or 0))


def _bytes(value: Any) -> Any:
    return ("bytes", value.encode() if isinstance(value, str) else bytes(value or b""))


def _real(value: Any) -> Any:
    return ("real", float(value or 0))


def _entries(pairs: list[tuple[Any, Any]]) -> Any:
    return ("entries", sorted(pairs, key=repr))


def _fields(value: dict[str, Any]) -> Any:
    """Of a message by number: a field may have another name."""
    return ("fields", list(value.values()))


@dataclass(frozen=True)
class Kind:
    """`told`: what a written value means; `seen`: what a decoded one does. Two that differ are two values."""

    declared: str
    values: st.SearchStrategy[Any]
    told: Callable[[Any], Any]
    seen: Callable[[Any], Any]
    beside: str = ""


def _plain(name: str, values: st.SearchStrategy[Any], meaning: Callable[[Any], Any]) -> Kind:
    return Kind(f"{name} x = 1;", values, meaning, meaning)


def _enum(*names: str) -> Kind:
    beside = f"enum E {{ {' '.join(f'{name} = {i};' for i, name in enumerate(names))} }}"
    numbers = st.integers(0, len(names) - 1)
    return Kind("E x = 1;", numbers, lambda n: ("enum", n, names[n]), lambda v: ("name", v or names[0]), beside)


def _time(value: Any) -> Any:
    return ("time", None if value is None else (value - EPOCH) // datetime.timedelta(microseconds=1))


ENTRY = "message Entry { string key = 1; int32 value = 2; }"
INNER = "message N { int32 y = 1; }"
INNER_WIDE = "message N { int64 y = 1; }"
pairs = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9)), max_size=3)

KINDS = {
    **{name: _plain(name, small, _number) for name in ("int32", "sint32", "sfixed32")},
    **{name: _plain(name, wide, _number) for name in ("int64", "sint64", "sfixed64")},
    **{name: _plain(name, st.integers(0, 2**32 - 1), _number) for name in ("uint32", "fixed32")},
    **{name: _plain(name, st.integers(0, 2**64 - 1), _number) for name in ("uint64", "fixed64")},
    "bool": _plain("bool", st.booleans(), _number),
    "float": _plain("float", st.floats(width=32, allow_nan=False), _real),
    "double": _plain("double", st.floats(allow_nan=False), _real),
    "string": _plain("string", st.text(max_size=4), _bytes),
    "bytes": _plain("bytes", st.binary(max_size=4), _bytes),
    "enum": _enum("A", "B", "C"),
    "enum renumbered": _enum("A", "C", "B"),
    "enum renamed": _enum("A", "B", "D"),
    "enum shorter": _enum("A", "B"),
    "timestamp": Kind(
        "google.protobuf.Timestamp x = 1;",
        moment,
        lambda v: ("time", v["seconds"] * 1_000_000 + v["nanos"] // 1000),
        _time,
    ),
    "duration": Kind(
        "google.protobuf.Duration x = 1;",
        moment,
        lambda v: ("span", v["seconds"] * 1_000_000 + v["nanos"] // 1000),
        lambda v: ("span", v),
    ),
    "own time": Kind(
        "N x = 1;",
        moment,
        _fields,
        _fields,
        "message N { int64 seconds = 1; int32 nanos = 2; }",
    ),
    "map": Kind("map<string, int32> x = 1;", pairs.map(dict), lambda v: _entries(list(v.items())), _entries),
    "entries": Kind(
        "repeated Entry x = 1;",
        pairs.map(lambda found: [{"key": k, "value": v} for k, v in found]),
        lambda v: _entries([(e["key"], e["value"]) for e in v]),
        lambda v: _entries([(e["key"], e["value"]) for e in v]),
        ENTRY,
    ),
    "repeated": Kind(
        "repeated int32 x = 1;", st.lists(small, max_size=3), lambda v: ("list", v), lambda v: ("list", v)
    ),
    "message": Kind("N x = 1;", small.map(lambda y: {"y": y}), _fields, _fields, INNER),
    "wider message": Kind("N x = 1;", wide.map(lambda y: {"y": y}), _fields, _fields, INNER_WIDE),
}
# By Protobuf's own rules an embedded message and its bytes are one: no two values to tell apart.
_SAME_BYTES = {"entries", "map", "message", "wider message", "own time", "timestamp", "duration"}


def text(kind: Kind) -> str:
    used = [name for name in ("timestamp", "duration") if f"google.protobuf.{name.capitalize()}" in kind.declared]
    imports = "".join(f'import "google/protobuf/{name}.proto"; ' for name in used)
    return f'syntax="proto3"; {imports} message M {{ {kind.declared} }} {kind.beside}'


@lru_cache(maxsize=64)
def _class_of(name: str) -> Any:
    return GetMessageClass(from_text(text(KINDS[name]), "M").descriptor())


@lru_cache(maxsize=1024)
def _decoder(reader: str, writer: str) -> ProtobufDecoder:
    registered = RegisteredSchema(5, "PROTOBUF", text(KINDS[writer]))
    return ProtobufDecoder(from_text(text(KINDS[reader]), "M"), {5: registered}.get)


def _agree(told: Any, seen: Any) -> bool:
    match told, seen:
        case ("enum", number, name), ("name", found):
            return found in (name, str(number))  # of a number without a name a view has the digits
        case ("enum", number, _), ("number", found):
            return bool(number == found)
        case ("number", number), ("name", found):
            return found in ("A", "B", "C", "D") or found == str(number)  # the reader's name of that number
        case ("number" | "enum", number, *_), ("list", found):
            return found == [number] or (number == 0 and found == [])
        case ("fields", numbers), ("fields", found):  # what only one of the two has is skipped, or zero
            return all(one == other for one, other in zip(numbers, found, strict=False)) and not any(
                found[len(numbers) :]
            )
    return bool(told == seen)


@pytest.mark.parametrize("writer", sorted(KINDS))
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_value_is_read_as_what_was_written_or_its_schema_is_refused(writer: str, data: Any) -> None:
    value = data.draw(KINDS[writer].values)
    body = _class_of(writer)(x=value).SerializeToString()
    for reader in sorted(KINDS):
        decoded = _decoder(reader, writer)(pa.array([ONE + body], pa.binary()))
        if decoded.failures:
            assert decoded.failures[0].error_class == record.INCOMPATIBLE_SCHEMA or writer == "bytes"
        elif not ({writer, reader} & _SAME_BYTES and "bytes" in (writer, reader)):
            seen = KINDS[reader].seen(decoded.columns[0][0].as_py())
            assert _agree(KINDS[writer].told(value), seen), reader


@settings(max_examples=300)
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_value_is_read_by_the_schema_that_wrote_it(name: str, data: Any) -> None:
    value = data.draw(KINDS[name].values)
    decoded = _decoder(name, name)(pa.array([ONE + _class_of(name)(x=value).SerializeToString()], pa.binary()))
    assert decoded.failures == {}
    assert _agree(KINDS[name].told(value), KINDS[name].seen(decoded.columns[0][0].as_py()))


Shape = dict[str, tuple[int, int]]  # by name: number and type
shapes = st.builds(
    lambda names, numbers, kinds: {n: (at, kind) for n, at, kind in zip(names, numbers, kinds, strict=False)},
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True),
    st.permutations([1, 2, 3]),
    st.lists(st.sampled_from([F.TYPE_INT32, F.TYPE_STRING]), min_size=3, max_size=3),
)


def _registered(shape: Shape) -> RegisteredSchema:
    file = FileDescriptorProto(name="m.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    for name, (number, kind) in shape.items():
        message.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL)
    return RegisteredSchema(5, "PROTOBUF", base64.b64encode(file.SerializeToString()).decode())


@settings(max_examples=300)
@given(shapes, shapes)
def test_a_field_that_changed_number_is_not_read_as_absent_nor_as_another(writer: Shape, reader: Shape) -> None:
    put = {name: at if kind == F.TYPE_INT32 else f"t{at}" for name, (at, kind) in writer.items()}
    body = GetMessageClass(from_registered(_registered(writer)).descriptor())(**put).SerializeToString()
    decoder = ProtobufDecoder(from_registered(_registered(reader)), {5: _registered(writer)}.get)
    decoded = decoder(pa.array([ONE + body], pa.binary()))
    moved = [name for name in reader if name in writer and reader[name] != writer[name]]
    if decoded.failures:
        assert decoded.failures[0].error_class == record.INCOMPATIBLE_SCHEMA
        retyped = [at for at, kind in reader.values() for n, k in writer.values() if n == at and k != kind]
        assert moved or retyped  # never without need
        return
    by_number = {at: put[name] for name, (at, _) in writer.items()}
    for (name, (at, kind)), column in zip(reader.items(), decoded.columns, strict=True):
        zero = 0 if kind == F.TYPE_INT32 else ""
        assert column[0].as_py() == put.get(name, by_number.get(at, zero))
