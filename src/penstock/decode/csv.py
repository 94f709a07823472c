"""One line of comma-separated values per record, in the order of the schema's fields.

Each field is held against its type alone, and is read as the JSON decoder reads it: a number or a boolean must be
written as JSON writes one, everything else is the text of a JSON string. So `12.50` is a decimal, `true` a boolean,
RFC 3339 a timestamp; `1` is no boolean, `1.0` no int, `NULL` neither of them nor null. An empty field without quotes
is null, `""` is the empty text. Fields may be quoted, also over several lines. More fields than the schema has, or
fewer, are a failure: nobody can tell which one is missing.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from penstock import record
from penstock.decode.arrow.columns import NUMBER, WHOLE, shown
from penstock.decode.arrow.decoded import NULL, Decoded, empty, invalid_utf8
from penstock.decode.json import explain
from penstock.decode.records import Columns, class_of, no_cycles
from penstock.errors import counted
from penstock.record import Failure, shortened
from penstock.spec.types import Decimal, Scalar, Struct, Type

_WHOLE = re.compile(WHOLE)
_NUMBER = re.compile(NUMBER)
_BOOLEAN = re.compile("true|false")
_WHOLE_TYPES = ("tinyint", "smallint", "int", "bigint")

Bare = tuple[Callable[[str], object], str]
"""Whether a text is one of the values that JSON writes without quotes, and what it is called."""

_FRACTIONAL: Bare = (_NUMBER.fullmatch, "a number")


def _bare(declared: Type) -> Bare | None:
    match declared:
        case Scalar(epoch=str()):
            return _WHOLE.fullmatch, "a whole number"
        case Scalar(name=name) if name in _WHOLE_TYPES:
            return _WHOLE.fullmatch, "a whole number"
        case Scalar(name="float" | "double") | Decimal():
            return _FRACTIONAL
        case Scalar(name="boolean"):
            return _BOOLEAN.fullmatch, "true or false"
    return None


class CsvDecoder:
    """Made once per task; called for every Arrow batch."""

    def __init__(self, struct: Struct, delimiter: str) -> None:
        self._fields = [(m.name, _bare(m.type)) for m in struct.members]
        self._decode = msgspec.json.Decoder(class_of(struct)).decode
        self._columns = Columns(struct)
        self._delimiter = delimiter
        # Where a field ends: csv has found the line sound by then, so nothing needs to be checked again.
        end = re.escape(delimiter)
        self._field = re.compile(f'("(?:[^"]|"")*"|[^{end}\r\n]*)({end}|[\r\n]*$)')

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
            text = value.decode()
            within = io.StringIO(text, newline="") if "\n" in text or "\r" in text else (text,)  # the latter is quicker
            lines = list(csv.reader(within, delimiter=self._delimiter, strict=True))
        except UnicodeDecodeError as error:
            return invalid_utf8(error)
        except csv.Error as error:
            return Failure(record.MALFORMED, f"not CSV: {error}")
        if len(lines) != 1:
            return Failure(record.MALFORMED, f"not one line but {len(lines)}")
        line = lines[0]
        if len(line) != len(self._fields):
            return Failure(record.MALFORMED, f"{counted(len(line), 'field')}, the schema has {len(self._fields)}")
        quoted = self._quoted(text) if "" in line and '""' in text else set()
        given: dict[str, str | msgspec.Raw] = {}
        for i, (field, (name, bare)) in enumerate(zip(line, self._fields, strict=True)):
            if not field and i not in quoted:
                continue
            if bare is None:
                given[name] = field
            elif bare[0](field):
                given[name] = msgspec.Raw("-0.0" if field == "-0" and bare is _FRACTIONAL else field)
            else:
                return Failure(record.WRONG_TYPE, shortened(f"{name}: {_shown(field)} is not {bare[1]}"))
        document = msgspec.json.encode(given)
        try:
            return self._decode(document)
        except Exception as error:  # any bytes must end as a record or as a failure
            return explain(document, error)

    def _quoted(self, text: str) -> set[int]:
        """The numbers of the fields that are written in quotes, which csv does not tell."""
        found = set()
        for i, field in enumerate(self._field.finditer(text)):
            if field[1].startswith('"'):
                found.add(i)
            if field[2] != self._delimiter:
                break
        return found


def _shown(field: str) -> str:
    return shown(f'"{field}"')
