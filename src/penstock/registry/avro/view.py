"""What the view of an Avro reader schema looks like: the types that Spark's `from_avro` gives, plus what is required.

Where Spark's own reading loses nothing, ours is the same: times of day and nanoseconds stay the numbers they are
written as, a union of several types becomes a struct `member0`, `member1`, ... of which one is set, a union of int and
long is a bigint, one of float and double a double. (Spark makes a bigint even of a union of date and timestamp. We do
not: nobody could tell which of the two a number is.)
"""

from __future__ import annotations

from penstock.registry.avro.model import (
    Array,
    AvroSchemaMistake,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    width_of,
)
from penstock.spec import types

MOST_DIGITS = 38
MOST_MEMBERS = 10_000  # of one view; a type that is named twice on every level would grow beyond any memory

_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
TYPED = {  # logical types with a Spark type of their own, beside decimal
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
_WIDER = {frozenset(("int", "long")): Primitive("long"), frozenset(("float", "double")): Primitive("double")}


def view_of(schema: Schema) -> types.Struct:
    """The columns that records get when they are read by this schema. Raises AvroSchemaMistake."""
    if not isinstance(schema, Record):
        raise AvroSchemaMistake(f"the top of a reader schema must be a record, not {schema.kind}")
    return _Viewer().struct(schema, schema.name, (), 0)


def view_type(schema: Schema) -> types.Type:
    """The type of a schema that is known to be part of a view."""
    return _Viewer().type(schema, "", (), 0)


def nullable(schema: Schema) -> bool:
    return isinstance(schema, Union) and any(b.kind == "null" for b in schema.branches)


def present_branches(union: Union) -> tuple[Schema, ...]:
    """The branches of a reader's union that hold values; of two kinds of number the wider one stands for both."""
    found = tuple(b for b in union.branches if b.kind != "null")
    if any(isinstance(b, Primitive) and b.logical for b in found):
        return found  # a day and a millisecond are no two sizes of one number
    wider = _WIDER.get(frozenset(b.kind for b in found))
    return (wider,) if wider else found


class _Viewer:
    def __init__(self) -> None:
        self.members = 0

    def type(self, schema: Schema, path: str, inside: tuple[Record, ...], depth: int) -> types.Type:
        if depth > types.MOST_DEPTH:
            raise AvroSchemaMistake(f"{path}: nested more than {types.MOST_DEPTH} levels deep")
        match schema:
            case Primitive(kind="null"):
                raise AvroSchemaMistake(f"{path}: only null; a view has no type for that")
            case Primitive() | Fixed():
                return self.scalar(schema, path)
            case Enum():
                return types.Scalar("string")
            case Array(items=items):
                if width_of(items) == 0:
                    raise AvroSchemaMistake(f"{path}: an array whose items take no bytes could claim any length")
                return types.Array(self.type(items, f"{path}[]", inside, depth + 1))
            case Map(values=values):
                return types.Map(self.type(values, f"{path}[]", inside, depth + 1))
            case Union():
                return self.union(schema, path, inside, depth)
            case Record():
                return self.struct(schema, path, inside, depth)
        raise AssertionError(schema)

    def scalar(self, schema: Primitive | Fixed, path: str) -> types.Type:
        logical = schema.logical
        if logical is not None and logical.name == "decimal":
            if logical.precision > MOST_DIGITS:
                raise AvroSchemaMistake(f"{path}: {logical} has more than {MOST_DIGITS} digits")
            return types.Decimal(logical.precision, logical.scale)
        if logical is not None and logical.name in TYPED:
            return types.Scalar(TYPED[logical.name])
        return types.Scalar("binary" if isinstance(schema, Fixed) else _PRIMITIVES[schema.kind])

    def union(self, union: Union, path: str, inside: tuple[Record, ...], depth: int) -> types.Type:
        branches = present_branches(union)
        if not branches:
            raise AvroSchemaMistake(f"{path}: only null; a view has no type for that")
        if len(branches) == 1:
            return self.type(branches[0], path, inside, depth)
        found = [self.type(b, f"{path}.member{i}", inside, depth + 1) for i, b in enumerate(branches)]
        return types.Struct(tuple(types.Member(f"member{i}", t) for i, t in enumerate(found)))

    def struct(self, record: Record, path: str, inside: tuple[Record, ...], depth: int) -> types.Struct:
        if record in inside:
            raise AvroSchemaMistake(f"{path}: {record.name} contains itself; a recursive type has no Spark type")
        if not record.fields:
            raise AvroSchemaMistake(f"{path}: a record without fields has no columns")
        self.members += len(record.fields)
        if self.members > MOST_MEMBERS:
            raise AvroSchemaMistake(f"{path}: the view would have more than {MOST_MEMBERS} fields")
        members: list[types.Member] = []
        for field in record.fields:
            below = f"{path}.{field.name}"
            if any(m.name.lower() == field.name.lower() for m in members):
                raise AvroSchemaMistake(f"{below}: there twice (SQL does not tell upper from lower case)")
            kind = self.type(field.type, below, (*inside, record), depth + 1)
            members.append(types.Member(field.name, kind, required=not nullable(field.type)))
        return types.Struct(tuple(members))
