"""What the two Delta sinks have in common: everything that is asked of the table's log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SinkFailed, SpecInvalid
from penstock.record import Batch, Known
from penstock.sinks.columns import INTERVALS, require_names, require_types
from penstock.sinks.contract import Incoming
from penstock.sinks.delta.log import DeltaLog
from penstock.spark.write_errors import condition_of, engine_errors
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

LACKING = INTERVALS | {"TimeType"}  # types that a Delta table cannot have
NOT_IN_NAMES = " ,;{}()\n\t="  # unless the table gives its columns names of its own in the files
_MAPPED = "delta.columnMapping.mode"
_OTHER_TYPE = "DELTA_FAILED_TO_MERGE_FIELDS"


@dataclass(frozen=True)
class OfDelta:
    name: str
    path: Path

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(self.name, self.path)

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        self.log.prepare(batch, known, accepted)

    def columns(self) -> StructType | None:
        """Of the table, if there is one. Asked without the engine: it may lack Delta's jar when a pipeline is only
        planned."""
        from pyspark.sql.types import StructType

        table = self.log.table()
        return StructType.fromJson(json.loads(table.schema().to_json())) if table is not None else None

    def require_possible(self, incoming: Incoming) -> None:
        """Types and names that a Delta table can have."""
        require_types(self.name, incoming, LACKING)
        try:
            require_names(self.name, incoming, NOT_IN_NAMES)
        except SpecInvalid:
            table = self.log.table()
            if table is None or table.metadata().configuration.get(_MAPPED) not in ("name", "id"):
                raise

    def require_partitions(self, partition_by: tuple[str, ...]) -> None:
        """Those of the spec are for a table that is not there yet; one that is keeps its own."""
        table = self.log.table() if partition_by else None
        there = tuple(table.metadata().partition_columns) if table is not None else partition_by
        if partition_by != there:
            raise SinkFailed(
                f"sink '{self.name}' is to be partitioned by {', '.join(partition_by)}, and its table is not",
                cause=f"table {self.path} is partitioned by {', '.join(there) or 'nothing'}, which no append changes",
                next_command=f"correct `partition_by` of sink '{self.name}', or give it another table",
            )

    def save(self, writer: DataFrameWriter, spark: SparkSession, *, evolve: bool) -> None:
        try:
            writer.save(str(self.path))
        except engine_errors() as error:  # of another type: Delta says so before it has read a row
            if not (evolve and condition_of(error) == _OTHER_TYPE and self._widens(spark)):
                raise
            writer.save(str(self.path))

    def misfit(self, what: str, why: str) -> SinkFailed:
        return SinkFailed(
            what,
            cause=f"{why} (table {self.path})",
            next_command="`evolve: add-columns` adds new columns and makes types wider; otherwise cast the column in a "
            f"step, or give sink '{self.name}' another table",
        )

    def _widens(self, spark: SparkSession) -> bool:
        """Let the table take a wider type (int to bigint), from the first batch on that needs it and not before:
        delta-rs, for one, does not read such tables yet. Whether it could not do so before."""
        table = self.log.table()
        if table is None or "typeWidening" in (table.protocol().reader_features or []):
            return False
        spark.sql(f"ALTER TABLE delta.{quoted(str(self.path))} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
        return True

    def held(self, batch: Batch) -> int | None:
        """Rows the table has of this batch, or None when it was not written."""
        return self.log.held(batch)

    def rows_by_batch(self, query: str) -> dict[int, int]:
        return self.log.rows_by_batch(query)

    def holds(self, batch: Batch) -> bool:
        return self.held(batch) is not None

    def remembered_from(self, query: str) -> int:
        return self.log.remembered_from(query)

    def sizes(self) -> list[int]:
        return self.log.sizes()
