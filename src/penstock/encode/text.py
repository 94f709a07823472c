"""Text and plain bytes: one column is the record."""

from __future__ import annotations

import pyarrow as pa

from penstock.encode.encoded import Encoded, Places
from penstock.encode.wire import finished, raw, texts


class StringEncoder:
    """UTF-8, from a column of strings."""

    def __init__(self, column: str = "value") -> None:
        self._column = column

    def __call__(self, columns: pa.RecordBatch) -> Encoded:
        column = columns.column(self._column)
        places = Places.of_rows(len(column))
        places.fail_nulls(column, self._column)
        return finished([texts(column, places, self._column)], places)


class BytesEncoder:
    """The bytes as they are, from a column of binary."""

    def __init__(self, column: str = "value") -> None:
        self._column = column

    def __call__(self, columns: pa.RecordBatch) -> Encoded:
        column = columns.column(self._column)
        places = Places.of_rows(len(column))
        places.fail_nulls(column, self._column)
        return finished([raw(column)], places)
