"""What a Delta log says of a data file, and by which readers leave files out: rows, nulls and bounds.

Wrong bounds lose rows without a word. Bounds may be wider than the values; those of text are. Where a column has none
(NaN, which readers order differently, or a time that is no date) the file has none at all: where some columns have
bounds, delta-rs finds nothing by a condition on another one.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]
"""A column, or a field in a struct."""

_LONGEST_TEXT = 32  # characters of a bound, as in Delta's own writers
_LAST = "\U0010ffff"  # no character comes after it
_ANY_TEXT = ("", _LAST * _LONGEST_TEXT)

Bounds = tuple[Any, Any]


@dataclass(frozen=True)
class Floats:
    """Of a column of floats. The file's own footer says nothing of it: it would have to leave NaN out, by the rules of
    Parquet, and Spark, to which NaN is the greatest number, would then not look for it there."""

    low: float = math.inf
    high: float = -math.inf
    nulls: int = 0
    not_a_number: bool = False

    def __add__(self, more: Floats) -> Floats:
        low, high = min(self.low, more.low), max(self.high, more.high)
        return Floats(low, high, self.nulls + more.nulls, self.not_a_number or more.not_a_number)

    @property
    def bounds(self) -> Bounds | None:
        return None if self.not_a_number else (_float(self.low), _float(self.high))


def statistics(metadata: Any, columns: pa.Schema, floats: Mapping[Path, Floats]) -> str:
    """Of a Parquet file by its footer, in JSON; of its floats by themselves."""
    bounds: dict[Path, Bounds | None] = {}
    nulls: dict[Path, int] = {}
    for i, leaf in enumerate(leaves(columns)):
        if leaf is None:
            continue
        path, type_ = leaf
        found = [metadata.row_group(g).column(i).statistics for g in range(metadata.num_row_groups)]
        of = floats.get(path)
        nulls[path] = of.nulls if of else sum(group.null_count for group in found)
        if nulls[path] < metadata.num_rows and not pa.types.is_binary(type_):
            bounds[path] = of.bounds if of else _bounds(found, type_)
    said: dict[str, Any] = {"numRecords": metadata.num_rows, "nullCount": _nested(nulls)}
    known = {path: pair for path, pair in bounds.items() if pair is not None}
    if len(known) == len(bounds):
        said["minValues"] = _nested({path: low for path, (low, _) in known.items()})
        said["maxValues"] = _nested({path: high for path, (_, high) in known.items()})
    return msgspec.json.encode(said).decode()


def in_footer(columns: pa.Schema) -> list[str]:
    """The columns of which a footer has statistics, as Parquet writes their names."""
    return [".".join(leaf[0]) for leaf in leaves(columns) if leaf and not pa.types.is_floating(leaf[1])]


def leaves(columns: pa.Schema) -> Iterator[tuple[Path, pa.DataType] | None]:
    """The columns of a Parquet file, in their order; None inside lists and maps, which have no statistics in Delta."""
    for field in columns:
        yield from _leaves(field.type, (field.name,))


def floats_in(table: pa.Table) -> dict[Path, Floats]:
    made = {}
    for path in [leaf[0] for leaf in leaves(table.schema) if leaf and pa.types.is_floating(leaf[1])]:
        column = _at(table, path)
        not_a_number = pc.is_nan(column)
        there = pc.min_max(column.filter(pc.invert(pc.fill_null(not_a_number, True)))).as_py()
        low, high = (math.inf, -math.inf) if there["min"] is None else (there["min"], there["max"])
        made[path] = Floats(low, high, column.null_count, bool(pc.any(not_a_number).as_py()))
    return made


def _leaves(type_: pa.DataType, path: Path | None) -> Iterator[tuple[Path, pa.DataType] | None]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(field.type, path and (*path, field.name))
    elif pa.types.is_map(type_):
        yield from _leaves(type_.key_type, None)
        yield from _leaves(type_.item_type, None)
    elif pa.types.is_nested(type_):  # a list of some kind
        yield from _leaves(type_.value_type, None)
    else:
        yield (path, type_) if path else None


def _at(table: pa.Table, path: Path) -> Any:
    column = table[path[0]]
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _bounds(found: Sequence[Any], type_: pa.DataType) -> Bounds | None:
    """At least from the least to the greatest value of a column that is not all null; None: not known."""
    holding = [group for group in found if group.num_values]  # it counts what is not null
    if any(not group.has_min_max for group in holding):
        return _ANY_TEXT if pa.types.is_string(type_) else None  # a footer has no very long text
    try:
        return _shown(min(group.min for group in holding), max(group.max for group in holding))
    except (OverflowError, ValueError):  # a time that is no date in Python: a producer may write any number
        return None


def _shown(low: Any, high: Any) -> Bounds | None:
    match low:
        case bool() | int():
            return low, high
        case Decimal():
            return _decimal(low), _decimal(high)
        case str():
            return low[:_LONGEST_TEXT], _text_above(high)
        case dt.datetime():
            return _time(low), _time(high)
        case dt.date():
            return low.isoformat(), high.isoformat()
    return None


def _float(value: float) -> float | str:
    return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value, value)  # JSON has no number for it


def _decimal(value: Decimal) -> msgspec.Raw:
    """A number with all its digits and no exponent: delta-rs takes 0E-16 for no number."""
    return msgspec.Raw(f"{value:f}".encode())


def _text_above(text: str) -> str:
    """Not less than the text, by code points, and hardly longer than a bound may be."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return text[:_LONGEST_TEXT] + _LAST if text[_LONGEST_TEXT] != _LAST else _ANY_TEXT[1]


def _time(value: dt.datetime) -> str:
    """Cut to milliseconds, as Delta defines it: a reader allows for that. One without a time zone stays without."""
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _nested(values: dict[Path, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for path, value in values.items():
        into = made
        for name in path[:-1]:
            into = into.setdefault(name, {})
        into[path[-1]] = value
    return made
