"""Arrow columns from decoded Python values, by declared type.

Values come from msgspec already of the right kind; what is left to find out here is whether they fit: a decimal with
more digits than declared, a time that no timestamp can hold. Arrow refuses those for the whole column at once, so
the column is then built again value by value to learn which ones do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # in one unit of an epoch number
# Years 1 to 9999. Arrow and Spark could hold more, Python and most databases could not read it back.
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999

Values = Sequence[Any]
Build = Callable[[Values], pa.Array]


class DoesNotFit(Exception):
    """Some values of a column do not fit its type: row number -> what was expected."""

    def __init__(self, rows: dict[int, str]) -> None:
        super().__init__(f"{len(rows)} values do not fit")
        self.rows = rows


def arrow_type(declared: Type) -> pa.DataType:
    match declared:
        case Scalar(name=name):
            return ARROW[name]
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case Array(item=item):
            return pa.list_(arrow_type(item))
        case Map(value=value):
            return pa.map_(pa.string(), arrow_type(value))
        case Struct(members=members):
            return pa.struct([pa.field(m.name, arrow_type(m.type)) for m in members])
    raise AssertionError(declared)


def builder(declared: Type) -> Build:
    """The function that turns a list of values (None for null) into a column. Made once per worker."""
    match declared:
        case Array(item=item):
            return _array(builder(item))
        case Map(value=value):
            return _map(builder(value))
        case Struct(members=members):
            return _struct([(f"f{i}", m.name, builder(m.type)) for i, m in enumerate(members)])
        case Scalar(name="timestamp" | "timestamp_ntz"):
            return _timestamp(arrow_type(declared), _MICROSECONDS[declared.epoch] if declared.epoch else None)
        case _:
            return _scalar(arrow_type(declared), declared.ddl())


_MISFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)


def _scalar(arrow: pa.DataType, name: str) -> Build:
    def build(values: Values) -> pa.Array:
        try:
            return pa.array(values, arrow)
        except _MISFIT:
            raise DoesNotFit(_find(values)) from None

    def _find(values: Values) -> dict[int, str]:
        rows = {}
        for i, value in enumerate(values):
            try:
                pa.array([value], arrow)
            except _MISFIT:
                rows[i] = f"a value that fits {name}"
        return rows

    return build


def _timestamp(arrow: pa.DataType, factor: int | None) -> Build:
    plain = _scalar(arrow if factor is None else pa.int64(), "timestamp")

    def build(values: Values) -> pa.Array:
        if factor is not None:
            values = [None if v is None else v * factor for v in values]
        column = plain(values)
        numbers = column.cast(pa.int64())
        ends = pc.min_max(numbers)
        if ends["min"].as_py() is not None and not _in_calendar(ends["min"].as_py(), ends["max"].as_py()):
            found = enumerate(numbers.to_pylist())
            raise DoesNotFit({i: _CALENDAR for i, n in found if n is not None and not _in_calendar(n, n)})
        return column.cast(arrow)

    return build


_CALENDAR = "a time in the years 1 to 9999"


def _in_calendar(first: int, last: int) -> bool:
    return _FIRST_TIME <= first and last <= _LAST_TIME


def _offsets_of(values: Values) -> pa.Array:
    """List offsets in which a null entry marks a null list."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], pa.int32())


def _owners(values: Values) -> list[int]:
    return [i for i, value in enumerate(values) if value is not None for _ in value]


def _array(build_item: Build) -> Build:
    def build(values: Values) -> pa.Array:
        flat = [item for value in values if value is not None for item in value]
        try:
            return pa.ListArray.from_arrays(_offsets_of(values), build_item(flat))
        except DoesNotFit as misfit:
            owners = _owners(values)
            raise DoesNotFit({owners[i]: what for i, what in misfit.rows.items()}) from None

    return build


def _map(build_value: Build) -> Build:
    def build(values: Values) -> pa.Array:
        keys = [key for value in values if value is not None for key in value]
        flat = [item for value in values if value is not None for item in value.values()]
        try:
            return pa.MapArray.from_arrays(_offsets_of(values), pa.array(keys, pa.string()), build_value(flat))
        except DoesNotFit as misfit:
            owners = _owners(values)
            raise DoesNotFit({owners[i]: what for i, what in misfit.rows.items()}) from None

    return build


def _struct(members: list[tuple[str, str, Build]]) -> Build:
    def build(values: Values) -> pa.Array:
        columns, rows = [], {}
        for attribute, name, build_member in members:
            try:
                columns.append(build_member([None if v is None else getattr(v, attribute) for v in values]))
            except DoesNotFit as misfit:
                rows.update({i: f"{what} at {name}" for i, what in misfit.rows.items()})
        if rows:
            raise DoesNotFit(rows)
        mask = pa.array([v is None for v in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, [name for _, name, _ in members], mask=mask)

    return build
