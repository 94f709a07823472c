"""Records, unions, arrays and maps, from the writers of what is inside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock import record as words
from penstock.encode.arrow.encoded import Numbers, Places
from penstock.encode.arrow.wire import (
    Piece,
    Pieces,
    Writer,
    constant,
    even,
    gathered,
    joined,
    lists,
    sized,
    spread,
    texts,
    varints,
    zigzag,
)
from penstock.encode.arrow.wire import sizes_of as piece_sizes
from penstock.registry.avro.default import number


def always(piece: Piece) -> Writer:
    """A field that no column has: the same everywhere."""
    return lambda _column, _places: [piece]


def required(path: str, write: Writer) -> Writer:
    def written(column: pa.Array, places: Places) -> Pieces:
        places.fail_nulls(column, path)
        return write(column, places)

    return written


def record(fields: Sequence[tuple[str | None, Writer]]) -> Writer:
    def written(column: pa.Array, places: Places) -> Pieces:
        return [p for name, write in fields for p in write(column if name is None else column.field(name), places)]

    return written


def nullable(path: str, branch: int, write: Writer, null: int | None) -> Writer:
    """One type beside null: only what is not null is written."""
    present = constant(number(branch))

    def written(column: pa.Array, places: Places) -> Pieces:
        if null is None or not column.null_count:
            places.fail_nulls(column, path)
            return [present, *write(column, places)]
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        index = np.flatnonzero(valid)
        pieces = write(column.drop_null(), places.part(index))
        which = _branches(np.where(valid, branch, null))
        return [which, *(spread(piece, index, len(column)) for piece in pieces)]

    return written


def _branches(which: Numbers) -> pa.Array:
    return varints(zigzag(which))


def one_of(path: str, members: Sequence[tuple[str, int, Writer]], null: int | None) -> Writer:
    """A struct of which one member is set: the branch that is written."""
    names = ", ".join(name for name, _, _ in members)

    def written(column: pa.Array, places: Places) -> Pieces:
        here = column.is_valid().to_numpy(zero_copy_only=False)
        values = [column.field(name) for name, _, _ in members]
        are_set = [here & value.is_valid().to_numpy(zero_copy_only=False) for value in values]
        count = np.sum(are_set, axis=0)
        if null is None:
            places.fail_nulls(column, path)
            places.fail(count == 0, path, words.MISSING_FIELD, f"one of {names} is required, but all are null")
        several = count > 1
        if several.any():
            places.fail(several, path, words.WRONG_TYPE, lambda i: f"{_told(members, are_set, i)} are set, not one")
        which = np.full(len(column), null or 0)
        pieces: Pieces = []
        for (_, branch, write), value, is_set in zip(members, values, are_set, strict=True):
            which[is_set] = branch
            index = np.flatnonzero(is_set)
            if len(index):
                inner = write(value.take(pa.array(index)), places.part(index))
                pieces += [spread(piece, index, len(column)) for piece in inner]
        return [_branches(which), *pieces]

    return written


def _told(members: Sequence[tuple[str, int, Writer]], are_set: list[Numbers], i: int) -> str:
    return " and ".join(name for (name, _, _), is_set in zip(members, are_set, strict=True) if is_set[i])


def array(write: Writer) -> Writer:
    def written(column: pa.Array, places: Places) -> Pieces:
        offsets, owners, ordinals, where = lists(column)
        items = joined(write(column.values[where], places.items(owners, ordinals)), len(owners))
        return _blocks(items, offsets)

    return written


def mapping(path: str, write: Writer) -> Writer:
    def written(column: pa.Array, places: Places) -> Pieces:
        offsets, owners, _, where = lists(column)
        at = places.items(owners, None)
        keys = texts(column.keys[where], at, path)
        values = write(column.items[where], at)
        return _blocks(joined([varints(zigzag(piece_sizes(keys))), keys, *values], len(owners)), offsets)

    return written


def _blocks(items: pa.Array, offsets: Numbers) -> Pieces:
    """One block with all items, then an empty one; only that one where there are none."""
    counts = np.diff(offsets)
    zeros = np.zeros(int((counts > 0).sum()), np.uint8)
    ends = even(zeros) if len(zeros) == len(counts) else sized(counts > 0, zeros)
    return [varints(zigzag(counts)), gathered(items, offsets), ends]
