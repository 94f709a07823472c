"""A table of several files, for readers that leave files out by their statistics: every type, values at the edges."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sinks.delta.log import DeltaLog
from penstock.sinks.files.writer import FileWriter
from tests.handed import batch

_UTC = dt.UTC
_LONG = "\U0001f600" * 31 + "ü"
COLUMNS = pa.schema(
    [
        ("row", pa.int64()),
        ("with.dot", pa.int64()),
        ("a_bool", pa.bool_()),
        ("a_byte", pa.int8()),
        ("a_float", pa.float32()),
        ("a_double", pa.float64()),
        ("a_decimal", pa.decimal128(38, 16)),
        ("a_text", pa.string()),
        ("a_binary", pa.binary()),
        ("a_date", pa.date32()),
        ("a_time", pa.timestamp("us", tz="UTC")),
        ("a_local_time", pa.timestamp("us")),
        ("a_list", pa.list_(pa.struct([("x", pa.int64())]))),
        ("a_map", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("a_struct", pa.struct([("x.y", pa.int64()), ("l", pa.list_(pa.string())), ("f", pa.float64())])),
        ("after", pa.int64()),
    ]
)
VALUES: dict[str, list[list[Any]]] = {  # of each file, of each row group
    "with.dot": [[1, 2], [3, None], [4, 5], [6, 7]],
    "a_bool": [[True, True], [False, None], [False, True], [None, False]],
    "a_byte": [[1, 2], [-128, None], [127, 0], [5, 5]],
    "a_float": [[0.1, 0.2], [float("inf"), None], [-0.0, 1.5], [float("-inf"), 0.0]],
    "a_double": [[0.1, float("nan")], [float("inf"), None], [-0.0, 1e308], [float("-inf"), 0.0]],
    "a_decimal": [
        [Decimal("0.1"), Decimal("0.5")],
        [Decimal("12345678901234567890.1234567890123456"), None],
        [Decimal("-12345678901234567890.1234567890123456"), Decimal(0)],
        [Decimal("99.99"), Decimal("100")],
    ],
    "a_text": [["abc", "z" * 50], [None, "z" * 5000], [_LONG + "x", _LONG + "\U0010ffff!"], ["", "a" * 33]],
    "a_binary": [[b"", b"\xff"], [b"a", None], [b"b", b"c"], [b"d", b"e"]],
    "a_date": [
        [dt.date(1, 1, 1), dt.date(2024, 2, 29)],
        [None, dt.date(9999, 12, 31)],
        [dt.date(1970, 1, 1)] * 2,
        [dt.date(2000, 1, 1), None],
    ],
    "a_time": [
        [dt.datetime(1, 1, 1, tzinfo=_UTC), dt.datetime(2024, 1, 1, 12, 0, 0, 123456, tzinfo=_UTC)],
        [dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=_UTC), None],
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=_UTC), dt.datetime(1970, 1, 1, tzinfo=_UTC)],
        [None, dt.datetime(2024, 6, 1, tzinfo=_UTC)],
    ],
    "a_local_time": [
        [dt.datetime(1, 1, 1), dt.datetime(2024, 1, 1, 12, 0, 0, 123456)],
        [dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1)],
        [None, dt.datetime(2024, 6, 1)],
    ],
    "a_list": [[[{"x": 1}], []]] * 4,
    "a_map": [[[("k", [1])], None]] * 4,
    "a_struct": [[{"x.y": 1, "l": ["a"], "f": 1.5}, None]] * 4,
    "after": [[1, 2], [3, None], [4, 5], [6, 7]],
}
FILES = {"nan": [0, 3], "long text": [1, 3], "edges": [2, 1], "plain": [3], "other": [2]}
"""Which of the values each file holds, a row group each. Only the first file has NaN."""


def made(path: Path) -> list[dict[str, Any]]:
    """Write the table, each file as a worker writes it, and a file that has nulls only. Returns the rows."""
    rows: list[dict[str, Any]] = []
    log = DeltaLog("lake", path)
    written = []
    for groups in FILES.values():
        writer = FileWriter(path, COLUMNS, "{}")
        for which in groups:
            values = {name: VALUES[name][which] for name in VALUES}
            made = [{"row": len(rows) + i} | {n: v[i] for n, v in values.items()} for i in range(2)]
            writer.write(pa.RecordBatch.from_pylist(made, schema=COLUMNS))
            writer._flush()
            rows += made
        written.append(writer.close())
    writer = FileWriter(path, COLUMNS, "{}")
    rows.append({"row": len(rows)} | dict.fromkeys(VALUES))
    writer.write(pa.RecordBatch.from_pylist(rows[-1:], schema=COLUMNS))
    written.append(writer.close())
    log.commit(batch(0), [file for file in written if file], COLUMNS)
    return rows


def conditions(rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any, list[int]]]:
    """Column, value, and the rows in which the column is not less than the value; for every value there is."""
    for field in COLUMNS:
        if pa.types.is_nested(field.type):
            continue
        there = pa.array([row[field.name] for row in rows], field.type).to_pylist()  # a float as the table has it
        for value in {repr(v): v for v in there if v is not None}.values():
            yield field.name, value, [i for i, v in enumerate(there) if v is not None and _not_less(v, value)]


def ends(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, Any, list[int]]]:
    """Column, operator, value and rows: the least value of each column, and the greatest."""
    found: dict[str, list[tuple[Any, list[int]]]] = {}
    for name, value, above in conditions(rows):
        found.setdefault(name, []).append((value, above))
    for name, values in found.items():
        (least, every), (greatest, top) = (pick(values, key=lambda pair: len(pair[1])) for pick in (max, min))
        second = max((above for _, above in values if len(above) < len(every)), key=len, default=[])
        yield name, ">=", greatest, top
        yield name, "<=", least, [row for row in every if row not in second]


def _not_less(value: Any, than: Any) -> bool:
    """As Spark has it: NaN is equal to itself, and greater than all else."""
    return bool(value != value or (than == than and value >= than))  # noqa: PLR0124  NaN
