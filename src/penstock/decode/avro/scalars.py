"""Columns of scalars: what is at each position of a cursor, as one Arrow array of the type that the view has.

A reader is made from what the writer wrote and what the reader wants, so that a promotion (int to double, bytes to
string) costs no more than the plain type. Values that a view cannot hold (a decimal with too many digits, a time
outside the years 1 to 9999) fail their record here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock import record
from penstock.decode.arrow.page import Numbers, Page, bad_byte, not_text, views
from penstock.decode.avro.cursor import Cursor
from penstock.record import FIRST_DAY, FIRST_MICROSECOND, LAST_DAY, LAST_MICROSECOND
from penstock.registry.avro.model import Enum, Fixed, Logical, Primitive

Reader = Callable[[Cursor], pa.Array]
"""Reads one value at each position and moves behind it. One row per position, also for lost records."""
Finish = Callable[[Cursor, Numbers], pa.Array]

_U64 = np.uint64
_UTC, _LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
_TIMES = {
    "timestamp-millis": (1000, _UTC),
    "timestamp-micros": (1, _UTC),
    "local-timestamp-millis": (1000, _LOCAL),
    "local-timestamp-micros": (1, _LOCAL),
}
_CALENDAR = "in the years 1 to 9999"


def nothing(arrow: pa.DataType) -> Reader:
    """A null, which takes no bytes."""
    return lambda at: pa.nulls(len(at), arrow)


def refused(path: str, arrow: pa.DataType, error_class: str, reason: str) -> Reader:
    """A branch of the writer's union that the reader has no place for: whoever holds it is lost."""

    def read(at: Cursor) -> pa.Array:
        at.fail(np.ones(len(at), np.bool_), path, error_class, reason)
        return pa.nulls(len(at), arrow)

    return read


def boolean(path: str) -> Reader:
    def read(at: Cursor) -> pa.Array:
        found = at.page.data[at.skip(path, 1)]
        wrong = found > 1
        if wrong.any():
            at.fail(wrong, path, record.MALFORMED, lambda i: f"a boolean is byte 0 or 1, not 0x{int(found[i]):02x}")
        return pa.array(found == 1)

    return read


def integer(path: str, writer: Primitive, finish: Finish) -> Reader:
    """An int or a long, and what the reader makes of it."""

    def read_long(at: Cursor) -> pa.Array:
        return finish(at, at.varint(path))

    def read_int(at: Cursor) -> pa.Array:
        values = at.varint(path)
        wide = values != values.astype(np.int32)
        if wide.any():
            at.fail(wide, path, record.MALFORMED, lambda i: f"{int(values[i])} does not fit an int")
            values = np.where(wide, 0, values)
        return finish(at, values)

    return read_int if writer.kind == "int" else read_long


def finish_integer(path: str, reader: Primitive) -> Finish:
    name = reader.logical.name if reader.logical else reader.kind
    if name == "date":
        return lambda at, values: _inside(at, path, values, FIRST_DAY, LAST_DAY, 1, pa.date32())
    if name in _TIMES:
        factor, arrow = _TIMES[name]
        first, last = FIRST_MICROSECOND // factor, LAST_MICROSECOND // factor
        return lambda at, values: _inside(at, path, values, first, last, factor, arrow)
    dtype = {"int": np.int32, "long": np.int64, "float": np.float32, "double": np.float64}[reader.kind]
    return lambda _, values: pa.array(values.astype(dtype, copy=False))


def _inside(at: Cursor, path: str, values: Numbers, first: int, last: int, factor: int, arrow: pa.DataType) -> pa.Array:
    outside = (values < first) | (values > last)
    if outside.any():
        what = "date" if arrow == pa.date32() else "time"
        at.fail(outside, path, record.OUT_OF_RANGE, lambda i: f"{int(values[i])} is not a {what} {_CALENDAR}")
        values = np.where(outside, 0, values)
    if arrow == pa.date32():
        return pa.array(values.astype(np.int32)).view(arrow)
    return pa.array(values * factor).view(arrow)


def floating(path: str, writer: Primitive, reader: Primitive) -> Reader:
    wanted = np.float32 if reader.kind == "float" else np.float64

    def read_float(at: Cursor) -> pa.Array:
        words = at.page.words[at.skip(path, 4)]
        return pa.array(words.astype(np.uint32).view(np.float32).astype(wanted, copy=False))

    def read_double(at: Cursor) -> pa.Array:
        return pa.array(at.page.words[at.skip(path, 8)].view(np.float64))

    return read_float if writer.kind == "float" else read_double


Spans = Callable[[Cursor], tuple[Numbers, Numbers]]


def spans_of(path: str, writer: Primitive | Fixed) -> Spans:
    """Where the bytes of a string, bytes or fixed are."""
    if isinstance(writer, Primitive):
        return lambda at: at.span(path)
    size = writer.size

    def spans(at: Cursor) -> tuple[Numbers, Numbers]:
        starts = at.skip(path, size)
        return starts, np.where(starts >= at.page.zeros, 0, size)  # the zeros of lost records are not that long

    return spans


