"""Bytes of many records side by side.

What is written for a field is a piece: an Arrow array that has, for each place, the bytes there; or a scalar where
they are the same everywhere. A record is its pieces, joined place by place in one call to Arrow. Pieces are made by
numpy, a column at a time. Two facts make this cheap: the items of a list follow each other in their piece already, so
the bytes of a list are the same buffer seen through fewer offsets (`gathered`); and a value that is absent takes no
bytes, so values of some places become a piece of all places by offsets alone (`spread`).

Pieces have 64-bit offsets, as no piece may overflow; only a finished batch has to fit Arrow's 31 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.encode.arrow.encoded import Encoded, Numbers, Places

MAGIC = b"\0"

Piece = Any
"""An Arrow array or scalar of large_binary, without nulls."""
Pieces = list[Piece]
Writer = Callable[[pa.Array, Places], Pieces]
"""Writes the value at each place of a column. Values that do not fit fail their row."""

_BINARY = pa.large_binary()
_U64 = np.dtype("<u8")
_MOST_BYTES = 2**31 - 1  # of one Arrow array of binary
_SIZES = np.arange(11)
_WITHIN = np.arange(10) < _SIZES[:, None]  # [size] -> which of ten bytes belong to a number of that size
_MORE = np.array([sum(0x80 << 8 * i for i in range(size - 1)) for size in range(9)], _U64)  # bits that say: goes on


def header_of(schema_id: int) -> bytes:
    """The registry's header: the magic byte and the id of the schema, big-endian."""
    return MAGIC + schema_id.to_bytes(4, "big")


def finished(pieces: Sequence[Any], places: Places) -> Encoded:
    """The pieces of whole records as their bytes, null where one failed."""
    values = joined(pieces, len(places))
    data = values.buffers()[2]
    if data is None or data.size <= _MOST_BYTES:  # else, past any batch that Spark makes, it stays large_binary
        values = values.cast(pa.binary())
    if not places.failures:
        return Encoded(values)
    if values.offset:
        values = pa.concat_arrays([values])
    kept = np.ones(len(values), np.bool_)
    kept[np.fromiter(places.failures, np.int64, len(places.failures))] = False
    _, *buffers = values.buffers()
    kept_bits = pa.py_buffer(np.packbits(kept, bitorder="little"))
    return Encoded(pa.Array.from_buffers(values.type, len(values), [kept_bits, *buffers]), places.failures)


def constant(raw: bytes) -> pa.Scalar:
    return pa.scalar(raw, _BINARY)


def even(data: Numbers) -> pa.Array:
    """Values that take the same number of bytes each: the size of the array's items."""
    raw = np.ascontiguousarray(data)
    width = raw.dtype.itemsize * (raw.shape[1] if raw.ndim > 1 else 1)
    return _array(np.arange(len(raw) + 1, dtype=np.int64) * width, raw)


