"""Which columns of a view are written, as what type of PostgreSQL's, and by which expressions of Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.record import DELETED, KAFKA, KEY
from penstock.sinks.columns import says_origin, sql_type
from penstock.sinks.postgres.exact import Doubt, doubt
from penstock.sinks.postgres.names import GONE, OWN, SENT, name_fault
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

# Where a record came from, in columns that any SQL client can use; `verify` counts them.
ORIGIN = {f"{KAFKA}_topic": "text", f"{KAFKA}_partition": "integer", f"{KAFKA}_offset": "bigint"}

_SCALARS = {
    "boolean": ("boolean", "truth"),
    "byte": ("smallint", "number"),
    "short": ("smallint", "number"),
    "integer": ("integer", "number"),
    "long": ("bigint", "number"),
    "float": ("real", "number"),
    "double": ("double precision", "number"),
    "string": ("text", "text"),
    "char": ("text", "text"),
    "varchar": ("text", "text"),
    "void": ("text", "text"),
    "binary": ("bytea", "bytes"),
    "date": ("date", "time"),
    "timestamp": ("timestamp with time zone", "time"),
    "timestamp_ntz": ("timestamp", "time"),
    "time": ("time", "time"),
}
_AS_TEXT = ("void", "time")  # what Arrow has no column for on every version of Spark
_DOCUMENTS = ("array", "map", "struct", "variant")
# By PostgreSQL's own categories of types; a document, and an array that is stored as one, goes to json as well.
_FITS = {"truth": "BS", "number": "NS", "time": "DS", "array": "A", "text": None, "bytes": "", "document": "S"}
_OF_A_DAY = ("time", "timetz")
# Without the options a null field is left out, and microseconds are cut off.
_JSON = (
    "map('ignoreNullFields', 'false', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]\")"
)


class Unsuitable(ValueError):
    """The view and the table do not go together; the text says why, and `hint` what to do."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True)
class TableColumn:
    """A column of a table that exists."""

    type: str  # as PostgreSQL writes it
    plain: str  # the same; of a domain, that of the type below it
    base: str  # the bare name of that
    category: str
    needed: bool  # no null and no default
    computed: bool  # PostgreSQL alone decides its value


@dataclass(frozen=True)
class Column:
    """A column that is written: its name and type there, and the Spark expression it is made by."""

    name: str
    type: str
    made_by: str
    kind: str  # in the view
    doubt: Doubt | None = None  # what may become of its values in the table
    prints: str = ""  # as what a worker prints it: "double", "whole", or as it is


@dataclass(frozen=True)
class Plan:
    columns: tuple[Column, ...]
    placed: bool  # rows say which record they come from
    deletes: bool  # rows may be deletes

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def taken(self) -> tuple[tuple[str, bool], ...] | None:
        """Which columns of the view, or else (true) of `_kafka`, are written as they are; None where one is not."""
        found: list[tuple[str, bool]] = []
        for column in self.columns:
            if column.made_by == quoted(column.name):
                found.append((column.name, False))
            elif column.name in ORIGIN and column.made_by == _origin(column.name):
                found.append((column.name.removeprefix(f"{KAFKA}_"), True))
            else:
                return None
        return tuple(found)

    def sent(self) -> dict[str, Column]:
        """Columns that PostgreSQL may change values of, by the name under which staging has what was sent."""
        return {f"{SENT}{i}": c for i, c in enumerate(self.columns) if c.doubt and c.doubt.holds}

    def losses(self) -> list[str]:
        """Columns whose type in the table cannot hold every value as it is, for `plan`."""
        return [f"column '{c.name}' is {c.kind} and in the table {c.type}: {c.doubt}" for c in self.columns if c.doubt]

    def projection(self) -> list[str]:
        """What the workers get: written columns by number, then where a row comes from, then whether it is a delete."""
        made = [f"{column.made_by} as c{i}" for i, column in enumerate(self.columns)]
        if self.placed:
            made += [f"{KAFKA}.{name} as kafka_{name}" for name in ("topic", "partition", "offset", "timestamp")]
        return [*made, f"coalesce({DELETED}, false) as {GONE}"] if self.deletes else made


def plan(
    view: StructType, table: Mapping[str, TableColumn] | None, key: Sequence[str], order_by: str | None = None
) -> Plan:
    """What is written of a view: all but Penstock's own columns, and of those the ones that the table has.

    `table`: its columns, or None for one that is made for these. Raises Unsuitable.
    """
    fields = {field.name: field.dataType for field in view.fields}
    placed = says_origin(view)
    deletes = bool(key) and DELETED in fields
    wanted = [name for name in fields if name not in (KAFKA, KEY, DELETED) or (table is not None and name in table)]
    if not key and DELETED in fields and DELETED not in wanted:
        wanted.append(DELETED)  # without a key nothing can be deleted: the table keeps what was said
    made = [_column(name, fields, table, key) for name in wanted]
    if placed and not ORIGIN.keys() & set(wanted) and (table is None or table.keys() >= ORIGIN.keys()):
        made += [Column(name, kind, _origin(name), kind) for name, kind in ORIGIN.items()]
    found = Plan(tuple(made), placed, deletes)
    for role, name in (*(("`key`", k) for k in key), *([("`order_by`", order_by)] if order_by else [])):
        if name not in found.names:
            raise Unsuitable(
                f"{role} names column '{name}', which is not written", f"these are: {', '.join(found.names)}"
            )
    for name, column in (table or {}).items():
        if column.needed and name not in found.names:
            raise Unsuitable(
                f"the table's column '{name}' takes no null and has no default, and the view does not have it",
                f"add '{name}' to the view, or give the column a default",
            )
    return found


