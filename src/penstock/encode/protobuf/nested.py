"""Fields with their tags: single, repeated and in maps; and the messages and groups that are made of fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from penstock import record
from penstock.encode.arrow.encoded import Numbers, Places
from penstock.encode.arrow.wire import Pieces, Writer, booleans, gathered, joined, lists, sizes_of, spread
from penstock.encode.protobuf.value import (
    END_OF_GROUP,
    GROUP,
    LENGTH,
    Value,
    as_message,
    tag,
    unless_zero,
    with_length,
)
from penstock.registry.protobuf.shape import Field, Presence

_NO_NULLS = "null, which a repeated field or a map cannot hold"


def fields(path: str, members: Sequence[tuple[Field, Writer]]) -> Writer:
    """The fields of a message one after the other; of a oneof at most one may be set."""
    of_oneof = sorted((f for f, _ in members if f.oneof), key=lambda f: f.oneof or "")
    oneofs = [list(of_one) for _, of_one in groupby(of_oneof, key=lambda f: f.oneof)]

    def write(column: pa.Array, places: Places) -> Pieces:
        for of_one in oneofs:
            _only_one(column, places, path, of_one)
        return [piece for field, written in members for piece in written(column.field(field.name), places)]

    return write


def _only_one(column: pa.Array, places: Places, path: str, members: list[Field]) -> None:
    are_set = [_is_set(column.field(f.name), isinstance(f.shape, Presence)) for f in members]
    several = np.sum(are_set, axis=0) > 1

    def told(i: int) -> str:
        found = [field.name for field, is_set in zip(members, are_set, strict=True) if is_set[i]]
        return f"{' and '.join(found)} are set, but are members of one oneof"

    if several.any():
        places.fail(several, path, record.WRONG_TYPE, told)


def _is_set(column: pa.Array, false_is_absent: bool) -> Numbers:
    valid: Numbers = column.is_valid().to_numpy(zero_copy_only=False)
    return valid & (booleans(column) == 1) if false_is_absent else valid


def message(write: Writer) -> Value:
    return as_message(lambda column, places: joined(write(column, places), len(places)))


def group(value: Value, number: int) -> Value:
    """A message between two tags instead of behind its length."""
    return replace(value, wire=GROUP, pieces=lambda body: [body, tag(number, END_OF_GROUP)])


def single(number: int, value: Value, path: str, *, presence: bool, required: bool) -> Writer:
    mark = tag(number, value.wire)

    def write(column: pa.Array, places: Places) -> Pieces:
        prepared = value.prepare(column, places)
        if not presence and value.zeros is not None:
            return unless_zero(number, value, prepared, len(column))
        return [mark, *value.pieces(prepared)]

    def checked(column: pa.Array, places: Places) -> Pieces:
        if required:
            places.fail_nulls(column, path)
        return _where_set(column, places, write, false_is_absent=value.false_is_absent)

    return checked


def repeated(number: int, value: Value, path: str, *, packed: bool) -> Writer:
    """Each item with its tag; or packed, all items behind one tag."""
    mark = tag(number, value.wire)

    def item(column: pa.Array, places: Places) -> Pieces:
        pieces = value.pieces(value.prepare(column, places))
        return pieces if packed else [mark, *pieces]

    def write(column: pa.Array, places: Places) -> Pieces:
        offsets, owners, ordinals, where = lists(column)
        items, at = column.values[where], places.items(owners, ordinals)
        at.fail_nulls(items, path, _NO_NULLS)
        together = gathered(joined(_where_set(items, at, item), len(items)), offsets)
        return _packed(number, together) if packed else [together]

    return lambda column, places: _where_set(column, places, write)


def _packed(number: int, together: pa.Array) -> Pieces:
    mark, index = tag(number, LENGTH), np.flatnonzero(sizes_of(together))
    if len(index) == len(together):
        return [mark, *with_length(together)]
    pieces = [mark, *with_length(together.take(pa.array(index)))]
    return [spread(joined(pieces, len(index)), index, len(together))]


def pairs(number: int, key: Value, value: Value, path: str) -> Writer:
    """A map is a repeated message of a key and a value."""
    key_mark, value_mark, mark = tag(1, key.wire), tag(2, value.wire), tag(number, LENGTH)

    def entry(column: pa.Array, places: Places) -> Pieces:
        keys = key.pieces(key.prepare(column.field(0), places))
        values = value.pieces(value.prepare(column.field(1), places))
        return [mark, *with_length(joined([key_mark, *keys, value_mark, *values], len(column)))]

    def write(column: pa.Array, places: Places) -> Pieces:
        offsets, owners, _, where = lists(column)
        keys, values = column.keys[where], column.items[where]
        at = places.items(owners, None)
        at.fail_nulls(values, path, _NO_NULLS)
        entries = pa.StructArray.from_arrays([keys, values], ["key", "value"], mask=values.is_null())
        return [gathered(joined(_where_set(entries, at, entry), len(entries)), offsets)]

    return lambda column, places: _where_set(column, places, write)


def _where_set(column: pa.Array, places: Places, write: Writer, *, false_is_absent: bool = False) -> Pieces:
    """Writes what is not null, and nothing where it is."""
    if not column.null_count and not false_is_absent:
        return write(column, places)
    there = _is_set(column, false_is_absent)
    if there.all():
        return write(column, places)
    index = np.flatnonzero(there)
    pieces = write(column.take(pa.array(index)), places.part(index))
    return [spread(joined(pieces, len(index)), index, len(column))]
