"""Delta, append: a batch is one Delta commit that carries an application transaction.

1. Spark writes Parquet files into the table's directory; no reader sees them.
2. The commit adds the files and records `txn(appId, version = batch id)` in one atomic step.
3. A replay finds that transaction and adds nothing; Delta itself also refuses a second commit with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.record import Batch
from penstock.sinks.columns import clash, require_columns
from penstock.sinks.contract import Incoming, Written, read_through
from penstock.sinks.delta.maintenance import Maintenance
from penstock.sinks.delta.table import OfDelta
from penstock.sinks.partition_values import told_from_null
from penstock.spark.write_errors import engine_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

    from penstock.sinks.files.writer import NewFile


@dataclass(frozen=True)
class DeltaSink(OfDelta):
    partition_by: tuple[str, ...] = ()
    evolve: bool = False  # columns that the rows have gained are added to the table
    maintenance: Maintenance | None = None
    guarantee: str = "exactly-once: one Delta commit per batch, identified by application id and version"

    def suits(self, incoming: Incoming) -> None:
        require_columns(self.name, incoming, partition_by=self.partition_by)
        self.require_possible(incoming)
        self.require_partitions(self.partition_by)
        have = self.columns() if self.evolve else None
        # Before any sink of the pipeline writes, and before the table is told to take wider types.
        if have is not None and (why := clash(incoming.columns, have)):
            raise self.misfit(f"sink '{self.name}' does not take the rows of view '{incoming.view}'", why)

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        held = self.held(batch) if replay else None
        rows, refused = told_from_null(self.name, rows, self.partition_by)
        if held is not None:
            read_through(rows)
            return Written(held, rejected=refused())
        writer = rows.write.format("delta").mode("append").options(**self.log.identity(batch))
        if self.evolve:
            writer = writer.option("mergeSchema", True)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        try:
            self.save(writer, rows.sparkSession, evolve=self.evolve)
        except engine_errors() as error:
            raise self.log.failure(error, batch) from error
        rows_held = self.log.rows_of(batch)
        if self.maintenance:
            self.maintenance.after_batch()
        return Written(rows_held, rejected=refused())

    def takes_files(self, incoming: Incoming) -> str:
        if self.partition_by:
            return "the table is partitioned"
        if self.evolve:
            return "the table may gain columns"
        return self.log.needs_engine(incoming.columns)

    def staging(self, _batch: Batch) -> Path:
        return self.path  # a file in the table's directory is not part of the table before a commit says so

    def publish(self, batch: Batch, _staging: Path, files: Sequence[NewFile], columns: pa.Schema) -> Written:
        rows = self.log.commit(batch, files, columns)
        if self.maintenance:
            self.maintenance.after_batch()
        return Written(rows)

    def table(self) -> DeltaTable | None:
        """The table as a reader that is not Spark sees it."""
        return self.log.table()

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        return self.log.positions(column)
