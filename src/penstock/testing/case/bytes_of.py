"""A value written in YAML as the bytes of a record, in the format that the spec reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.decode.avro.decoder import struct_of as avro_struct
from penstock.decode.json import JsonDecoder
from penstock.encode.arrow.encoded import ColumnsMistake, Encoder
from penstock.encode.arrow.wire import header_of
from penstock.encode.avro.encoder import AvroEncoder
from penstock.encode.protobuf.encoder import ProtobufEncoder
from penstock.errors import SpecInvalid
from penstock.registry.avro.model import AvroSchemaMistake
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.file import message_of, path_of, text_of
from penstock.registry.protobuf import message as protobuf
from penstock.registry.protobuf.shape import struct_of as protobuf_struct
from penstock.spec.formats import AnyFormat, AvroFormat, BytesFormat, CsvFormat, JsonFormat, ProtobufFormat
from penstock.spec.load import declared
from penstock.spec.types import Struct
from penstock.testing.case.registry import FileRegistry

_JSON = msgspec.json.Encoder(decimal_format="number")
_LARGE = 2**63


class DoesNotFit(ValueError):
    """The value cannot be written in this format. To test what becomes of bad bytes, they are given as bytes."""


@dataclass(frozen=True)
class Place:
    """Where schemas are found: files below `base`, subjects in `registry`; `subject` is the topic's own by custom."""

    base: Path
    registry: FileRegistry
    subject: str | None


def encoded(how: AnyFormat | None, value: Any, at: Place, version: int | None = None) -> bytes:
    """Raises DoesNotFit, and SpecInvalid where the tests lack a schema."""
    match how:
        case JsonFormat(schema_=None):
            return header_of(_registered(how, at, version).id) + as_json(value)
        case JsonFormat():
            return as_json(value)
        case AvroFormat() | ProtobufFormat():
            return _by_schema(how, value, at, version)
        case CsvFormat():
            return _line(how, value, at)
    if isinstance(value, dict | list):
        kind = "bytes" if isinstance(how, BytesFormat) else "text"
        raise DoesNotFit(f"expected text, found a {'mapping' if isinstance(value, dict) else 'list'}: it is {kind}")
    return _plain(value).encode()


def as_json(value: Any) -> bytes:
    """JSON, numbers with the digits that are written."""
    return _JSON.encode(_encodable(value))


def _encodable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encodable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -_LARGE <= value < _LARGE:
        return Decimal(value)
    return value


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _line(how: CsvFormat, value: Any, at: Place) -> bytes:
    names = list(declared(at.base, how.schema_, flat=True).fields)
    if isinstance(value, dict):
        if unknown := [name for name in value if name not in names]:
            raise DoesNotFit(f"the schema has no field '{unknown[0]}'; it has: {', '.join(names)}")
        value = [value.get(name) for name in names]
    if not isinstance(value, list):
        return _plain(value).encode()
    out = io.StringIO()
    csv.writer(out, delimiter=how.delimiter, lineterminator="").writerow(map(_plain, value))
    return out.getvalue().encode()


def _by_schema(how: AvroFormat | ProtobufFormat, value: Any, at: Place, version: int | None) -> bytes:
    if not isinstance(value, dict):
        raise DoesNotFit(f"expected a mapping, which is written as {how.format}")
    try:
        struct, make = _schema(how, at, version)
    except (AvroSchemaMistake, protobuf.SchemaMistake) as mistake:
        raise SpecInvalid(f"a value cannot be written as {how.format}", cause=str(mistake)) from None
    names = [member.name for member in struct.members]
    if unknown := [name for name in value if name not in names]:
        raise DoesNotFit(f"the schema has no field '{unknown[0]}'; it has: {', '.join(names)}")
    # What is left out is written as its default, or as null, or not at all: as its format has it.
    given = Struct(tuple(member for member in struct.members if member.name in value))
    columns: list[pa.Array] = []
    if given.members:
        read = JsonDecoder(given)(pa.array([as_json(value)], pa.binary()))
        for failure in read.failures.values():
            raise DoesNotFit(failure.reason)
        columns = read.columns
    try:
        encoder = make(given)
    except ColumnsMistake as mistake:
        raise DoesNotFit(str(mistake)) from None
    whole = pa.StructArray.from_arrays(columns, [m.name for m in given.members]) if columns else None
    batch = pa.RecordBatch.from_struct_array(whole if whole is not None else pa.array([{}], pa.struct([])))
    done = encoder(batch)
    for failure in done.failures.values():
        raise DoesNotFit(failure.reason)
    found: bytes = done.values[0].as_py()
    return found


def _schema(
    how: AvroFormat | ProtobufFormat, at: Place, version: int | None
) -> tuple[Struct, Callable[[Struct], Encoder]]:
    """The fields of a schema, and an encoder for some of them."""
    if how.wire == "raw":
        assert how.schema_ is not None  # the model asks for one
        if isinstance(how, AvroFormat):
            text = text_of(at.base, how.schema_)
            return avro_struct(text), lambda given: AvroEncoder(text, given, None)
        message = _message(at.base, how.schema_, how.message)
        return protobuf_struct(message.descriptor()), lambda given: ProtobufEncoder(message, given, None)
    schema = _registered(how, at, version)
    if isinstance(how, AvroFormat):
        return avro_struct(schema), lambda given: AvroEncoder(schema, given, schema.id)
    message = _of_registry(schema, how.message)
    return protobuf_struct(message.descriptor()), lambda given: ProtobufEncoder(message, given, schema.id)


def _registered(how: JsonFormat | AvroFormat | ProtobufFormat, at: Place, version: int | None) -> RegisteredSchema:
    """The writer's schema: a version of its subject in `schemas`; without one, the file that the spec reads with."""
    subject = how.subject or at.subject
    if subject is None:
        raise SpecInvalid(
            "a pattern of topics has no subject of its own", next_command="add `subject: ...` to the spec"
        )
    if subject not in at.registry.subjects() and isinstance(how.schema_, str):
        at.registry.take(subject, path_of(at.base, how.schema_))
    found = at.registry.latest(subject) if version is None else at.registry.version(subject, version)
    return found.schema


@lru_cache(maxsize=64)  # a .proto file is compiled
def _message(base: Path, written: str, message: str | None) -> protobuf.MessageSchema:
    return message_of(base, written, message)


@lru_cache(maxsize=64)
def _of_registry(schema: RegisteredSchema, message: str | None) -> protobuf.MessageSchema:
    return protobuf.from_registered(schema, message)
