"""What a Protobuf message looks like as a row: the mapping of types, written once for all that read messages.

`shape_of` walks a descriptor and gives a tree of shapes; the Spark type of each, `struct_of`, and both readers
(`protobuf.rows`, `protobuf.batch`) follow from that tree.

| Protobuf | column |
|---|---|
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64 | bigint |
| uint32, fixed32 | bigint |
| uint64, fixed64 | decimal(20,0) |
| float, double, bool, string, bytes | float, double, boolean, string, binary |
| enum | string: the name; of a number without a name, the number |
| message | struct; one without fields: boolean, true where it is present |
| repeated | array |
| map | map; keys that are no strings as text, as in Protobuf's JSON |
| Timestamp | timestamp, cut to microseconds |
| Duration | bigint, microseconds, cut |
| StringValue and the other wrappers | the scalar, null where absent |
| Struct, Value, ListValue | string that holds JSON |
| Any | struct<type_url:string,value:binary> |

A field with presence (`optional`, proto2, a member of a oneof, a message) is null where it is absent, also when proto2
declares a default for it. A field without presence is never null: absent is its zero. Extensions are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]

from penstock.registry.protobuf.message import SchemaMistake
from penstock.spec.types import MOST_DEPTH, Array, Decimal, Map, Member, Scalar, Struct, Type

MOST_FIELDS = 10_000  # of a whole row; messages that contain each other's kinds twice would double at every level

_SCALARS: dict[int, Type] = {
    FieldDescriptor.TYPE_INT32: Scalar("int"),
    FieldDescriptor.TYPE_SINT32: Scalar("int"),
    FieldDescriptor.TYPE_SFIXED32: Scalar("int"),
    FieldDescriptor.TYPE_INT64: Scalar("bigint"),
    FieldDescriptor.TYPE_SINT64: Scalar("bigint"),
    FieldDescriptor.TYPE_SFIXED64: Scalar("bigint"),
    FieldDescriptor.TYPE_UINT32: Scalar("bigint"),
    FieldDescriptor.TYPE_FIXED32: Scalar("bigint"),
    FieldDescriptor.TYPE_UINT64: Decimal(20, 0),
    FieldDescriptor.TYPE_FIXED64: Decimal(20, 0),
    FieldDescriptor.TYPE_FLOAT: Scalar("float"),
    FieldDescriptor.TYPE_DOUBLE: Scalar("double"),
    FieldDescriptor.TYPE_BOOL: Scalar("boolean"),
    FieldDescriptor.TYPE_STRING: Scalar("string"),
    FieldDescriptor.TYPE_BYTES: Scalar("binary"),
}
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}


class RecursiveMessage(SchemaMistake):
    """A message contains itself: no row can hold it. `path` leads to the field that closes the circle."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: a {message} inside a {message}; a message that contains itself cannot be a row")
        self.path = path


@dataclass(frozen=True)
class Plain:
    """A scalar; `type` is a FieldDescriptor.TYPE_*."""

    type: int


@dataclass(frozen=True)
class Enum:
    names: tuple[tuple[int, str], ...]  # of two names for one number, the first
    others: tuple[tuple[int, str], ...] = ()  # the other names
    name: str = ""
    closed: bool = False  # a number without a name is none of its values: proto2


@dataclass(frozen=True)
class Timestamp:
    pass


@dataclass(frozen=True)
class Duration:
    pass


@dataclass(frozen=True)
class Wrapper:
    value: Plain


@dataclass(frozen=True)
class Json:
    descriptor: Any  # of google.protobuf.Struct, Value or ListValue, in the pool of the message


@dataclass(frozen=True)
class Presence:
    """A message without fields: that it is there is all it says."""


@dataclass(frozen=True)
class Message:
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Pairs:
    """A map."""

    key: Plain
    value: Shape


Shape = Plain | Enum | Timestamp | Duration | Wrapper | Json | Presence | Message | Pairs


@dataclass(frozen=True)
class Field:
    name: str
    number: int
    shape: Shape
    repeated: bool = False  # also false for a map
    presence: bool = False
    required: bool = False
    group: bool = False  # written between two tags instead of with a length
    packed: bool = False  # repeated numbers that are written as one value
    oneof: str | None = None  # the name of a oneof that has other members too


