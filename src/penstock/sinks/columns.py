"""Columns on their way into a table: which must be there, which are stored, whether they are those the table has."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.errors import SpecInvalid
from penstock.record import DELETED, KAFKA, KEY, ORIGIN
from penstock.sinks.contract import Incoming
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

INTERVALS = frozenset({"CalendarIntervalType", "DayTimeIntervalType", "YearMonthIntervalType"})
_WIDENING = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))


def stored(columns: StructType) -> list[str]:
    """The columns of an upserted table: those that say what to do with the row are not kept."""
    return [name for name in columns.names if name not in (DELETED, KEY)]


def says_origin(columns: StructType) -> bool:
    """Whether each row says which record it was made of."""
    from pyspark.sql.types import StructType

    kafka = columns[KAFKA].dataType if KAFKA in columns.names else None
    return isinstance(kafka, StructType) and set(ORIGIN) <= set(kafka.names)


def require_columns(sink: str, incoming: Incoming, **settings: Iterable[str]) -> None:
    """Every column that a setting of the sink names is one of the view."""
    for setting, names in settings.items():
        for name in names:
            if name not in incoming.columns.names:
                raise SpecInvalid(
                    f"`{setting}` of sink '{sink}' names '{name}', which view '{incoming.view}' does not have",
                    cause=f"it has: {', '.join(incoming.columns.names)}",
                    next_command=f"correct `{setting}` of sink '{sink}'",
                )


def require_types(sink: str, incoming: Incoming, lacking: Collection[str]) -> None:
    """No column of the view, and no part of one, is of a type that the table cannot have. `lacking`: their classes."""
    for name, kind in _parts(incoming.columns):
        if type(kind).__name__ in lacking:
            raise SpecInvalid(
                f"sink '{sink}' has no type for '{name}' of view '{incoming.view}'",
                cause=f"it is of type {kind.simpleString()}",
                next_command="cast it in a step, or leave it out; docs/formats.md has what each type becomes",
            )


def require_names(sink: str, incoming: Incoming, without: str) -> None:
    """No column of the view, and no field of one, has a name with one of these characters in it."""
    for name in dict.fromkeys(name for name, _ in _parts(incoming.columns)):
        if found := sorted(set(name) & set(without)):
            raise SpecInvalid(
                f"sink '{sink}' cannot have a column called '{name}', which view '{incoming.view}' has",
                cause=f"its table allows no {' '.join(map(repr, found))} in a name",
                next_command=f"give it another name in a step: select `{name}` as other"
                if name in incoming.columns.names
                else "give that field another name in the schema, or make its struct anew in a step (named_struct)",
            )


def _parts(kind: DataType, at: str = "") -> Iterator[tuple[str, DataType]]:
    """Every type inside a type, and the column or field it is in."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield at, kind
    if isinstance(kind, StructType):
        for field in kind:
            yield from _parts(field.dataType, f"{at}.{field.name}" if at else field.name)
    elif isinstance(kind, ArrayType):
        yield from _parts(kind.elementType, at)
    elif isinstance(kind, MapType):
        yield from _parts(kind.keyType, at)
        yield from _parts(kind.valueType, at)


def require_upsertable(sink: str, incoming: Incoming, key: Iterable[str], order_by: str | None) -> None:
    """Rows can be told apart by their key, and it can be told which of two is newer."""
    from pyspark.sql.types import MapType, StructType, VariantType

    require_columns(sink, incoming, key=key, order_by=[order_by] if order_by else [])
    for name in [*key, *([order_by] if order_by else [])]:
        kind = incoming.columns[name].dataType
        if isinstance(kind, (MapType, VariantType)) or name in (KAFKA, KEY, DELETED):
            own = name in (KAFKA, KEY, DELETED)
            part = f".{kind.names[0]}" if isinstance(kind, StructType) and kind.names else ""
            raise SpecInvalid(
                f"sink '{sink}' cannot compare rows by '{name}'",
                cause="it is a column of Penstock's own" if own else f"it is a {kind.simpleString()}",
                next_command=f"in view '{incoming.view}', select it under another name: {name}{part} as id",
            )
    told_apart = bool(incoming.unique) and set(incoming.unique) <= set(key)
    if order_by is None and not says_origin(incoming.columns) and not told_apart:
        raise SpecInvalid(
            f"sink '{sink}' cannot tell which of two rows with one key is the newer one",
            cause=f"view '{incoming.view}' has no column '{KAFKA}', and the sink has no `order_by`",
            next_command=f"upsert by what a batch has once: {', '.join(incoming.unique)}"
            if incoming.unique
            else f"keep '{KAFKA}' in the view, or give sink '{sink}' an `order_by`",
        )


