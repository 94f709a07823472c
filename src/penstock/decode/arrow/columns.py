"""Arrow columns from decoded Python values, by declared type.

Values come from msgspec already of the right kind, but for decimals, which come as they are written. What is left to
find out here is whether they fit: a decimal with more digits than declared, a time that no timestamp can hold. Arrow
refuses those for the whole column at once, so the column is then built again value by value to learn which ones do not
fit.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from penstock.record import (
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    MISSING_FIELD,
    OUT_OF_RANGE,
    WRONG_TYPE,
    shortened,
)
from penstock.spec.types import Array, Decimal, Map, Scalar, Struct, Type

VALUE_LIMIT = 80  # characters of the offending value that a reason shows
WHOLE = r"-?(?:0|[1-9][0-9]*)"
PLAIN = WHOLE + r"(?:\.[0-9]+)?"
NUMBER = PLAIN + r"(?:[eE][+-]?[0-9]+)?"
"""The grammar of JSON, also for numbers in text. Python's `int`, `float` and `Decimal` take `1_000`, ` 1 ` and `١`."""

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

Values = Sequence[Any]
Build = Callable[[Values], pa.Array]


@dataclass(frozen=True, slots=True)
class Misfit:
    """What is wrong with a value, the class of that, and where it is below its column: `.amount`, `[2]`."""

    said: str
    error_class: str
    path: str = ""

    def under(self, step: str) -> Misfit:
        return replace(self, path=step + self.path)


def _misfit(value: object, expected: str, error_class: str = OUT_OF_RANGE) -> Misfit:
    return Misfit(f"{shown(value)} is not {expected}", error_class)


def shown(value: object) -> str:
    return shortened(str(value), VALUE_LIMIT)


class DoesNotFit(Exception):
    """Some values of a column do not fit its type: row number -> the first of them in that row."""

    def __init__(self, rows: dict[int, Misfit]) -> None:
        super().__init__(f"{len(rows)} values do not fit")
        self.rows = rows


def transposed(records: Values, width: int) -> list[Values]:
    """The fields of records (msgspec's structs), field by field, with None in all of them for a record that is None."""
    if not records:
        return [()] * width
    if None not in records:
        return list(zip(*map(astuple, records), strict=True))
    none = (None,) * width
    return list(zip(*(none if r is None else astuple(r) for r in records), strict=True))


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


def builder(declared: Type, *, required: bool = False) -> Build:
    """The function that turns a list of values (None for null) into a column. Made once per worker. `required` is for
    decimals: msgspec has refused every other null where none may be."""
    match declared:
        case Array(item=item):
            return _array(builder(item))
        case Map(value=value):
            return _map(builder(value))
        case Struct(members=members):
            return _struct([(m.name, builder(m.type, required=m.required)) for m in members])
        case Scalar(name="timestamp" | "timestamp_ntz"):
            return _timestamp(arrow_type(declared), _MICROSECONDS[declared.epoch] if declared.epoch else None)
        case Decimal(precision=precision, scale=scale):
            return _decimal(precision, scale, required)
        case _:
            return _scalar(arrow_type(declared), declared.ddl())


_MISFIT = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError)


def _scalar(arrow: pa.DataType, name: str) -> Build:
    def build(values: Values) -> pa.Array:
        try:
            return pa.array(values, arrow)
        except _MISFIT:
            rows = {i: _misfit(v, f"a value that fits {name}") for i, v in enumerate(values) if not _fits(v)}
            if not rows:
                raise  # the fault is of the batch, not of a record: none may be blamed for it
            raise DoesNotFit(rows) from None

    def _fits(value: Any) -> bool:
        try:
            pa.array([value], arrow)
        except _MISFIT:
            return False
        return True

    return build


def _decimal(precision: int, scale: int, required: bool) -> Build:
    """From numbers as JSON writes them, or texts of such numbers.

    Arrow reads those without an exponent that have no more digits than the type and Arrow itself hold; the others are
    read one by one. In Arrow too many digits wrap around, `1e-41` is 0 without an error, and `1e-999999999` ends the
    process.
    """
    whole = precision - scale
    digits = f"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    places = rf"\.[0-9]{{1,{scale}}}0*" if scale else r"\.0+"
    plain = rf'^"?-?{digits}(?:{places})?"?$'
    arrow = pa.decimal128(precision, scale)
    read = _one_decimal(precision, scale)

    def build(values: Values) -> pa.Array:
        texts = pa.array([None if v is None else bytes(v) for v in values], pa.string())
        if not required:
            texts = pc.if_else(pc.equal(texts, "null"), None, texts)
        sure = pc.and_(pc.match_substring_regex(texts, plain), pc.less_equal(pc.binary_length(texts), _ARROW_DIGITS))
        others = pc.indices_nonzero(pc.invert(sure)).to_pylist()
        if others:
            written = texts.to_pylist()
            found = {i: read(written[i]) for i in others}
            if rows := {i: number for i, number in found.items() if isinstance(number, Misfit)}:
                raise DoesNotFit(rows)
            for i, number in found.items():
                written[i] = f"{number:f}"
            texts = pa.array(written, pa.string())
        return pc.utf8_trim(texts, '"').cast(arrow)

    return build


