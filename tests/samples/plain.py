"""CSV, text, bytes: no registry, and no serializer but Python's own."""

from __future__ import annotations

import base64
import csv
import datetime
import io
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from penstock.spec.formats import BytesFormat, CsvFormat, StringFormat
from tests.samples.lab import (
    Lab,
    Pair,
    Sample,
    aware,
    twice,
    unzipped,
)

CSV: dict[str, tuple[st.SearchStrategy[Pair], type]] = {
    "string": (st.text(min_size=1, max_size=10).map(twice), str),
    "boolean": (st.booleans().map(lambda b: (str(b).lower(), b)), bool),
    "int": (st.integers(-(2**31), 2**31 - 1).map(twice), int),
    "bigint": (st.integers(-(2**63), 2**63 - 1).map(twice), int),
    "double": (st.floats(allow_nan=False, allow_infinity=False).map(twice), float),
    "decimal(12,3)": (st.decimals(-999_999_999, 999_999_999, places=3).map(lambda d: (f"{d:f}", d)), Decimal),
    "date": (st.dates().map(lambda d: (d.isoformat(), d)), datetime.date),
    "timestamp": (aware.map(lambda t: (t.isoformat(), t)), datetime.datetime),
    "timestamp_ntz": (st.datetimes().map(lambda t: (t.isoformat(), t)), datetime.datetime),
    "binary": (st.binary(min_size=1, max_size=8).map(lambda b: (base64.b64encode(b).decode(), b)), bytes),
}


def csv_sample(draw: Any, lab: Lab) -> Sample:
    # A first field that is never empty: a line of nothing but white space is no record, whatever its delimiter.
    types = ["bigint", *draw(st.lists(st.sampled_from(list(CSV)), max_size=5))]
    needed = [True, *draw(st.lists(st.booleans(), min_size=len(types) - 1, max_size=len(types) - 1))]
    delimiter = draw(st.sampled_from(",;|\t"))
    columns = [
        CSV[type_][0] if need else st.one_of(st.just((None, None)), CSV[type_][0])
        for type_, need in zip(types, needed, strict=True)
    ]
    pairs = draw(st.lists(st.tuples(*columns).map(lambda p: unzipped(list(p))), min_size=1, max_size=8))
    fields = {f"f{i}": {"type": t, "required": n} for i, (t, n) in enumerate(zip(types, needed, strict=True))}

    def holds(row: dict[str, Any]) -> bool:
        return all(
            (not need if value is None else type(value) is CSV[type_][1])
            for value, type_, need in zip(row.values(), types, needed, strict=True)
        )

    return Sample(
        "csv",
        lab.prepared(CsvFormat.model_validate({"format": "csv", "schema": {"fields": fields}, "delimiter": delimiter})),
        [csv_line(given, delimiter) for given, _ in pairs],
        [dict(zip(fields, expected, strict=True)) for _, expected in pairs],
        holds,
        parses=lambda value: is_line(value, len(types), delimiter),
    )


def csv_line(given: list[Any], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerow(given)
    return out.getvalue().removesuffix("\r\n").encode()


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_line(value: bytes, fields: int, delimiter: str) -> bool:
    """Whether Python finds one line of so many fields."""
    try:
        found = list(csv.reader(io.StringIO(value.decode(), newline=""), delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error):
        return False
    return len(found) == 1 and len(found[0]) == fields


def string_sample(draw: Any, lab: Lab) -> Sample:
    texts = draw(st.lists(st.text(max_size=20), min_size=1, max_size=8))
    return Sample(
        "string",
        lab.prepared(StringFormat(format="string")),
        [text.encode() for text in texts],
        [{"value": text} for text in texts],
        lambda row: type(row["value"]) is str,
        parses=is_text,
    )


def bytes_sample(draw: Any, lab: Lab) -> Sample:
    values = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
    rows_of = [{"value": value} for value in values]
    prepared = lab.prepared(BytesFormat(format="bytes"))
    return Sample("bytes", prepared, values, rows_of, lambda row: type(row["value"]) is bytes)