def text(path: str, spans: Spans) -> Reader:
    return lambda at: text_column(at, path, *spans(at))


def binary(spans: Spans) -> Reader:
    return lambda at: views(at.page, *spans(at)).cast(pa.binary())


def text_column(at: Cursor, path: str, starts: Numbers, sizes: Numbers) -> pa.Array:
    found = views(at.page, starts, sizes)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        column = found.cast(pa.binary())
    wrong = not_text(column)

    def reason(i: int) -> str:
        raw = column[i].as_py()
        position = bad_byte(raw) or 0
        return f"invalid UTF-8: byte 0x{raw[position]:02x} at position {position} of the text"

    at.fail(wrong, path, record.MALFORMED, reason)
    return views(at.page, starts, np.where(wrong, 0, sizes)).cast(pa.string())


def enumeration(path: str, writer: Enum, reader: Enum) -> Reader:
    known = {symbol: i for i, symbol in enumerate(reader.symbols)}
    default = known[reader.default] if reader.default is not None else -1
    places = np.array([known.get(symbol, default) for symbol in writer.symbols], np.int64)
    symbols = pa.array(reader.symbols, pa.string())

    def read(at: Cursor) -> pa.Array:
        found = at.varint(path)
        wrong = (found < 0) | (found >= len(places))
        if wrong.any():
            at.fail(wrong, path, record.MALFORMED, lambda i: f"symbol {int(found[i])} of {len(places)} in the enum")
            found = np.where(wrong, 0, found)
        placed = places[found]
        unknown = (placed < 0) & ~wrong
        if unknown.any():
            at.fail(unknown, path, record.OUT_OF_RANGE, lambda i: f"'{writer.symbols[found[i]]}' is no {reader.name}")
        return symbols.take(pa.array(np.maximum(placed, 0)))

    return read


def decimal(path: str, spans: Spans, logical: Logical) -> Reader:
    """Big-endian two's complement of any length, as Arrow's 128 bits."""
    arrow = pa.decimal128(logical.precision, logical.scale)
    limit = 10**logical.precision
    high_limit, low_limit = limit >> 64, _U64(limit & 2**64 - 1)
    high_floor, low_floor = -limit >> 64, _U64(-limit & 2**64 - 1)

    def read(at: Cursor) -> pa.Array:
        starts, sizes = spans(at)
        empty = (sizes == 0) & (starts < at.page.zeros)
        if empty.any():
            at.fail(empty, path, record.MALFORMED, "a decimal of no bytes")
        low, high = _wide(at.page, starts, sizes)
        bits = low.view(_U64)
        fits = (high < high_limit) | ((high == high_limit) & (bits < low_limit))
        fits &= (high > high_floor) | ((high == high_floor) & (bits > low_floor))
        for i in np.flatnonzero(sizes > 16).tolist():  # more bytes than a decimal needs, perhaps only signs
            number = _number(at.page, starts, sizes, i)
            fits[i] = -limit < number < limit
            if fits[i]:
                low[i], high[i] = (number & 2**64 - 1) - (number & 2**63) * 2, number >> 64
        if not fits.all():

            def reason(i: int) -> str:
                return f"{_digits(_number(at.page, starts, sizes, i), logical.scale)} does not fit {logical}"

            at.fail(~fits, path, record.OUT_OF_RANGE, reason)
            low, high = np.where(fits, low, 0), np.where(fits, high, 0)
        return pa.Array.from_buffers(arrow, len(low), [None, pa.py_buffer(np.stack((low, high), axis=1))])

    return read


def _wide(page: Page, starts: Numbers, sizes: Numbers) -> tuple[Numbers, Numbers]:
    """The low and the high 64 bits of numbers of at most 16 bytes, from the 16 bytes that end where they end."""
    ends = starts + sizes
    last = page.words[np.minimum(ends - 8, page.zeros_end)].byteswap().view(np.int64)
    first = page.words[np.minimum(ends - 16, page.zeros_end)].byteswap().view(np.int64)
    bits = sizes * 8
    short = np.minimum(np.maximum(64 - bits, 0), 63)
    low = np.where(sizes > 0, last << short >> short, 0)
    short = np.minimum(np.maximum(128 - bits, 0), 63)
    high = np.where(sizes > 8, first << short >> short, low >> 63)
    return low, high


def _number(page: Page, starts: Numbers, sizes: Numbers, i: int) -> int:
    return int.from_bytes(bytes(page.data[starts[i] : starts[i] + sizes[i]]), "big", signed=True)


def _digits(number: int, scale: int) -> str:
    if number.bit_length() > 1000:  # Python refuses to write very long numbers, and nobody would read one
        return f"a number of {number.bit_length()} bits"
    return f"{number}e-{scale}" if scale else str(number)
