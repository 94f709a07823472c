"""How one value of a Protobuf field is written, without its tag: as a number, in a fixed width, or with its length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.encode.arrow.encoded import Numbers, Places
from penstock.encode.arrow.wire import Pieces, constant, even, joined, sizes_of, spread, varint, varints

VARINT, FIXED64, LENGTH, GROUP, END_OF_GROUP, FIXED32 = range(6)  # wire types

Prepared = Any
"""Values, none of them null, ready to be written: numpy numbers or an Arrow array of bytes."""


@dataclass(frozen=True)
class Value:
    """How values of one type are written.

    `prepare` checks them and is given no nulls; `pieces` writes what it gave. Numbers and texts are in between as
    numpy or Arrow hold them, so that zeros, which a field without presence leaves out, are cheap to tell.
    """

    wire: int
    prepare: Callable[[pa.Array, Places], Prepared]
    pieces: Callable[[Prepared], Pieces]
    zeros: Callable[[Prepared], Numbers] | None = None  # None: messages, which have no zero
    false_is_absent: bool = False  # of a message without fields, which is a boolean in a column


def as_varints(prepare: Callable[[pa.Array, Places], Numbers]) -> Value:
    return Value(VARINT, prepare, lambda values: [varints(values)], lambda values: values == 0)


def as_fixed(prepare: Callable[[pa.Array, Places], Numbers], dtype: str) -> Value:
    kind = np.dtype(dtype)
    bits = np.dtype(f"<u{kind.itemsize}")

    def pieces(values: Numbers) -> Pieces:
        return [even(values.astype(kind, copy=False))]

    def zeros(values: Numbers) -> Numbers:
        found: Numbers = values.astype(kind, copy=False).view(bits) == 0  # minus zero is not zero
        return found

    return Value(FIXED64 if kind.itemsize == 8 else FIXED32, prepare, pieces, zeros)


def as_bytes(prepare: Callable[[pa.Array, Places], pa.Array]) -> Value:
    return Value(LENGTH, prepare, with_length, lambda piece: sizes_of(piece) == 0)


def as_message(body: Callable[[pa.Array, Places], pa.Array]) -> Value:
    """`body` gives the bytes of the message."""
    return Value(LENGTH, body, with_length)


def with_length(piece: pa.Array) -> Pieces:
    return [varints(sizes_of(piece)), piece]


def tag(number: int, wire: int) -> pa.Scalar:
    return constant(varint(number << 3 | wire))


def unless_zero(number: int, value: Value, prepared: Prepared, count: int) -> Pieces:
    """A field without presence: its zero is not written."""
    assert value.zeros is not None
    zeros = value.zeros(prepared)
    mark = tag(number, value.wire)
    if not zeros.any():
        return [mark, *value.pieces(prepared)]
    index = np.flatnonzero(~zeros)
    picked = prepared.take(pa.array(index)) if isinstance(prepared, pa.Array) else prepared[index]
    return [spread(joined([mark, *value.pieces(picked)], len(index)), index, count)]
