"""Columns of records and unions, from the readers of what is inside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.decode.arrow.page import Numbers
from penstock.decode.avro.cursor import Cursor
from penstock.decode.avro.scalars import Reader
from penstock.decode.avro.walk import Walk, branch_of


def struct(arrow: pa.StructType, written: Sequence[Walk | tuple[int, Reader]], defaults: dict[int, pa.Array]) -> Reader:
    """A record: what was written, in the writer's order (into a place, or dropped), then what the reader adds."""
    fields = [arrow.field(i) for i in range(arrow.num_fields)]

    def read(at: Cursor) -> pa.Array:
        columns: list[pa.Array | None] = [None] * len(fields)
        for step in written:
            if isinstance(step, Walk):
                step.over(at)
            else:
                place, read_field = step
                columns[place] = read_field(at)
        for place, value in defaults.items():
            columns[place] = value.take(pa.array(np.zeros(len(at), np.int64)))
        return pa.StructArray.from_arrays(columns, fields=fields)

    return read


def member(arrow: pa.StructType, place: int, read_value: Reader) -> Reader:
    """One of several types: a struct in which only the member of that type is set."""
    fields = [arrow.field(i) for i in range(arrow.num_fields)]

    def read(at: Cursor) -> pa.Array:
        columns = [read_value(at) if i == place else pa.nulls(len(at), f.type) for i, f in enumerate(fields)]
        return pa.StructArray.from_arrays(columns, fields=fields)

    return read


def union(path: str, arrow: pa.DataType, branches: Sequence[Reader | None]) -> Reader:
    """A union of the writer: the records are parted by branch, read, and put together again. None reads null."""

    def read(at: Cursor) -> pa.Array:
        which = branch_of(at, path, len(branches))
        columns: list[pa.Array] = []
        indexes: list[Numbers] = []
        for branch, read_value in enumerate(branches):
            index = np.flatnonzero(which == branch)
            if not len(index) or read_value is None:
                continue
            if len(index) == len(at):
                return read_value(at)
            part = at.part(index)
            columns.append(read_value(part))
            indexes.append(index)
            at.rejoin(part)
        if not columns:
            return pa.nulls(len(at), arrow)
        return scattered(columns, places_of(indexes, len(at)))

    return read


def scattered(columns: Sequence[pa.Array], places: pa.Array) -> pa.Array:
    """One column from several, which follow each other in `places`."""
    return (columns[0] if len(columns) == 1 else pa.concat_arrays(columns)).take(places)


def places_of(indexes: Sequence[Numbers], size: int, absent: Numbers | None = None) -> pa.Array:
    """For columns whose values belong to the rows of `indexes`: which value each of `size` rows has; null for none."""
    index = np.concatenate(indexes)
    positions = np.zeros(size, np.int64)
    missing = np.ones(size, np.bool_)
    positions[index] = np.arange(len(index))
    missing[index] = False
    if absent is not None:
        missing[absent] = True
    return pa.array(positions, mask=missing)


def blanked(column: pa.Array, lost: Numbers) -> pa.Array:
    """The column with null where `lost`. Only the bits that say so are new; the values stay where they are."""
    if column.offset or pa.types.is_nested(column.type):
        return column.take(places_of([np.arange(len(column))], len(column), np.flatnonzero(lost)))
    kept = np.packbits(~lost, bitorder="little")
    validity, *values = column.buffers()
    if validity is not None:
        kept &= np.frombuffer(validity, np.uint8, len(kept))
    return pa.Array.from_buffers(column.type, len(column), [pa.py_buffer(kept), *values])
