"""Text and plain bytes: one column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.arrow.decoded import NULL, Decoded, not_utf8
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
        failures = not_utf8(raw)
        text = pa.array([None if i in failures else v for i, v in enumerate(raw.to_pylist())]) if failures else raw
        return Decoded([text.cast(pa.string())], failures | _nulls(raw))


def _nulls(column: pa.Array) -> dict[int, Failure]:
    return dict.fromkeys(pc.indices_nonzero(column.is_null()).to_pylist(), NULL) if column.null_count else {}