def misfit(rows: StructType, table: StructType, *, evolve: bool, widen: bool = False, at: str = "") -> str | None:
    """Why rows of these columns must not go into the table, or None when they fit. `evolve`: it can be given columns;
    `widen`: and columns of it a wider type.

    Engines are lenient when they merge: columns the table lacks are left out, a timestamp is cut to a date. A column
    that the rows lack is no misfit: it becomes null, as with an append.
    """
    from pyspark.sql.types import StructType

    have = {field.name.lower(): field.dataType for field in table}
    for field in rows:
        kind = have.get(field.name.lower())
        if kind is None and not evolve:
            return f"column '{at}{field.name}' is new"
        if kind is None or _plain(kind) == _plain(field.dataType) or (widen and _is_wider(field.dataType, kind)):
            continue
        if isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            inside = misfit(field.dataType, kind, evolve=evolve, widen=widen, at=f"{at}{field.name}.")
            if inside:
                return inside
            if len(kind) > len(field.dataType):
                return f"column '{at}{field.name}' has lost fields: it is {field.dataType.simpleString()}"
            continue
        return _changed(f"{at}{field.name}", kind, field.dataType)
    return None


def _changed(name: str, kind: DataType, new: DataType) -> str:
    return f"column '{name}' was {kind.simpleString()} and is now {new.simpleString()}"


def clash(rows: StructType, table: StructType, at: str = "") -> str | None:
    """A column that cannot be had by one table, or None: what the table has cannot become what the rows have, and the
    other way round neither. Of arrays and maps nothing is said: they are the engine's to judge."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    have = {field.name.lower(): field.dataType for field in table}
    for field in rows:
        kind, new = have.get(field.name.lower()), field.dataType
        if isinstance(kind, StructType) and isinstance(new, StructType):
            if inside := clash(new, kind, f"{at}{field.name}."):
                return inside
        elif kind is None or isinstance(kind, ArrayType | MapType) or _plain(kind) == _plain(new):
            continue
        elif not _is_wider(new, kind) and not _is_wider(kind, new):
            return _changed(f"{at}{field.name}", kind, new)
    return None


def gained(rows: StructType, table: StructType, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Columns and fields of structs that the rows have and the table has not, by path."""
    from pyspark.sql.types import StructType

    have = {field.name.lower(): field.dataType for field in table}
    for field in rows:
        kind = have.get(field.name.lower())
        if kind is None:
            yield (*at, field.name), field.dataType
        elif isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            yield from gained(field.dataType, kind, (*at, field.name))


def widened(columns: StructType) -> StructType:
    """As Iceberg keeps them: it has no integers of one and two bytes."""
    from pyspark.sql.types import StructType

    text = re.sub(r'("(?:type|elementType|keyType|valueType)":)"(?:byte|short)"', r'\1"integer"', columns.json())
    return StructType.fromJson(json.loads(text))


def _is_wider(kind: DataType, than: DataType) -> bool:
    """Every value of `than` is one of `kind`, and Delta can make a column of it so."""
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType) and isinstance(than, DecimalType):
        return kind.scale >= than.scale and kind.precision - kind.scale >= than.precision - than.scale
    return any(_plain(than) in order[: order.index(_plain(kind))] for order in _WIDENING if _plain(kind) in order)


def sql_type(kind: DataType) -> str:
    """The type as SQL wants it: `simpleString` writes the names of fields, which anybody can choose, as they are."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case StructType():
            return f"struct<{', '.join(f'{quoted(field.name)}: {sql_type(field.dataType)}' for field in kind)}>"
        case ArrayType():
            return f"array<{sql_type(kind.elementType)}>"
        case MapType():
            return f"map<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString()


def _plain(kind: DataType) -> str:
    return kind.simpleString().lower()  # without nullability: a table holds what was checked before