def sized(sizes: Numbers, data: Numbers | pa.Buffer | None) -> pa.Array:
    """Values of these sizes, which follow each other in the data."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return _array(offsets, data)


def _array(offsets: Numbers, data: Numbers | pa.Buffer | None) -> pa.Array:
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(b"" if data is None else data)
    return pa.Array.from_buffers(_BINARY, len(offsets) - 1, [None, pa.py_buffer(offsets), buffer])


def offsets_of(piece: pa.Array) -> Numbers:
    if not len(piece):
        return np.zeros(1, np.int64)  # Arrow may leave the buffer out
    return np.frombuffer(piece.buffers()[1], np.int64, len(piece) + 1, piece.offset * 8)


def sizes_of(piece: pa.Array) -> Numbers:
    return np.diff(offsets_of(piece))


def joined(pieces: Sequence[Any], count: int) -> pa.Array:
    """One piece from several, place by place."""
    merged: Pieces = []
    for piece in pieces:
        if merged and isinstance(piece, pa.Scalar) and isinstance(merged[-1], pa.Scalar):
            merged[-1] = constant(merged[-1].as_py() + piece.as_py())
        else:
            merged.append(piece)
    if len(merged) == 1 and isinstance(merged[0], pa.Array):
        return merged[0]
    if all(isinstance(piece, pa.Scalar) for piece in merged):
        raw = merged[0].as_py() if merged else b""
        return _array(np.arange(count + 1, dtype=np.int64) * len(raw), np.frombuffer(raw * count, np.uint8))
    return pc.binary_join_element_wise(*merged, constant(b""))


def spread(piece: Piece, index: Numbers, count: int) -> pa.Array:
    """The piece of some places as one of all places, empty at the others."""
    part = piece if isinstance(piece, pa.Array) else joined([piece], len(index))
    offsets = offsets_of(part)
    sizes = np.zeros(count, np.int64)
    sizes[index] = np.diff(offsets)
    data = part.buffers()[2]
    return sized(sizes, data.slice(int(offsets[0])) if offsets[0] else data)


def gathered(items: pa.Array, offsets: Numbers) -> pa.Array:
    """The bytes of lists, from those of their items."""
    return _array(offsets_of(items)[offsets], items.buffers()[2])


def varints(values: Numbers) -> pa.Array:
    """Unsigned numbers, seven bits a byte, the lowest first."""
    top = int(values.max()) if len(values) else 0
    if top < 0x80:
        return even(values.astype(np.uint8))
    values = values.astype(_U64, copy=False)
    sizes = np.ones(len(values), np.int64)
    for bits in range(7, top.bit_length(), 7):
        sizes += values >= np.uint64(1 << bits)
    most = -(-top.bit_length() // 7)
    if most <= 8:
        matrix = (_apart(values) | _MORE[sizes]).view(np.uint8).reshape(len(values), 8)[:, :most]
    else:
        matrix = np.empty((len(values), most), np.uint8)
        for i in range(most):
            matrix[:, i] = values >> np.uint64(7 * i) & np.uint64(0x7F)
        matrix |= (np.arange(1, most + 1) < sizes[:, None]).astype(np.uint8) << 7
    if sizes.min() == most:
        return even(matrix)
    return sized(sizes, matrix[_WITHIN[sizes, :most]])


def _apart(values: Numbers) -> Numbers:
    """Seven bits of a number of at most 56 to each byte."""
    low, high = np.uint64(0x000000000FFFFFFF), np.uint64(0x00FFFFFFF0000000)
    values = (values & low) | (values & high) << np.uint64(4)
    low, high = np.uint64(0x00003FFF00003FFF), np.uint64(0x0FFFC0000FFFC000)
    values = (values & low) | (values & high) << np.uint64(2)
    low, high = np.uint64(0x007F007F007F007F), np.uint64(0x3F803F803F803F80)
    return (values & low) | (values & high) << np.uint64(1)


def zigzag(values: Numbers) -> Numbers:
    """Signed numbers as unsigned ones: 0, -1, 1, -2, ... as 0, 1, 2, 3, ..."""
    values = values.astype(np.int64, copy=False)
    return (values << 1 ^ values >> 63).view(np.uint64)


def varint(value: int) -> bytes:
    """One unsigned number: a tag, a message index."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def numbers(column: pa.Array) -> Numbers:
    """A column of numbers, days or times as numpy has them, without a copy. What is null is any number."""
    dtype = np.dtype(f"{'f' if pa.types.is_floating(column.type) else 'i'}{column.type.bit_width // 8}")
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def booleans(column: pa.Array) -> Numbers:
    """As bytes 0 and 1."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column), np.uint8)
    first, last = column.offset // 8, (column.offset + len(column) + 7) // 8
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8, last - first, first), bitorder="little")
    return bits[column.offset % 8 : column.offset % 8 + len(column)]


def raw(column: pa.Array) -> pa.Array:
    """A column of strings or binary as a piece."""
    piece = column.cast(_BINARY)
    if piece.null_count:
        piece = pa.Array.from_buffers(_BINARY, len(piece), [None, *piece.buffers()[1:]], offset=piece.offset)
    return piece


def texts(column: pa.Array, places: Places, path: str) -> pa.Array:
    """A column of strings as a piece. Spark does not look into them: whatever was cast to a string may be in there."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        values = column.cast(pa.binary()).to_pylist()
        bad = [None if value is None else _bad_byte(value) for value in values]

        def reason(i: int) -> str:
            return f"invalid UTF-8: byte 0x{values[i][bad[i]]:02x} at position {bad[i]} of the text"

        places.fail(np.array([at is not None for at in bad], np.bool_), path, record.MALFORMED, reason)
    return raw(column)


def _bad_byte(value: bytes) -> int | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def strings(column: pa.Array) -> list[Any]:
    """A column of strings in Python, where they must be UTF-8; what is none does not raise (see `record.quoted`)."""
    return [v if v is None else v.decode("utf-8", "surrogateescape") for v in column.cast(pa.binary()).to_pylist()]


def lists(column: pa.Array) -> tuple[Numbers, Numbers, Numbers, slice]:
    """Of lists or maps: the offsets, from 0 on; the list each item is in; its place there; and where the items are in
    the column's values."""
    width = np.int64 if pa.types.is_large_list(column.type) else np.int32
    buffer = column.buffers()[1]
    offsets = np.zeros(1, width)
    if buffer is not None and len(column):
        offsets = np.frombuffer(buffer, width, len(column) + 1, column.offset * np.dtype(width).itemsize)
    first = int(offsets[0])
    offsets = offsets.astype(np.int64) - first
    owners = np.repeat(np.arange(len(column)), np.diff(offsets))
    ordinals = np.arange(len(owners)) - offsets[owners]
    return offsets, owners, ordinals, slice(first, first + len(owners))
