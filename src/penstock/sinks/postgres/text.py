"""Arrow columns as the text that COPY reads: CSV, written natively.

Null is an empty field and an empty string is `""`: Arrow quotes every string and PostgreSQL takes only the unquoted one
for null. A backslash means nothing in CSV.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

_OPTIONS = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")


def csv(columns: Mapping[str, pa.Array]) -> bytes:
    batch = pa.RecordBatch.from_arrays([_printable(column) for column in columns.values()], names=list(columns))
    out = pa.BufferOutputStream()
    pyarrow.csv.write_csv(batch, out, _OPTIONS)
    return bytes(out.getvalue())


def _printable(column: pa.Array) -> pa.Array:
    """The column in a type that Arrow prints as PostgreSQL reads it."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(pa.timestamp("us"))  # in UTC, as our sessions are; with a zone it prints 30 times slower
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hex(column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _array(column)
    return column


def _as_double(column: pa.Array) -> pa.Array:
    """Every float is a double, but not the double that its shortest digits say."""
    kind = column.type
    return column.cast(pa.list_(pa.float64()) if pa.types.is_list(kind) else pa.float64())


def _whole(column: pa.Array) -> pa.Array:
    """Numbers that are whole as PostgreSQL reads an integer: 5, not 5.00 or 1e+15. Others stay, for it to refuse."""
    is_whole = pc.equal(pc.trunc(column), column)
    if pa.types.is_decimal(column.type):
        integers = pc.trunc(column).cast(pa.decimal128(38, 0), safe=False)
    else:
        is_whole = pc.and_(is_whole, pc.less(pc.abs(column), 2.0**63))
        integers = column.cast(pa.int64(), safe=False)
    return pc.if_else(is_whole, integers.cast(pa.string()), column.cast(pa.string()))


PRINTED = {"double": _as_double, "whole": _whole}


def _hex(column: pa.Array) -> pa.Array:
    """bytea: a backslash, an x and the bytes in hex, all of a column at once."""
    column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    digits = bytes(data)[ends[0] : ends[-1]].hex().encode() if data is not None else b""
    doubled = np.ascontiguousarray((ends - ends[0]) * 2)
    plain = pa.LargeStringArray.from_buffers(len(column), pa.py_buffer(doubled), pa.py_buffer(digits))
    return _where_valid(column, _joined("\\x", plain))


def _array(column: pa.Array) -> pa.Array:
    """An array literal: `{1,NULL,3}`, with text in double quotes."""
    items = _printable(column.values)
    if pa.types.is_string(items.type) or pa.types.is_large_string(items.type):
        escaped = pc.replace_substring(pc.replace_substring(items, "\\", "\\\\"), '"', '\\"')
        items = _joined('"', escaped, '"')
    texts = items.cast(pa.large_string()).fill_null("NULL")
    lists = pa.LargeListArray.from_arrays(column.offsets.cast(pa.int64()), texts)
    return _where_valid(column, _joined("{", pc.binary_join(lists, pa.scalar(",", pa.large_string())), "}"))


def _joined(*parts: pa.Array | str) -> pa.Array:
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    cast = [part.cast(pa.large_string()) for part in scalars]
    return pc.binary_join_element_wise(*cast, pa.scalar("", pa.large_string()))


def _where_valid(column: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.large_string()))