_ARROW_DIGITS = 38


def _one_decimal(precision: int, scale: int) -> Callable[[str], decimal.Decimal | Misfit]:
    """A number, or a text of one, that is not null where it may be."""
    unit = decimal.Decimal((0, (1,), -scale))
    rescale = decimal.Context(prec=precision, traps=[decimal.InvalidOperation, decimal.Inexact]).quantize
    number = re.compile(NUMBER).fullmatch

    def read(written: str) -> decimal.Decimal | Misfit:
        if written == "null":
            return Misfit("required, but null", MISSING_FIELD)
        text = msgspec.json.decode(written, type=str) if written.startswith('"') else written
        if not number(text):
            return _misfit(written, "a number", WRONG_TYPE)
        try:
            return rescale(decimal.Decimal(text), unit)
        except decimal.DecimalException:
            return _misfit(written, f"a value that fits decimal({precision},{scale})")

    return read


_CALENDAR = "a time in the years 1 to 9999"


def _timestamp(arrow: pa.DataType, factor: int | None) -> Build:
    plain = _scalar(arrow if factor is None else pa.int64(), "timestamp")

    def build(values: Values) -> pa.Array:
        try:
            column = plain(values if factor is None else [None if v is None else v * factor for v in values])
        except DoesNotFit as misfit:
            raise DoesNotFit({i: _misfit(values[i], _CALENDAR) for i in misfit.rows}) from None
        numbers = column.cast(pa.int64())
        ends = pc.min_max(numbers)
        if ends["min"].as_py() is not None and not _in_calendar(ends["min"].as_py(), ends["max"].as_py()):
            found = enumerate(numbers.to_pylist())
            outside = [i for i, n in found if n is not None and not _in_calendar(n, n)]
            raise DoesNotFit({i: _misfit(values[i], _CALENDAR) for i in outside})
        return column.cast(arrow)

    return build


def _in_calendar(first: int, last: int) -> bool:
    return first >= FIRST_MICROSECOND and last <= LAST_MICROSECOND


def _offsets_of(values: Values) -> pa.Array:
    """List offsets in which a null entry marks a null list."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], pa.int32())


def _by_owner(values: Values, items: DoesNotFit, step: Callable[[int], str]) -> DoesNotFit:
    """The misfits of flattened items as misfits of the lists or maps they are in."""
    owners = [(row, i) for row, value in enumerate(values) if value is not None for i in range(len(value))]
    rows: dict[int, Misfit] = {}
    for flat, misfit in items.rows.items():
        row, i = owners[flat]
        rows.setdefault(row, misfit.under(step(i)))
    return DoesNotFit(rows)


def _array(build_item: Build) -> Build:
    def build(values: Values) -> pa.Array:
        flat = [item for value in values if value is not None for item in value]
        try:
            return pa.ListArray.from_arrays(_offsets_of(values), build_item(flat))
        except DoesNotFit as items:
            raise _by_owner(values, items, lambda i: f"[{i}]") from None

    return build


def _map(build_value: Build) -> Build:
    def build(values: Values) -> pa.Array:
        keys = [key for value in values if value is not None for key in value]
        flat = [item for value in values if value is not None for item in value.values()]
        try:
            return pa.MapArray.from_arrays(_offsets_of(values), pa.array(keys, pa.string()), build_value(flat))
        except DoesNotFit as items:
            raise _by_owner(values, items, lambda _: "[...]") from None  # a key is data: it would part statistics

    return build


def _struct(members: list[tuple[str, Build]]) -> Build:
    def build(values: Values) -> pa.Array:
        columns: list[pa.Array] = []
        rows: dict[int, Misfit] = {}
        for (name, build_member), picked in zip(members, transposed(values, len(members)), strict=True):
            try:
                columns.append(build_member(picked))
            except DoesNotFit as members_values:
                for i, misfit in members_values.rows.items():
                    rows.setdefault(i, misfit.under(f".{name}"))
        if rows:
            raise DoesNotFit(rows)
        mask = pa.array([v is None for v in values], pa.bool_())
        return pa.StructArray.from_arrays(columns, [name for name, _ in members], mask=mask)

    return build
