"""The rules by which what one schema wrote is read as another: from a pair of schemas to a reader of columns.

They are those of the Avro specification, as Java's implementation takes them where it leaves a choice:

- fields meet by name, else by an alias of the reader's; what the reader lacks is dropped, what the writer lacks has
  the reader's default; without one the schemas do not fit;
- int -> long -> float -> double, string <-> bytes; a symbol that the reader's enum lacks becomes its default;
- enums and fixed need the same name, not counting the namespace, or an alias; records only where a union has several;
- a branch of the writer's union that the reader cannot hold is no fault until a record uses it.

Stricter than Java in one point: two logical types that differ (milliseconds and microseconds, decimals of other scale)
do not fit, nor does one that changes what a value is (a date, a timestamp, a decimal) fit a bare number or bare bytes.
Java would read the number of one as the other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock import record
from penstock.decode.arrow.columns import arrow_type
from penstock.decode.arrow.page import Page
from penstock.decode.avro import scalars
from penstock.decode.avro.cursor import Cursor
from penstock.decode.avro.items import array, mapping
from penstock.decode.avro.nested import member, struct, union
from penstock.decode.avro.scalars import Reader
from penstock.decode.avro.walk import Walk, entry_walk, walk_of
from penstock.registry.avro.default import encoded
from penstock.registry.avro.model import (
    NO_DEFAULT,
    PROMOTED,
    Array,
    AvroSchemaMistake,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
    described,
    width_of,
)
from penstock.registry.avro.view import TYPED, nullable, present_branches, view_type

# Logical types that give a value of a view another meaning. The others are the number, text or bytes themselves there.
_MEANINGS = {"decimal", *TYPED}


class Incompatible(Exception):
    """What the writer's schema describes cannot be read as the reader's: which field, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'the record'}: {reason}")
        self.path = path
        self.reason = reason


def resolve(writer: Schema, reader: Schema, path: str = "") -> Reader:
    """How to read what `writer` wrote as `reader`, which is known to be a view. Raises Incompatible."""
    if isinstance(writer, Union):
        return _from_union(writer, reader, path)
    if isinstance(reader, Union):
        return _into_union(writer, reader, path)
    match writer, reader:
        case Record(), Record():
            return _record(writer, reader, path)
        case Enum(), Enum() if _same_name(writer, reader):
            return scalars.enumeration(path, writer, reader)
        case Array(), Array():
            if width_of(writer.items) == 0:
                raise Incompatible(path, "an array whose items take no bytes could claim any length")
            below = f"{path}[]"
            return array(path, walk_of(writer.items, below), resolve(writer.items, reader.items, below))
        case Map(), Map():
            below = f"{path}[]"
            return mapping(path, entry_walk(writer.values, below), resolve(writer.values, reader.values, below))
        case Fixed(), Fixed() if _same_name(writer, reader) and writer.size == reader.size:
            return _bytes(writer, reader, path)
        case Primitive(), Primitive() if reader.kind in PROMOTED.get(writer.kind, ()):
            return _primitive(writer, reader, path)
    raise Incompatible(path, f"written as {_told(writer)}, which cannot be read as {_told(reader)}")


def _told(schema: Schema) -> str:
    return f"{described(schema)} of {schema.size} bytes" if isinstance(schema, Fixed) else described(schema)


def _arrow(schema: Schema) -> pa.DataType:
    return arrow_type(view_type(schema))


def _primitive(writer: Primitive, reader: Primitive, path: str) -> Reader:
    _same_meaning(writer, reader, path)
    match writer.kind:
        case "boolean":
            return scalars.boolean(path)
        case "int" | "long":
            return scalars.integer(path, writer, scalars.finish_integer(path, reader))
        case "float" | "double":
            return scalars.floating(path, writer, reader)
    return _bytes(writer, reader, path)


def _bytes(writer: Primitive | Fixed, reader: Primitive | Fixed, path: str) -> Reader:
    _same_meaning(writer, reader, path)
    spans = scalars.spans_of(path, writer)
    if reader.logical is not None and reader.logical.name == "decimal":
        return scalars.decimal(path, spans, reader.logical)
    return scalars.text(path, spans) if reader.kind == "string" else scalars.binary(spans)


def _same_meaning(writer: Primitive | Fixed, reader: Primitive | Fixed, path: str) -> None:
    one, other = writer.logical, reader.logical
    if one is None or other is None:
        differ = any(logical is not None and logical.name in _MEANINGS for logical in (one, other))
    else:
        differ = (one.name, one.scale) != (other.name, other.scale)
    if differ:
        raise Incompatible(path, f"written as {described(writer)}, which would be misread as {described(reader)}")


