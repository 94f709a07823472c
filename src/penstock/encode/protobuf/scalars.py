"""Columns of scalars as Protobuf writes them. Values that the schema's type cannot hold fail their row here."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor as F  # type: ignore[import-untyped]

from penstock import record
from penstock.encode.arrow.encoded import Numbers, Places, shown
from penstock.encode.arrow.wire import booleans, numbers, raw, strings, texts, zigzag
from penstock.encode.protobuf.value import Prepared, Value, as_bytes, as_fixed, as_varints
from penstock.registry.protobuf.shape import Enum
from penstock.spec import types

INTEGERS = {
    F.TYPE_INT32: ("int32", -(2**31), 2**31 - 1),
    F.TYPE_SINT32: ("sint32", -(2**31), 2**31 - 1),
    F.TYPE_SFIXED32: ("sfixed32", -(2**31), 2**31 - 1),
    F.TYPE_INT64: ("int64", -(2**63), 2**63 - 1),
    F.TYPE_SINT64: ("sint64", -(2**63), 2**63 - 1),
    F.TYPE_SFIXED64: ("sfixed64", -(2**63), 2**63 - 1),
    F.TYPE_UINT32: ("uint32", 0, 2**32 - 1),
    F.TYPE_FIXED32: ("fixed32", 0, 2**32 - 1),
    F.TYPE_UINT64: ("uint64", 0, 2**64 - 1),
    F.TYPE_FIXED64: ("fixed64", 0, 2**64 - 1),
}
_FIXED = {F.TYPE_SFIXED32: "<i4", F.TYPE_FIXED32: "<u4", F.TYPE_SFIXED64: "<i8", F.TYPE_FIXED64: "<u8"}
_FLOATS = {F.TYPE_FLOAT: "<f4", F.TYPE_DOUBLE: "<f8"}
_SIGNED = (F.TYPE_SINT32, F.TYPE_SINT64)
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,19}")

Prepare = Callable[[pa.Array, Places], Prepared]


def plain(number: int, column: types.Type, path: str) -> Value:
    """A scalar from a column that `protobuf.plan` lets through."""
    if number == F.TYPE_BOOL:
        return as_varints(lambda found, _places: booleans(found))
    if number in _FLOATS:
        return as_fixed(lambda found, _places: numbers(found), _FLOATS[number])
    if number == F.TYPE_BYTES:
        return as_bytes(lambda found, _places: raw(found))
    if number == F.TYPE_STRING and isinstance(column, types.Scalar) and column.name == "string":
        return as_bytes(lambda found, places: texts(found, places, path))
    if number == F.TYPE_STRING:
        return as_bytes(lambda found, places: raw(_as_text(found, places, path)))
    prepare = _from_decimal(number, path) if isinstance(column, types.Decimal) else _from_integer(number, path)
    return _integer(number, prepare)


def _integer(number: int, prepare: Prepare) -> Value:
    if number in _FIXED:
        return as_fixed(prepare, _FIXED[number])
    if number in _SIGNED:
        return as_varints(lambda found, places: zigzag(prepare(found, places)))
    return as_varints(prepare)


def _from_integer(number: int, path: str) -> Prepare:
    """As 64 bits: of a negative number Protobuf writes all of them."""
    name, first, last = INTEGERS[number]

    def prepare(column: pa.Array, places: Places) -> Numbers:
        values = numbers(column).astype(np.int64, copy=False)
        wrong = (values < first) | (values > min(last, 2**63 - 1))
        if wrong.any():
            places.fail(wrong, path, record.OUT_OF_RANGE, lambda i: f"{int(values[i])} does not fit {name}")
        return values.view(np.uint64)

    return prepare


def _from_decimal(number: int, path: str) -> Prepare:
    name, _, _ = INTEGERS[number]

    def prepare(column: pa.Array, places: Places) -> Numbers:
        if not len(column):
            return np.zeros(0, np.uint64)
        both = np.frombuffer(column.buffers()[1], "<u8", 2 * len(column), 16 * column.offset).reshape(len(column), 2)
        wrong = both[:, 1] != 0
        if wrong.any():
            places.fail(wrong, path, record.OUT_OF_RANGE, lambda i: f"{column[i].as_py()} does not fit {name}")
        return np.ascontiguousarray(both[:, 0])

    return prepare


def _as_text(column: pa.Array, places: Places, path: str) -> pa.Array:
    """What Protobuf has no type for, as text that SQL casts back: decimals, dates, timestamps without a zone."""
    if pa.types.is_timestamp(column.type):
        places.fail_times(numbers(column), path)
        return pc.replace_substring(column.cast(pa.string()), " ", "T")
    if pa.types.is_date(column.type):
        places.fail_days(numbers(column), path)
        return column.cast(pa.string())
    text = column.cast(pa.string())
    if pc.any(pc.match_substring(text, "E")).as_py():
        return pa.array([f"{value:f}" for value in column.to_pylist()], pa.string())
    return text


def enumeration(enum: Enum, path: str) -> Value:
    """By name, also one of several for a number; or as digits, where an enum may have numbers without a name."""
    known = {name: number for number, name in (*enum.names, *enum.others)}

    def number_of(text: str) -> int | None:
        if text in known or enum.closed or not _NUMBER.fullmatch(text):
            return known.get(text)
        return int(text) if -(2**31) <= int(text) < 2**31 else None

    return as_varints(_by_text(number_of, path, record.OUT_OF_RANGE, lambda text: f"{shown(text)} is no {enum.name}"))


def key(number: int, path: str) -> Value:
    """The key of a map, which is text in a column."""
    if number == F.TYPE_STRING:
        return as_bytes(lambda found, places: texts(found, places, path))
    if number == F.TYPE_BOOL:
        return as_varints(
            _by_text(
                {"false": 0, "true": 1}.get, path, record.WRONG_TYPE, lambda text: f"the key {shown(text)} is no bool"
            )
        )
    name, first, last = INTEGERS[number]

    def number_of(text: str) -> int | None:
        found = int(text) if _NUMBER.fullmatch(text) else last + 1
        return found if first <= found <= last else None

    return _integer(
        number, _by_text(number_of, path, record.WRONG_TYPE, lambda text: f"the key {shown(text)} is no {name}")
    )


def _by_text(
    number_of: Callable[[str], int | None], path: str, error_class: str, said: Callable[[str], str]
) -> Prepare:
    """Looked up once for each different text."""

    def prepare(column: pa.Array, places: Places) -> Numbers:
        coded = column.dictionary_encode()
        different = strings(coded.dictionary)
        found = [number_of(text) for text in different]
        codes = numbers(coded.indices)
        wrong = np.array([number is None for number in found], np.bool_)
        if wrong.any():
            places.fail(wrong[codes], path, error_class, lambda i: said(different[codes[i]]))
        return np.array([(number or 0) % 2**64 for number in found], np.uint64)[codes]

    return prepare
