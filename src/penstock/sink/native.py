"""What Python workers write themselves: what they are handed, and files for sinks that can publish them.

A worker writes one Parquet file per task; nobody sees it until the driver publishes all files of the batch at once.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.record import Batch
from penstock.sink.contract import Incoming, Sink, Written

_ROWS_PER_GROUP = 256 * 1024
_LONGEST_TEXT = 32  # characters of a bound in the statistics; a longer text has none
_LAYOUT = b"org.apache.spark.sql.parquet.row.metadata"  # where Spark keeps the columns, and looks for them


@dataclass(frozen=True)
class Judged:
    """A decoded batch in the worker that writes it: what passed, and what died of which verdict."""

    good: pa.RecordBatch
    dead: pa.RecordBatch | None = None
    verdicts: pa.Array | None = None


@dataclass(frozen=True)
class NewFile:
    """A data file that is not published yet; `stats` as Delta writes them."""

    name: str
    rows: int
    size: int
    stats: str


@runtime_checkable
class TakesFiles(Sink, Protocol):
    """A sink that can publish files which workers have written."""

    def takes_files(self, incoming: Incoming) -> str:
        """Why not, of such rows; empty when it does."""

    def staging(self, batch: Batch) -> Path:
        """The directory that workers write the files of one attempt into."""

    def held(self, batch: Batch) -> int | None:
        """Rows the sink has of this batch, or None when it was not written."""

    def publish(self, batch: Batch, staging: Path, files: Sequence[NewFile], columns: pa.Schema) -> Written:
        """Make all files visible at once, or, when the batch is there already, none."""


@dataclass
class FileWriter:
    """In a worker: rows in, one file out."""

    directory: Path
    columns: pa.Schema
    layout: str  # the same columns as Spark writes them
    _name: str = field(default_factory=lambda: f"part-{uuid.uuid4().hex}.snappy.parquet")
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _writer: Any = None
    _groups: list[Any] = field(default_factory=list)

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if sum(part.num_rows for part in self._waiting) >= _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> NewFile | None:
        """The file, or None when there were no rows."""
        if not self._rows:
            return None
        self._flush()
        self._writer.close()
        (metadata,) = self._groups
        size = (self.directory / self._name).stat().st_size
        return NewFile(self._name, self._rows, size, json.dumps(_statistics(metadata, self.columns)))

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            described = self.columns.with_metadata({_LAYOUT: self.layout.encode()})
            self._writer = pq.ParquetWriter(
                self.directory / self._name,
                described,
                compression="snappy",
                store_schema=False,
                metadata_collector=self._groups,
            )
        table = pa.Table.from_batches(self._waiting, self.columns)
        self._writer.write_table(table, row_group_size=len(table))
        self._waiting = []


def _statistics(metadata: Any, columns: pa.Schema) -> dict[str, Any]:
    """Rows, bounds and nulls of a file, by which readers leave files out."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for i in range(metadata.num_columns):
        parts = [metadata.row_group(g).column(i) for g in range(metadata.num_row_groups)]
        path = parts[0].path_in_schema.split(".")
        type_ = _type_at(columns, path)
        found = [part.statistics for part in parts]
        if type_ is None or any(stats is None or not stats.has_null_count for stats in found):
            continue
        _put(nulls, path, sum(stats.null_count for stats in found))
        for bounds, value in zip((low, high), _bounds(found), strict=True):
            shown = _shown(value)
            if shown is not None:
                _put(bounds, path, shown)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _bounds(found: list[Any]) -> tuple[Any, Any]:
    """The least and the greatest value of a column; None where they are not known."""
    bounded = [stats for stats in found if stats.has_min_max]
    if not bounded or any(not stats.has_min_max and stats.null_count != stats.num_values for stats in found):
        return None, None
    try:
        return min(stats.min for stats in bounded), max(stats.max for stats in bounded)
    except (OverflowError, ValueError):  # a time that is no date in Python: a producer may write any number
        return None, None


def _type_at(columns: pa.Schema, path: list[str]) -> Any:
    """The type of a column, or of a field in a struct; None inside lists and maps, which have no bounds."""
    type_ = columns.field(path[0]).type
    for name in path[1:]:
        if not pa.types.is_struct(type_):
            return None
        type_ = type_.field(name).type
    return None if pa.types.is_nested(type_) else type_


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _shown(value: Any) -> Any:
    match value:
        case bool() | bytes():
            return None
        case int():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124  NaN
        case Decimal():
            return float(value) if Decimal(float(value)) == value else None
        case str():
            return value if len(value) <= _LONGEST_TEXT else None
        case dt.datetime():
            # Cut to milliseconds, as Delta defines it; a reader allows for that.
            return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
        case dt.date():
            return value.isoformat()
    return None
