"""One line of comma-separated values per record, in the order of the schema's fields.

Fields are text and are read as their type: `12.50` as a decimal, `true` as a boolean, RFC 3339 as a timestamp. An empty
field that is not quoted is null; fields may be quoted, also over several lines. More fields than the schema has, or
fewer, are a failure: nobody can tell which one is missing.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import msgspec
import pyarrow as pa

from penstock import record
from penstock.decode.decoded import NULL, Decoded, empty, invalid_utf8
from penstock.decode.json import explain_mismatch
from penstock.decode.records import Columns, class_of, no_cycles
from penstock.record import Failure, shortened
from penstock.spec.types import Struct


class CsvDecoder:
    """Made once per task; called for every Arrow batch."""

    def __init__(self, struct: Struct, delimiter: str) -> None:
        self._names = [m.name for m in struct.members]
        self._class = class_of(struct)
        self._columns = Columns(struct)
        self._delimiter = delimiter

    def __call__(self, values: pa.Array) -> Decoded:
        with no_cycles():
            return self._decoded(values.to_pylist())

    def _decoded(self, raw: list[bytes | None]) -> Decoded:
        records: list[Any] = []
        failures: dict[int, Failure] = {}
        for i, value in enumerate(raw):
            found = self._record(value)
            if isinstance(found, Failure):
                failures[i] = found
                found = None
            records.append(found)
        return Decoded(self._columns.build(records, failures), failures)

    def _record(self, value: bytes | None) -> Any:
        if value is None:
            return NULL
        if not value.strip():
            return empty(len(value))
        try:
            lines = list(csv.reader(io.StringIO(value.decode(), newline=""), delimiter=self._delimiter, strict=True))
        except UnicodeDecodeError as error:
            return invalid_utf8(error)
        except csv.Error as error:
            return Failure(record.MALFORMED, f"not CSV: {error}")
        if len(lines) != 1:
            return Failure(record.MALFORMED, f"not one line but {len(lines)}")
        if len(lines[0]) != len(self._names):
            return Failure(record.MALFORMED, f"{len(lines[0])} fields, the schema has {len(self._names)}")
        given = {name: text for name, text in zip(self._names, lines[0], strict=True) if text != ""}
        try:
            return msgspec.convert(given, self._class, strict=False)
        except msgspec.ValidationError as error:
            return explain_mismatch(msgspec.json.encode(given), str(error))
        except Exception as error:  # any bytes must end as a record or as a failure
            return Failure(record.MALFORMED, shortened(f"not readable: {type(error).__name__}: {error}"))