def struct_of(descriptor: Any) -> Struct:
    """The columns that records of this message become. Raises SchemaMistake where they cannot be columns."""
    return _struct(shape_of(descriptor))


def shape_of(descriptor: Any) -> Message:
    shape = _Walk().message(descriptor, "", {descriptor.full_name})
    if not shape.fields:
        raise SchemaMistake(f"{descriptor.full_name} has no fields: there is nothing to make columns of")
    return shape


def type_of(shape: Shape) -> Type:
    match shape:
        case Plain(type=number):
            return _SCALARS[number]
        case Enum() | Json():
            return Scalar("string")
        case Timestamp():
            return Scalar("timestamp")
        case Duration():
            return Scalar("bigint")
        case Wrapper(value=value):
            return type_of(value)
        case Presence():
            return Scalar("boolean")
        case Pairs(value=value):
            return Map(type_of(value))
        case Message():
            return _struct(shape)


def _struct(message: Message) -> Struct:
    return Struct(tuple(Member(f.name, field_type(f), f.required) for f in message.fields))


def field_type(field: Field) -> Type:
    inner = type_of(field.shape)
    return Array(inner) if field.repeated else inner


def within(message: Message) -> Iterator[Field]:
    """All fields of a message and of the messages in it."""
    for field in message.fields:
        yield field
        inner = field.shape.value if isinstance(field.shape, Pairs) else field.shape
        if isinstance(inner, Message):
            yield from within(inner)


class _Walk:
    """From a descriptor to shapes; counts the fields of the whole row."""

    def __init__(self) -> None:
        self.count = 0

    def message(self, descriptor: Any, path: str, above: set[str]) -> Message:
        if len(above) > MOST_DEPTH:
            raise SchemaMistake(f"{path}: messages are nested at most {MOST_DEPTH} levels deep")
        fields: list[Field] = []
        for field in descriptor.fields:
            here = f"{path}.{field.name}" if path else field.name
            self.count += 1
            if self.count > MOST_FIELDS:
                raise SchemaMistake(f"{here}: a row has at most {MOST_FIELDS} fields, with those of nested messages")
            if any(field.name.lower() == other.name.lower() for other in fields):
                raise SchemaMistake(f"{here}: two fields of this name; SQL does not tell upper from lower case")
            fields.append(self.field(field, here, above))
        return Message(tuple(fields))

    def field(self, field: Any, path: str, above: set[str]) -> Field:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = (field.message_type.fields_by_number[number] for number in (1, 2))
            return Field(field.name, field.number, Pairs(Plain(key.type), self.shape(value, path, above)))
        return Field(
            field.name,
            field.number,
            self.shape(field, path, above),
            repeated=field.is_repeated,
            presence=field.has_presence,
            required=field.is_required,
            group=field.type == FieldDescriptor.TYPE_GROUP,
            packed=field.is_packed,
            oneof=_oneof(field),
        )

    def shape(self, field: Any, path: str, above: set[str]) -> Shape:
        if field.enum_type is not None:
            names: dict[int, str] = {}
            for value in field.enum_type.values:
                names.setdefault(value.number, value.name)
            others = [(v.number, v.name) for v in field.enum_type.values if names[v.number] != v.name]
            return Enum(tuple(names.items()), tuple(others), field.enum_type.full_name, field.enum_type.is_closed)
        descriptor = field.message_type
        if descriptor is None:
            return Plain(field.type)
        name = descriptor.full_name
        if descriptor.file.name.startswith("google/protobuf/"):  # not somebody's own of the same name
            if name == "google.protobuf.Timestamp":
                return Timestamp()
            if name == "google.protobuf.Duration":
                return Duration()
            if name in _WRAPPERS:
                return Wrapper(Plain(descriptor.fields_by_name["value"].type))
            if name in _JSON:
                return Json(descriptor)
        if name in above:
            raise RecursiveMessage(path, name)
        if not descriptor.fields:
            return Presence()
        return self.message(descriptor, path, above | {name})


def _oneof(field: Any) -> str | None:
    oneof = field.containing_oneof  # also made up by protoc around an `optional` field, alone
    return oneof.name if oneof is not None and len(oneof.fields) > 1 else None
