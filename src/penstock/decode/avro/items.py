"""Arrays and maps: first where each item begins, for all records; then all items at once, as a batch of their own.

Both passes go over the same bytes, and an item that the second one does not end where the first one did fails its
record: no item can hold bytes of its neighbour.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock import record
from penstock.decode.arrow.page import Numbers
from penstock.decode.avro.cursor import Cursor
from penstock.decode.avro.scalars import Reader, text_column
from penstock.decode.avro.walk import Found, Walk, find_items

_NONE = np.empty(0, np.int64)


def array(path: str, walk: Walk, read_item: Reader) -> Reader:
    def read(at: Cursor) -> pa.Array:
        found = find_items(at, path, walk)
        items, stops, offsets = _items(at, found)
        column = read_item(items)
        _agree(items, stops, path)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), column)

    return read


def mapping(path: str, walk: Walk, read_value: Reader) -> Reader:
    """The last value of a key that is written twice counts, as in JSON."""

    def read(at: Cursor) -> pa.Array:
        found = find_items(at, path, walk)
        items, stops, offsets = _items(at, found)
        starts, sizes = items.span(f"{path}[]")
        keys = text_column(items, f"{path}[]", starts, sizes)
        values = read_value(items)
        _agree(items, stops, path)
        kept = _last_of_each(keys, items.outer_index, offsets)
        if kept is not None:
            keys, values = keys.take(pa.array(kept)), values.take(pa.array(kept))
            offsets = _offsets(items.outer_index[kept], len(at))
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values)

    return read


def _last_of_each(keys: pa.Array, owners: Numbers, offsets: Numbers) -> Numbers | None:
    """The entries that stay, or None when no map has a key twice."""
    if not len(keys) or np.diff(offsets).max() < 2:
        return None
    coded = keys.dictionary_encode()
    both = owners * len(coded.dictionary) + coded.indices.to_numpy()
    _, last = np.unique(both[::-1], return_index=True)
    return None if len(last) == len(both) else np.sort(len(both) - 1 - last)


def _items(at: Cursor, found: Found) -> tuple[Cursor, Numbers, Numbers]:
    """All items as one cursor, ordered by array; where each must end; and the offsets of the arrays."""
    owners = np.concatenate([_NONE, *found.owners])
    order = np.argsort(owners, kind="stable")
    owners = owners[order]
    starts, stops, ordinals = (
        np.concatenate([_NONE, *pieces])[order] for pieces in (found.starts, found.stops, found.ordinals)
    )
    return at.items(owners, starts, ordinals), stops, _offsets(owners, len(at))


def _offsets(owners: Numbers, size: int) -> Numbers:
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=size), out=offsets[1:])
    return offsets


def _agree(items: Cursor, stops: Numbers, path: str) -> None:
    differ = (items.pos != stops) & (items.end != items.page.zeros_end)
    if differ.any():
        items.fail(differ, f"{path}[]", record.MALFORMED, "ends where the next item does not begin")
