"""Columns of scalars as Avro writes them. Values that the schema cannot hold fail their row here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.encode.arrow.encoded import Numbers, Places, shown
from penstock.encode.arrow.wire import (
    Pieces,
    Writer,
    booleans,
    even,
    numbers,
    raw,
    sized,
    sizes_of,
    strings,
    texts,
    varints,
    zigzag,
)
from penstock.registry.avro.model import Enum, Fixed, Primitive
from penstock.spec import types

_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_MOST_NANOS = (2**63 - 1) // 1000  # microseconds that are nanoseconds of 64 bits


def scalar(path: str, schema: Primitive | Fixed, column: str) -> Writer:
    """The writer for a column that `avro.plan` lets through."""
    if isinstance(schema, Fixed):
        return _fixed(path, schema.size)
    logical = schema.logical.name if schema.logical else None
    if column == "date":
        return _date(path)
    if column.startswith("timestamp") and logical is not None:
        return _timestamp(path, logical)
    match schema.kind:
        case "boolean":
            return lambda found, _places: [even(booleans(found))]
        case "int" | "long":
            return _integer(path) if schema.kind == "int" and column == "bigint" else _narrow_integer
        case "float":
            return lambda found, _places: [even(numbers(found).astype("<f4", copy=False))]
        case "double":
            return lambda found, _places: [even(numbers(found).astype("<f8", copy=False))]
        case "bytes":
            return _bytes
    return _uuid(path) if logical == "uuid" else _text(path)


def _narrow_integer(column: pa.Array, _places: Places) -> Pieces:
    return [varints(zigzag(numbers(column)))]


def _integer(path: str) -> Writer:
    def write(column: pa.Array, places: Places) -> Pieces:
        values = numbers(column)
        wide = values != values.astype(np.int32)
        if wide.any():
            places.fail(wide, path, record.OUT_OF_RANGE, lambda i: f"{int(values[i])} does not fit an int")
        return [varints(zigzag(values))]

    return write


def _date(path: str) -> Writer:
    def write(column: pa.Array, places: Places) -> Pieces:
        days = numbers(column)
        places.fail_days(days, path)
        return [varints(zigzag(days))]

    return write


def _timestamp(path: str, logical: str) -> Writer:
    """Arrow has microseconds. What is finer than the schema's unit does not fit: it would come back as another time."""

    def write(column: pa.Array, places: Places) -> Pieces:
        values = numbers(column)
        if logical.endswith("nanos"):
            wrong = (values < -_MOST_NANOS) | (values > _MOST_NANOS)
            places.fail(wrong, path, record.OUT_OF_RANGE, lambda i: f"{int(values[i])} us does not fit nanoseconds")
            return [varints(zigzag(values * 1000))]
        places.fail_times(values, path)
        unit = 1000 if logical.endswith("millis") else 1
        finer = values % unit != 0
        places.fail(finer, path, record.OUT_OF_RANGE, lambda i: f"{int(values[i])} us is not a whole number of ms")
        return [varints(zigzag(values // unit))]

    return write


def _bytes(column: pa.Array, _places: Places) -> Pieces:
    return _with_size(raw(column))


def _text(path: str) -> Writer:
    return lambda column, places: _with_size(texts(column, places, path))


def _with_size(piece: pa.Array) -> Pieces:
    return [varints(sizes_of(piece) << 1), piece]


def _uuid(path: str) -> Writer:
    def write(column: pa.Array, places: Places) -> Pieces:
        wrong = ~pc.match_substring_regex(column, _UUID).fill_null(True).to_numpy(zero_copy_only=False)
        if wrong.any():
            places.fail(wrong, path, record.WRONG_TYPE, lambda i: f"{_shown_at(column, i)} is no uuid")
        return _with_size(raw(column))

    return write


def _shown_at(column: pa.Array, i: int) -> str:
    return shown(strings(column.slice(i, 1))[0])


def _fixed(path: str, size: int) -> Writer:
    def write(column: pa.Array, places: Places) -> Pieces:
        piece = raw(column)
        sizes = sizes_of(piece)
        wrong = sizes != size
        if wrong.any():
            places.fail(wrong, path, record.OUT_OF_RANGE, lambda i: f"{int(sizes[i])} bytes, not {size}")
        return [piece]

    return write


def enumeration(path: str, schema: Enum) -> Writer:
    symbols = pa.array(schema.symbols, pa.string())

    def write(column: pa.Array, places: Places) -> Pieces:
        found = pc.index_in(column, symbols.cast(column.type))
        if found.null_count:
            unknown = found.is_null().to_numpy(zero_copy_only=False)
            places.fail(unknown, path, record.OUT_OF_RANGE, lambda i: f"{_shown_at(column, i)} is no {schema.name}")
            found = found.fill_null(0)
        return [varints(zigzag(numbers(found)))]

    return write


def decimal(path: str, schema: Primitive | Fixed, column: types.Decimal) -> Writer:
    """Big-endian two's complement: in as few bytes as it takes, or in those of a fixed."""
    logical = schema.logical
    assert logical is not None
    precision, scale = logical.precision, logical.scale
    size = schema.size if isinstance(schema, Fixed) else None

    more = scale - column.scale  # digits after the point that are added, or taken away
    room = precision - more  # digits of the column's number that the schema has room for

    def write(found: pa.Array, places: Places) -> Pieces:
        low, high = _limbs(found)
        # Before the places change: past 128 bits Arrow's cast gives another number, and does not always say so.
        wrong = ~_below(low, high, 10 ** max(room, 0)) if room < column.precision else np.zeros(len(low), np.bool_)
        if more < 0:
            wrong |= _broken(low, high, 10**-more)
        if wrong.any():
            places.fail(
                wrong, path, record.OUT_OF_RANGE, lambda i: f"{found[i].as_py()} is not a value that fits {logical}"
            )
            low, high = np.where(wrong, np.uint64(0), low), np.where(wrong, np.int64(0), high)
        if more:
            low, high = _limbs(_column(low, high, column).cast(pa.decimal128(precision, scale)))
        return _fixed_number(low, high, size) if size is not None else _number(low, high)

    return write


def _limbs(column: pa.Array) -> tuple[Numbers, Numbers]:
    """The low and the high 64 bits."""
    if not len(column):
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    both = np.frombuffer(column.buffers()[1], "<u8", 2 * len(column), 16 * column.offset).reshape(len(column), 2)
    return both[:, 0], both[:, 1].view(np.int64)


def _below(low: Numbers, high: Numbers, limit: int) -> Numbers:
    """Which numbers are between -limit and limit."""
    high_limit, low_limit = limit >> 64, np.uint64(limit & 2**64 - 1)
    high_floor, low_floor = -limit >> 64, np.uint64(-limit & 2**64 - 1)
    inside: Numbers = (high < high_limit) | ((high == high_limit) & (low < low_limit))
    inside &= (high > high_floor) | ((high == high_floor) & (low > low_floor))
    return inside


def _broken(low: Numbers, high: Numbers, unit: int) -> Numbers:
    """Which numbers are not whole units."""
    small = high == low.view(np.int64) >> 63
    if unit < 2**63 and small.all():
        parts: Numbers = low.view(np.int64) % unit != 0
        return parts
    whole = zip(low.tolist(), high.tolist(), strict=True)
    return np.fromiter(((above << 64 | below) % unit != 0 for below, above in whole), np.bool_, len(low))


def _column(low: Numbers, high: Numbers, column: types.Decimal) -> pa.Array:
    both = pa.py_buffer(np.stack((low.view(np.int64), high), axis=1))
    return pa.Array.from_buffers(pa.decimal128(column.precision, column.scale), len(low), [None, both])


def _number(low: Numbers, high: Numbers) -> Pieces:
    small = high == low.view(np.int64) >> 63
    if small.all():
        matrix = low.astype(">u8").view(np.uint8).reshape(len(low), 8)
        signed = low.view(np.int64)
        magnitude = (signed ^ signed >> 63).view(np.uint64)
        sizes = np.ones(len(low), np.int64)
        for bits in range(7, 63, 8):
            sizes += magnitude >= np.uint64(1 << bits)
    else:
        matrix = _big_endian(low, high)
        sign = (high >> 63).astype(np.uint8)  # 0 or 255
        # A first byte that only repeats the sign, and whose next byte still shows it, need not be written.
        needless = (matrix[:, :-1] == sign[:, None]) & ((matrix[:, 1:] ^ matrix[:, :-1]) < 0x80)
        sizes = 16 - np.logical_and.accumulate(needless, axis=1).sum(axis=1)
    width = matrix.shape[1]
    data = matrix[np.arange(width) >= width - sizes[:, None]]
    return [varints(sizes << 1), sized(sizes, data)]


def _big_endian(low: Numbers, high: Numbers) -> Numbers:
    matrix = np.empty((len(low), 16), np.uint8)
    matrix[:, :8] = high.astype(">i8").view(np.uint8).reshape(len(low), 8)
    matrix[:, 8:] = low.astype(">u8").view(np.uint8).reshape(len(low), 8)
    return matrix


def _fixed_number(low: Numbers, high: Numbers, size: int) -> Pieces:
    matrix = _big_endian(low, high)
    if size > 16:
        signs = np.repeat((high >> 63).astype(np.uint8)[:, None], size - 16, axis=1)
        matrix = np.concatenate((signs, matrix), axis=1)
    return [even(matrix[:, matrix.shape[1] - size :])]
