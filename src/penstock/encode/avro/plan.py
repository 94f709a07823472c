"""From an Avro schema and the columns there are to a writer: which column fits which field.

| Avro | column |
|---|---|
| boolean, string, bytes | boolean, string, binary |
| int, long, time-millis, time-micros | tinyint to bigint, when the number fits |
| float | float, tinyint, smallint |
| double | double, float, tinyint to int |
| enum | string, one of the symbols |
| uuid on string | string that is one |
| fixed, duration | binary of that size |
| decimal on bytes or fixed | decimal of any scale, when the number fits without rounding |
| date | date |
| timestamp-millis, -micros; local- | timestamp; timestamp_ntz, when the time fits the unit |
| timestamp-nanos, local-timestamp-nanos | bigint, the number itself; or timestamp, timestamp_ntz |
| record, array, map | struct, array, map<string,…> |
| `["null", X]` | X |
| other unions | struct<member0, member1, …> with one of them set; or what fits the first branch that takes it |

Times outside the years 1 to 9999 are refused, as decode would refuse them.
"""

from __future__ import annotations

from penstock.encode.arrow.encoded import ColumnsMistake, below
from penstock.encode.arrow.wire import Writer, constant
from penstock.encode.avro import nested, scalars
from penstock.registry.avro.default import encoded, number
from penstock.registry.avro.model import (
    NO_DEFAULT,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    described,
)
from penstock.registry.avro.view import MOST_DIGITS, present_branches
from penstock.spec import types
from penstock.spec.mistake import near

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TAKES = {
    "boolean": ("boolean",),
    "int": _WHOLE,
    "long": _WHOLE,
    "float": ("float", "tinyint", "smallint"),
    "double": ("double", "float", "tinyint", "smallint", "int"),
    "string": ("string",),
    "bytes": ("binary",),
    "fixed": ("binary",),
    "date": ("date",),
    "timestamp-millis": ("timestamp",),
    "timestamp-micros": ("timestamp",),
    "timestamp-nanos": (*_WHOLE, "timestamp"),
    "local-timestamp-millis": ("timestamp_ntz",),
    "local-timestamp-micros": ("timestamp_ntz",),
    "local-timestamp-nanos": (*_WHOLE, "timestamp_ntz"),
}


def record_writer(schema: Record, struct: types.Struct, path: str = "", *, ignore_extra: bool = False) -> Writer:
    """Raises ColumnsMistake, with all that is wrong with all fields."""
    columns = {member.name: member.type for member in struct.members}
    fields: list[tuple[str | None, Writer]] = []
    wrong: list[str] = []
    names = [field.name for field in schema.fields]
    if not ignore_extra:
        wrong += [_extra(below(path, name), name, names) for name in columns if name not in names]
    for field in schema.fields:
        here = below(path, field.name)
        try:
            if field.name in columns:
                fields.append((field.name, _writer(field.type, columns[field.name], here, ignore_extra)))
            else:
                fields.append((None, nested.always(constant(_default(field, here)))))
        except ColumnsMistake as mistake:
            wrong += mistake.reasons
    if wrong:
        raise ColumnsMistake(*wrong)
    return nested.record(fields)


def _extra(path: str, name: str, names: list[str]) -> str:
    hint = near(name, names)
    return f"{path}: the schema has no such field" + (f"; {hint}" if hint else "")


def _default(field: Field, path: str) -> bytes:
    if field.default is not NO_DEFAULT:
        return encoded(field.type, field.default, path)
    if field.type.kind == "null":
        return b""
    if isinstance(field.type, Union):
        for i, branch in enumerate(field.type.branches):
            if branch.kind == "null":
                return number(i)
    raise ColumnsMistake(f"{path}: there is no such column, and the schema has no default for it")


def _writer(schema: Schema, column: types.Type, path: str, ignore_extra: bool) -> Writer:
    match schema, column:
        case Union(), _:
            return _union(schema, column, path, ignore_extra)
        case Record(), types.Struct():
            return nested.required(path, record_writer(schema, column, path, ignore_extra=ignore_extra))
        case Array(items=items), types.Array(item=item):
            return nested.required(path, nested.array(_writer(items, item, f"{path}[]", ignore_extra)))
        case Map(values=values), types.Map(value=value):
            inside = f"{path}[...]"
            return nested.required(path, nested.mapping(inside, _writer(values, value, inside, ignore_extra)))
        case Enum(), types.Scalar(name="string"):
            return nested.required(path, scalars.enumeration(path, schema))
        case Primitive() | Fixed(), types.Decimal() if schema.logical and schema.logical.name == "decimal":
            if schema.logical.precision > MOST_DIGITS:
                raise ColumnsMistake(f"{path}: {schema.logical} has more than {MOST_DIGITS} digits")
            return nested.required(path, scalars.decimal(path, schema, column))
        case Primitive() | Fixed(), types.Scalar(name=name) if name in _taken(schema):
            return nested.required(path, scalars.scalar(path, schema, name))
    raise ColumnsMistake(f"{path}: a column of {column.ddl()} cannot be written as {described(schema)}")


def _taken(schema: Primitive | Fixed) -> tuple[str, ...]:
    if schema.logical is None:
        return _TAKES.get(schema.kind, ())
    if schema.logical.name == "decimal":
        return ()
    return _TAKES.get(schema.logical.name) or _TAKES[schema.kind]


def _union(union: Union, column: types.Type, path: str, ignore_extra: bool) -> Writer:
    null = next((i for i, b in enumerate(union.branches) if b.kind == "null"), None)
    branches = [(i, b) for i, b in enumerate(union.branches) if b.kind != "null"]
    seen = present_branches(union)
    if len(seen) == 1 and len(branches) > 1:  # int and long are one column: the wider branch holds both
        branches = [(i, b) for i, b in branches if b.kind == seen[0].kind]
    if len(branches) > 1 and isinstance(column, types.Struct):
        members = {f"member{place}": branch for place, branch in enumerate(branches)}
        if {m.name for m in column.members} <= members.keys():
            writers = [
                (m.name, members[m.name][0], _writer(members[m.name][1], m.type, below(path, m.name), ignore_extra))
                for m in column.members
            ]
            return nested.one_of(path, writers, null)
    wrong: list[str] = []
    for i, branch in branches:
        try:
            return nested.nullable(path, i, _writer(branch, column, path, ignore_extra), null)
        except ColumnsMistake as mistake:
            wrong += mistake.reasons
    if len(wrong) == len(branches) == 1:
        raise ColumnsMistake(*wrong)
    raise ColumnsMistake(f"{path}: a column of {column.ddl()} cannot be written as {described(union)}")
