"""Records as serializers write them, read side by side: each field once, in the order of its number, nothing else.

Protobuf allows more: fields in any order, twice, unknown ones, numbers with zeros in front. A record that makes use of
it, and every record that is bad, is called odd here and is left to protobuf's own runtime (`protobuf.decoder`); what is
not odd can be read in one way only. So nothing is explained here, and nothing that protobuf refuses is accepted: a
record must end exactly where its last field does, and so must each message inside of it.

The columns are those that ptars gives for the plain schema of `protobuf.batch`, which makes of them what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor as F  # type: ignore[import-untyped]

from penstock.decode.arrow.page import Numbers, Page, long_varints, not_text, views
from penstock.registry.protobuf.shape import Duration, Enum, Field, Message, Plain, Shape, Timestamp, Wrapper, within

_U64 = np.uint64
_VARINT, _EIGHT, _SIZED, _FOUR = 0, 1, 2, 5  # wire types
_VARINTS = {
    F.TYPE_INT32: np.int32,
    F.TYPE_INT64: np.int64,
    F.TYPE_UINT32: np.uint32,
    F.TYPE_UINT64: np.uint64,
    F.TYPE_SINT32: np.int32,
    F.TYPE_SINT64: np.int64,
    F.TYPE_BOOL: np.bool_,
    F.TYPE_ENUM: np.int32,
}
_FOURS = {F.TYPE_FIXED32: np.uint32, F.TYPE_SFIXED32: np.int32, F.TYPE_FLOAT: np.float32}
_EIGHTS = {F.TYPE_FIXED64: np.uint64, F.TYPE_SFIXED64: np.int64, F.TYPE_DOUBLE: np.float64}
_ZIGZAG = (F.TYPE_SINT32, F.TYPE_SINT64)
_SECONDS_AND_NANOS = Message((Field("", 1, Plain(F.TYPE_INT64)), Field("", 2, Plain(F.TYPE_INT32))))


def suits(shape: Message) -> bool:
    """Whether all fields can be read here: those that stand once, and are no group."""
    return all(
        isinstance(field.shape, Plain | Enum | Timestamp | Duration | Wrapper | Message)
        and not (field.repeated or field.group)
        for field in within(shape)
    )


class Cursor:
    """One position per record, or per message inside of one. Those that are odd are moved to the zeros of the page,
    where no field begins."""

    def __init__(self, page: Page, pos: Numbers, end: Numbers, odd: Numbers) -> None:
        self.page, self.pos, self.end, self.odd = page, pos, end, odd

    def give_up(self, where: Numbers) -> None:
        self.odd |= where
        self.pos = np.where(where, self.page.zeros, self.pos)
        self.end = np.where(where, self.page.zeros, self.end)


Value = Callable[[Cursor, Numbers], tuple[pa.Array, Numbers]]
"""Reads the value at each of some positions: the column, and where each value ends. It gives up those that have none.
At the zeros of the page it finds zeros."""
Read = Callable[[Cursor], tuple[pa.Array, Numbers | None]]
"""The column of a field, and which records have it, None for all. The cursor goes past it."""


class Flat:
    """Made once per schema and worker process, for a shape that `suits`."""

    def __init__(self, shape: Message) -> None:
        self._read = _message(shape)

    def __call__(self, page: Page, starts: Numbers, ends: Numbers) -> tuple[list[pa.Array], Numbers]:
        """A column per field of the shape, and which records are odd: what columns have there means nothing."""
        at = Cursor(page, starts, ends, np.zeros(len(starts), np.bool_))
        columns = self._read(at)
        return columns, at.odd | (at.pos != at.end)


def _message(shape: Message) -> Callable[[Cursor], list[pa.Array]]:
    in_order = sorted(enumerate(shape.fields), key=lambda numbered: numbered[1].number)
    reads = [(i, field.oneof, _field(field)) for i, field in in_order]

    def read_all(at: Cursor) -> list[pa.Array]:
        columns: list[pa.Array] = [None] * len(reads)
        taken: dict[str, Numbers] = {}
        for i, oneof, read in reads:
            columns[i], present = read(at)
            if oneof is not None:  # of two members the later one counts
                here = np.ones(len(at.pos), np.bool_) if present is None else present
                at.give_up(here & taken.get(oneof, np.zeros_like(here)))
                taken[oneof] = here | taken.get(oneof, np.zeros_like(here))
        return columns

    return read_all


def _field(field: Field) -> Read:
    wire, value = _value(field.shape)
    tag = _tag(field.number, wire)
    size, nullable = len(tag), field.presence

    def read(at: Cursor) -> tuple[pa.Array, Numbers | None]:
        present = (at.page.data[at.pos] == tag[0]) & (at.pos < at.end)
        for i in range(1, size):
            present &= at.page.data[at.pos + i] == tag[i]
        if present.all():
            column, after = value(at, at.pos + size)
            _move(at, after)
            return column, None
        if field.required:
            at.give_up(~present & (at.pos < at.page.zeros))  # of a message that is absent nothing is required
        column, after = value(at, np.where(present, at.pos + size, at.page.zeros))
        _move(at, np.where(present, after, at.pos))
        return (_null_where(column, ~present) if nullable else column), present

    return read


def _move(at: Cursor, after: Numbers) -> None:
    past = after > at.end
    if past.any():
        at.give_up(past)
    at.pos = np.where(at.odd, at.pos, after) if at.odd.any() else after


def _null_where(column: pa.Array, absent: Numbers) -> pa.Array:
    if pa.types.is_struct(column.type):
        return pa.StructArray.from_arrays(column.flatten(), fields=list(column.type), mask=pa.array(absent))
    valid = pa.array(~absent).buffers()[1]
    return pa.Array.from_buffers(column.type, len(column), [valid, *column.buffers()[1:]])


def _tag(number: int, wire: int) -> bytes:
    left, made = number << 3 | wire, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def _value(shape: Shape) -> tuple[int, Value]:
    match shape:
        case Plain(type=kind) if kind in _VARINTS:
            return _VARINT, _varint(kind)
        case Plain(type=kind) if kind in _FOURS:
            return _FOUR, _four(_FOURS[kind])
        case Plain(type=kind) if kind in _EIGHTS:
            return _EIGHT, _eight(_EIGHTS[kind])
        case Plain(type=F.TYPE_STRING):
            return _SIZED, _text
        case Plain(type=F.TYPE_BYTES):
            return _SIZED, _bytes
        case Enum(names=names, closed=closed):
            return _VARINT, _varint(F.TYPE_ENUM, [number for number, _ in names] if closed else None)
        case Timestamp() | Duration():
            return _SIZED, _inside(_SECONDS_AND_NANOS)
        case Wrapper(value=plain):
            return _SIZED, _inside(Message((Field("", 1, plain),)))
        case Message():
            return _SIZED, _inside(shape)
    raise AssertionError(shape)


def _number(at: Cursor, pos: Numbers) -> tuple[Numbers, Numbers]:
    """Numbers as they are written, and where they end. One with zeros in front is odd."""
    raw: Numbers = at.page.data[pos]
    if not (raw > 0x7F).any():
        return raw.astype(np.int64), pos + 1
    value, after = long_varints(at.page, pos)
    last = at.page.data[np.minimum(after - 1, at.page.zeros_end)]
    padded = (last == 0) & (after - pos > 1)
    if padded.any():
        at.give_up(padded)
    return value, after


def _varint(kind: int, known: list[int] | None = None) -> Value:
    dtype = _VARINTS[kind]

    def read(at: Cursor, pos: Numbers) -> tuple[pa.Array, Numbers]:
        raw, after = _number(at, pos)
        if kind == F.TYPE_SINT32:
            _fits(at, raw, raw.astype(np.uint32))
        if kind in _ZIGZAG:
            bits = raw.view(_U64)
            raw = (bits >> _U64(1)).view(np.int64) ^ -(bits & _U64(1)).view(np.int64)
        found = raw.view(_U64) if dtype is np.uint64 else raw.astype(dtype)
        if dtype not in (np.int64, np.uint64):
            _fits(at, raw, found)
        if known is not None:
            at.give_up(~np.isin(found, known) & (pos < at.page.zeros))
        return pa.array(found), after

    return read


def _fits(at: Cursor, raw: Numbers, found: Numbers) -> None:
    wide = raw != found
    if wide.any():
        at.give_up(wide)


def _four(dtype: Any) -> Value:
    return lambda at, pos: (pa.array(at.page.words[pos].astype(np.uint32).view(dtype)), pos + 4)


def _eight(dtype: Any) -> Value:
    return lambda at, pos: (pa.array(at.page.words[pos].view(dtype)), pos + 8)


def _span(at: Cursor, pos: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Where bytes begin, how many there are, and where they end."""
    sizes, begun = _number(at, pos)
    # Those that are absent begin behind every record; that they have no bytes is known.
    wrong = (sizes != 0) & ((sizes < 0) | (sizes > at.end - begun)) | (begun > len(at.page.data))
    if wrong.any():
        at.give_up(wrong)
        begun, sizes = np.where(wrong, at.page.zeros, begun), np.where(wrong, 0, sizes)
    return begun, sizes, begun + sizes


def _text(at: Cursor, pos: Numbers) -> tuple[pa.Array, Numbers]:
    begun, sizes, after = _span(at, pos)
    found = views(at.page, begun, sizes)
    try:
        return found.cast(pa.string()), after
    except pa.ArrowInvalid:
        wrong = not_text(found.cast(pa.binary()))
    at.give_up(wrong)
    return views(at.page, begun, np.where(wrong, 0, sizes)).cast(pa.string()), after


def _bytes(at: Cursor, pos: Numbers) -> tuple[pa.Array, Numbers]:
    begun, sizes, after = _span(at, pos)
    return views(at.page, begun, sizes).cast(pa.binary()), after


def _inside(shape: Message) -> Value:
    read_all = _message(shape)

    def read(at: Cursor, pos: Numbers) -> tuple[pa.Array, Numbers]:
        begun, _, after = _span(at, pos)
        inner = Cursor(at.page, begun, after, np.zeros(len(begun), np.bool_))
        columns = read_all(inner)
        odd = inner.odd | (inner.pos != inner.end)
        if odd.any():
            at.give_up(odd)
        return pa.StructArray.from_arrays(columns, [f"f{i}" for i in range(len(columns))]), after

    return read