def _origin(name: str) -> str:
    return f"{KAFKA}.{name.removeprefix(KAFKA + '_')}"


def _column(
    name: str, fields: Mapping[str, DataType], table: Mapping[str, TableColumn] | None, key: Sequence[str]
) -> Column:
    if fault := name_fault(name) or _own_name(name):
        raise Unsuitable(f"column '{name}' cannot be one in PostgreSQL: {fault}", "rename it in a step")
    kind = fields[name]
    made_by, shape = quoted(name), _shape(name, kind)
    type_there, loses, prints = shape[0], None, ""
    as_document = shape[1] == "document"
    if name in key:
        made_by = _or_key_of_record(name, made_by, fields, key)
    if table is not None:
        there = table.get(name)
        if there is None:
            raise Unsuitable(
                f"the table has no column '{name}'",
                f"add it ({shape[0]}) to the table, or leave it out of the view",
            )
        if there.computed:
            raise Unsuitable(f"the table computes column '{name}' itself", "leave it out of the view")
        type_there = there.type
        as_document = as_document or (shape[1] == "array" and there.category != "A")
        if not _fits("document" if as_document else shape[1], kind.typeName(), there):
            raise Unsuitable(
                f"column '{name}' is {kind.simpleString()} in the view and {there.type} in the table",
                "cast it in a step, or change the table",
            )
        loses, prints = _doubt(kind, there, as_document=as_document), _prints(kind, there)
    if as_document:
        made_by = f"to_json({made_by}, {_JSON})"
    elif kind.typeName() in _AS_TEXT:
        made_by = f"cast({made_by} as string)"
    return Column(name, type_there, made_by, kind.simpleString(), loses, prints)


def _or_key_of_record(name: str, made_by: str, fields: Mapping[str, DataType], key: Sequence[str]) -> str:
    """A delete is a record without a value: its key columns come from the record's key where they can."""
    if DELETED not in fields or KEY not in fields:
        return made_by
    of_record = fields[KEY]
    if of_record.typeName() == "struct":
        if name not in of_record.fieldNames():  # type: ignore[attr-defined]
            return made_by
        other = f"{KEY}.{quoted(name)}"
    elif len(key) == 1:
        other = KEY
    else:
        return made_by
    return f"if({DELETED}, coalesce({made_by}, cast({other} as {sql_type(fields[name])})), {made_by})"


def _shape(name: str, kind: DataType) -> tuple[str, str]:
    """PostgreSQL's type for a column we make, and what sort of thing it is."""
    word = kind.typeName()
    if word.startswith("decimal"):
        return f"numeric({kind.precision},{kind.scale})", "number"  # type: ignore[attr-defined]
    if scalar := _SCALARS.get(word.partition("(")[0]):
        return scalar
    if word == "array":
        item = kind.elementType  # type: ignore[attr-defined]
        below = item.typeName().partition("(")[0]
        if below == "decimal" or (below in _SCALARS and below not in _AS_TEXT):
            return f"{_shape(name, item)[0]}[]", "array"
    if word in _DOCUMENTS:
        return "jsonb", "document"
    raise Unsuitable(
        f"column '{name}' is {kind.simpleString()}, for which PostgreSQL has no type we write",
        "cast it in a step, for example to a string",
    )


def _fits(shape: str, word: str, there: TableColumn) -> bool:
    if shape == "bytes":
        return there.base == "bytea"
    if shape == "document" and there.base in ("json", "jsonb"):
        return True
    if shape == "time" and there.category == "D":
        return (there.base in _OF_A_DAY) == (word.partition("(")[0] == "time")
    allowed = _FITS[shape]
    return allowed is None or there.category in allowed


def _doubt(kind: DataType, there: TableColumn, *, as_document: bool) -> Doubt | None:
    if as_document:
        return None if there.base in ("json", "jsonb") else doubt("string", None, there.plain)
    item = _item(kind)
    word = item.typeName().partition("(")[0]
    precision = (item.precision, item.scale) if word == "decimal" else None  # type: ignore[attr-defined]
    return doubt("string" if word in ("char", "varchar") else word, precision, there.plain)


def _prints(kind: DataType, there: TableColumn) -> str:
    """What PostgreSQL would read as another number, or not at all, in the digits of its own type."""
    if _item(kind).typeName() == "float" and there.plain.removesuffix("[]") == "double precision":
        return "double"
    from_fractions = kind.typeName().partition("(")[0] in ("float", "double", "decimal")
    return "whole" if from_fractions and there.plain in ("smallint", "integer", "bigint") else ""


def _item(kind: DataType) -> DataType:
    return kind.elementType if kind.typeName() == "array" else kind  # type: ignore[attr-defined]


def _own_name(name: str) -> str | None:
    return f"'{name}' is a name that Penstock uses" if name in (*OWN, GONE) or name.startswith(SENT) else None
