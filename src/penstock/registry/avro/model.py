"""Avro schemas as a tree in which every name is resolved. Made from text by `avro.parse`.

Records are compared by identity and may contain themselves; everything a decoder does not need (doc, order) is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NO_DEFAULT: Any = object()
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class AvroSchemaMistake(ValueError):
    """The text is not an Avro schema, or not one that can be a view; the message names the path in the schema."""


@dataclass(frozen=True)
class Logical:
    name: str
    precision: int = 0  # of a decimal
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name


@dataclass(frozen=True)
class Primitive:
    kind: str
    logical: Logical | None = None


@dataclass(frozen=True)
class Fixed:
    name: str
    aliases: tuple[str, ...]
    size: int
    logical: Logical | None = None
    kind = "fixed"


@dataclass(frozen=True)
class Enum:
    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None
    kind = "enum"


@dataclass(frozen=True)
class Array:
    items: Schema
    kind = "array"


@dataclass(frozen=True)
class Map:
    values: Schema
    kind = "map"


@dataclass(frozen=True)
class Union:
    branches: tuple[Schema, ...]
    kind = "union"


@dataclass(eq=False)
class Record:
    name: str
    aliases: tuple[str, ...]
    fields: list[Field] = field(default_factory=list)  # filled after the name is known: it may refer to itself
    width: int | None = None
    kind = "record"


@dataclass(frozen=True)
class Field:
    name: str
    aliases: tuple[str, ...]
    type: Schema
    default: Any


Schema = Primitive | Fixed | Enum | Array | Map | Union | Record
Named = Fixed | Enum | Record

# What a value of a kind can be read as, without loss of its meaning (Avro's schema resolution).
PROMOTED = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "double": ("double",),
    "boolean": ("boolean",),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}


def width_of(schema: Schema) -> int | None:
    """How many bytes every value of this schema takes; None when that differs."""
    match schema:
        case Primitive(kind=kind):
            return _WIDTHS.get(kind)
        case Fixed(size=size):
            return size
        case Record(width=width):
            return width
    return None


def described(schema: Schema) -> str:
    """The type in the words of a reason: `timestamp-millis`, `enum Colour`, `null or string`."""
    match schema:
        case Union(branches=branches):
            return " or ".join(described(b) for b in branches) or "nothing"
        case Primitive(logical=Logical() as logical) | Fixed(logical=Logical() as logical):
            return str(logical)
        case Fixed(name=name) | Enum(name=name) | Record(name=name):
            return f"{schema.kind} {name}"
    return schema.kind