def _same_name(writer: Named, reader: Named) -> bool:
    return writer.name in reader.aliases or _short(writer.name) in {_short(n) for n in (reader.name, *reader.aliases)}


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _from_union(writer: Union, reader: Schema, path: str) -> Reader:
    arrow = _arrow(reader)
    readers: list[Reader | None] = []
    errors: list[Incompatible] = []
    for branch in writer.branches:
        if branch.kind == "null" and nullable(reader):
            readers.append(None)
            continue
        try:
            readers.append(resolve(branch, reader, path))
        except Incompatible as error:
            errors.append(error)
            if branch.kind == "null":
                readers.append(scalars.refused(path, arrow, record.MISSING_FIELD, "required, but null"))
            else:
                readers.append(scalars.refused(error.path, arrow, record.WRONG_TYPE, error.reason))
    if len(errors) == len(readers):
        raise Incompatible(path, f"written as {described(writer)}, which cannot be read as {described(reader)}")
    return union(path, arrow, readers)


def _into_union(writer: Schema, reader: Union, path: str) -> Reader:
    """The reader's branch of the same type and name if there is one, else the first that can hold the value."""
    branches = present_branches(reader)
    if writer.kind == "null" and nullable(reader):
        return scalars.nothing(_arrow(reader))
    if len(branches) == 1:
        return resolve(writer, branches[0], path)
    for place in sorted(range(len(branches)), key=lambda i: _likeness(writer, branches[i])):
        try:
            return member(_arrow(reader), place, resolve(writer, branches[place], path))
        except Incompatible:
            continue
    raise Incompatible(path, f"written as {described(writer)}, which cannot be read as {described(reader)}")


def _likeness(writer: Schema, branch: Schema) -> int:
    if writer.kind != branch.kind:
        return 3
    if isinstance(writer, Fixed | Enum | Record) and isinstance(branch, Fixed | Enum | Record):
        if writer.name == branch.name or writer.name in branch.aliases:
            return 0
        return 1 if _same_name(writer, branch) else 2
    return 0


def _record(writer: Record, reader: Record, path: str) -> Reader:
    places = _places(writer, reader)
    steps: list[Walk | tuple[int, Reader]] = []
    for i, field in enumerate(writer.fields):
        place = places.get(i)
        if place is None:
            steps.append(walk_of(field.type, _below(path, field.name)))
        else:
            wanted = reader.fields[place]
            steps.append((place, resolve(field.type, wanted.type, _below(path, wanted.name))))
    filled = set(places.values())
    missing = [(place, field) for place, field in enumerate(reader.fields) if place not in filled]
    return struct(
        _arrow(reader), steps, {place: default_of(field, _below(path, field.name)) for place, field in missing}
    )


def _places(writer: Record, reader: Record) -> dict[int, int]:
    """Which field of the writer goes where in the reader. Names come first: an alias only takes what is left."""
    by_name = {field.name: i for i, field in enumerate(writer.fields)}
    places: dict[int, int] = {}
    for place, field in enumerate(reader.fields):
        if field.name in by_name:
            places[by_name[field.name]] = place
    for place, field in enumerate(reader.fields):
        if field.name not in by_name:
            found = next((by_name[a] for a in field.aliases if a in by_name and by_name[a] not in places), None)
            if found is not None:
                places[found] = place
    return places


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def default_of(field: Field, path: str) -> pa.Array:
    """The reader's default as a column of one row: written as Avro, and read like any record."""
    if field.default is NO_DEFAULT:
        raise Incompatible(path, "not written, and the reader schema has no default for it")
    raw = encoded(field.type, field.default, path)
    page = Page(np.frombuffer(raw, np.uint8), np.array([0, len(raw)]))
    column = resolve(field.type, field.type, path)(Cursor(page, page.starts.copy(), page.ends.copy(), np.array([0])))
    if page.failures:
        raise AvroSchemaMistake(f"the default of {page.failures[0].reason}")
    return column


def check_defaults(reader: Schema, path: str = "") -> None:
    """Every default of a reader schema must be a value of its field, used or not. Raises AvroSchemaMistake."""
    match reader:
        case Record(fields=fields):
            for field in fields:
                below = _below(path, field.name)
                check_defaults(field.type, below)
                if field.default is not NO_DEFAULT:
                    default_of(field, below)
        case Array(items=inner) | Map(values=inner):
            check_defaults(inner, f"{path}[]")
        case Union(branches=branches):
            for branch in branches:
                check_defaults(branch, path)
