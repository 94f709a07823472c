"""Default values: from the JSON in a reader schema to the bytes a writer would have written."""

from __future__ import annotations

import struct
from typing import Any

from penstock.registry.avro.model import (
    NO_DEFAULT,
    Array,
    AvroSchemaMistake,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    described,
)


def encoded(schema: Schema, value: Any, path: str) -> bytes:
    """Raises AvroSchemaMistake when the value is none of the schema."""
    match schema:
        case Primitive() | Fixed():
            written = _scalar(schema, value)
            if written is not None:
                return written
        case Enum(symbols=symbols) if isinstance(value, str) and value in symbols:
            return number(symbols.index(value))
        case Array(items=items) if isinstance(value, list):
            return _block(len(value), b"".join(encoded(items, v, f"{path}[]") for v in value))
        case Map(values=values) if isinstance(value, dict):
            return _block(len(value), b"".join(_sized(k.encode()) + encoded(values, v, path) for k, v in value.items()))
        case Record(fields=fields) if isinstance(value, dict):
            given = {f.name: value.get(f.name, f.default) for f in fields}
            absent = [name for name, v in given.items() if v is NO_DEFAULT]
            if absent:
                raise AvroSchemaMistake(f"{path}: the default lacks the field '{absent[0]}'")
            return b"".join(encoded(f.type, given[f.name], f"{path}.{f.name}") for f in fields)
        case Union(branches=branches):
            return _branch(branches, value, path)
    raise AvroSchemaMistake(f"{path}: the default {value!r:.80} is no {described(schema)}")


def _branch(branches: tuple[Schema, ...], value: Any, path: str) -> bytes:
    """The first branch, as the specification had it, or since 1.12 any that fits."""
    for i, branch in enumerate(branches):
        try:
            return number(i) + encoded(branch, value, path)
        except AvroSchemaMistake:
            continue
    raise AvroSchemaMistake(f"{path}: the default {value!r:.80} is none of {described(Union(branches))}")


def _scalar(schema: Primitive | Fixed, value: Any) -> bytes | None:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        match schema.kind:
            case "null" if value is None:
                return b""
            case "boolean" if isinstance(value, bool):
                return bytes([value])
            case "int" if isinstance(value, int) and numeric and -(2**31) <= value < 2**31:
                return number(value)
            case "long" if isinstance(value, int) and numeric and -(2**63) <= value < 2**63:
                return number(value)
            case "float" if numeric:
                return struct.pack("<f", value)
            case "double" if numeric:
                return struct.pack("<d", value)
            case "string" if isinstance(value, str):
                return _sized(value.encode())
            case "bytes" if isinstance(value, str):
                return _sized(value.encode("latin-1"))  # the characters 0 to 255 stand for bytes
            case "fixed" if isinstance(schema, Fixed) and isinstance(value, str) and len(value) == schema.size:
                return value.encode("latin-1")
    except (OverflowError, UnicodeEncodeError):
        return None
    return None


def number(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def _sized(raw: bytes) -> bytes:
    return number(len(raw)) + raw


def _block(count: int, items: bytes) -> bytes:
    return number(count) + items + b"\0" if count else b"\0"
