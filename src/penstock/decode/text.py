"""Text and plain bytes: one column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.decoded import NULL, Decoded, invalid_utf8
from penstock.record import Failure


class BytesDecoder:
    """Every value is good, but no value."""

    def __call__(self, values: pa.Array) -> Decoded:
        column = values.cast(pa.binary())
        return Decoded([column], _nulls(column))


class StringDecoder:
    """UTF-8."""

    def __call__(self, values: pa.Array) -> Decoded:
        raw = values.cast(pa.binary())
        try:
            column = raw.cast(pa.string())
            failures: dict[int, Failure] = {}
        except pa.ArrowInvalid:
            column, failures = _one_by_one(raw)
        return Decoded([column], failures | _nulls(raw))


def _nulls(column: pa.Array) -> dict[int, Failure]:
    return dict.fromkeys(pc.indices_nonzero(column.is_null()).to_pylist(), NULL) if column.null_count else {}


def _one_by_one(raw: pa.Array) -> tuple[pa.Array, dict[int, Failure]]:
    texts: list[str | None] = []
    failures: dict[int, Failure] = {}
    for i, value in enumerate(raw.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            failures[i] = invalid_utf8(error)
            texts.append(None)
    return pa.array(texts, pa.string()), failures
