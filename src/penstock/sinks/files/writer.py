"""What Python workers write themselves: what they are handed, and files for sinks that can publish them.

A worker writes one Parquet file per task; nobody sees it until the driver publishes all files of the batch at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.record import Batch
from penstock.sinks.contract import Incoming, Sink, Written
from penstock.sinks.files import statistics
from penstock.sinks.files.parquet import SPARK_COLUMNS

_ROWS_PER_GROUP = 256 * 1024


@dataclass(frozen=True)
class Judged:
    """A decoded batch in the worker that writes it: what passed, and what died of which verdict."""

    good: pa.RecordBatch
    dead: pa.RecordBatch | None = None
    verdicts: pa.Array | None = None


@dataclass(frozen=True)
class Counting:
    """A sink's part of the worker where nothing is done with the records: a replay of what is written, or a count."""

    def __call__(self, parts: Iterator[Judged], _origins: Any, /) -> None:
        for _ in parts:
            pass


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
    _floats: dict[statistics.Path, statistics.Floats] = field(default_factory=dict)

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
        stats = statistics.statistics(metadata, self.columns, self._floats)
        return NewFile(self._name, self._rows, size, stats)

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            described = self.columns.with_metadata({SPARK_COLUMNS: self.layout.encode()})
            self._writer = pq.ParquetWriter(
                self.directory / self._name,
                described,
                compression="snappy",
                store_schema=False,
                write_statistics=statistics.in_footer(self.columns),
                metadata_collector=self._groups,
            )
        table = pa.Table.from_batches(self._waiting, self.columns)
        self._writer.write_table(table, row_group_size=len(table))
        for path, found in statistics.floats_in(table).items():
            self._floats[path] = self._floats.get(path, statistics.Floats()) + found
        self._waiting = []
