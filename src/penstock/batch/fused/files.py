"""The short way into files (`sinks.files`): each worker writes one, the driver publishes all of a batch at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.batch.fused.letters import Origins
from penstock.batch.fused.worker import Out
from penstock.errors import SinkFailed, counted
from penstock.record import KAFKA, Batch
from penstock.sinks.contract import Written
from penstock.sinks.files.writer import Counting, FileWriter, Judged, NewFile, TakesFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class IntoFile:
    directory: Path
    columns: pa.Schema
    layout: str

    def __call__(self, parts: Iterator[Judged], origins: Origins) -> dict[str, Any] | None:
        writer = FileWriter(self.directory, self.columns, self.layout)
        for part in parts:
            if part.good.num_rows:
                writer.write(self._row(part.good, origins))
        file = writer.close()
        return asdict(file) if file else None

    def _row(self, batch: pa.RecordBatch, origins: Origins) -> pa.RecordBatch:
        """The columns of the view: the decoded fields, and where the record came from."""
        parts = []
        for field in self.columns:
            if field.name == KAFKA:
                inside = [origins.column(batch, member.name).cast(member.type) for member in field.type]
                parts.append(pa.StructArray.from_arrays(inside, fields=list(field.type)))
            else:
                column = batch.column(field.name)
                parts.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(parts, schema=self.columns)


@dataclass
class Files:
    """Append sinks that publish files: see `sinks.files.writer`."""

    does: ClassVar[str] = "write"
    posts: ClassVar[str] = ""
    publishes: ClassVar[bool] = True

    sink: TakesFiles
    columns: pa.Schema
    layout: str
    _staging: Path = Path()
    _held: int | None = None

    @property
    def name(self) -> str:
        return self.sink.name

    def begin(self, batch: Batch, _rows: DataFrame, *, replay: bool) -> Out:
        self._held = self.sink.held(batch) if replay else None
        self._staging = self.sink.staging(batch)
        return Counting() if self._held is not None else IntoFile(self._staging, self.columns, self.layout)

    def end(self, batch: Batch, outcomes: list[dict[str, Any]], handed: int) -> Written:
        if self._held is not None:
            return Written(self._held)
        files = [NewFile(**outcome) for outcome in outcomes]
        rows = sum(file.rows for file in files)
        if rows != handed:
            raise SinkFailed(f"the files of batch {batch.id} have {counted(rows, 'row')}, not {handed}")
        return self.sink.publish(batch, self._staging, files, self.columns)

    def discard(self, outcomes: list[dict[str, Any]]) -> None:
        for outcome in outcomes:
            (self._staging / NewFile(**outcome).name).unlink(missing_ok=True)
