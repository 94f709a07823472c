"""Delta, upsert: a batch is one MERGE, which is one Delta commit that carries an application transaction.

1. Of the rows of the batch the newest one per key is kept (`latest.py`).
2. The table is created, or given the columns it lacks, by an append of no rows. A crash right after it leaves a table
   that readers see as before, and the replay finds it done.
3. One MERGE updates, inserts and deletes, and records `txn(appId, version = batch id)` in the same atomic step. Where
   no row is left a commit of nothing does: to learn from the table that nothing changes takes seconds.
4. A replay finds that transaction and merges nothing; Delta itself also skips a second merge with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecInvalid
from penstock.record import Batch
from penstock.sinks.columns import misfit, require_columns, require_upsertable, stored
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.delta.maintenance import Maintenance
from penstock.sinks.delta.table import OfDelta
from penstock.sinks.latest import Latest, latest, lost_rows, merge
from penstock.sinks.partition_values import told_from_null
from penstock.spark.write_errors import configured, engine_errors
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CONF = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
_MANY = 200  # partitions: more of them would make a long condition and leave out little
_UNCHANGED = (bool, int, str, date)
# The rows are kept already (`latest.py`): Delta need not write them down a second time.
_KEPT = {"spark.databricks.delta.merge.materializeSource": "none"}


@dataclass(frozen=True)
class DeltaUpsertSink(OfDelta):
    key: tuple[str, ...]
    order_by: str | None = None
    partition_by: tuple[str, ...] = ()
    evolve: bool = False  # columns that the rows have gained are added to the table
    maintenance: Maintenance | None = None
    guarantee: str = "exactly-once: one Delta merge per batch, identified by application id and version"

    def suits(self, incoming: Incoming) -> None:
        require_upsertable(self.name, incoming, self.key, self.order_by)
        require_columns(self.name, incoming, partition_by=self.partition_by)
        self._require_plain_partitions()
        self.require_possible(incoming)
        self.require_partitions(self.partition_by)
        self._require_fit(incoming)

    def _require_plain_partitions(self) -> None:
        dotted = next((name for name in self.partition_by if "." in name), None)
        if dotted is not None:
            raise SpecInvalid(
                f"sink '{self.name}' cannot upsert into a table partitioned by '{dotted}'",
                cause="Delta's merge takes the dot in the name of a partition column for a field of a struct",
                next_command=f"give the column another name in a step, and in `partition_by` of sink '{self.name}'",
            )

    def _require_fit(self, incoming: Incoming) -> None:
        """Before any sink of the pipeline writes, also where a schema has changed between two batches."""
        from pyspark.sql.types import StructType

        have, rows = self.columns(), StructType([incoming.columns[name] for name in stored(incoming.columns)])
        if have is not None and (why := misfit(rows, have, evolve=self.evolve, widen=self.evolve)):
            raise self.misfit(f"sink '{self.name}' does not take the rows of view '{incoming.view}'", why)

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        held = self.held(batch) if replay else None
        rows, refused = told_from_null(self.name, rows, self.partition_by, self.key)
        try:
            with latest(self.name, rows, self.key, self.order_by, self._narrowing) as found:
                if held is None:
                    if self.maintenance:
                        self.maintenance.give_way()
                    if found.kept or not self.log.commit_none(batch):
                        self._merge(batch, found)
                    held = self.log.rows_of(batch)
        except engine_errors() as error:
            raise self._failure(error, batch) from error
        if self.maintenance:
            self.maintenance.after_batch()
        done = found.written(held)
        return replace(done, rejected=(*done.rejected, *refused()))

    def _merge(self, batch: Batch, found: Latest) -> None:
        spark = found.rows.sparkSession
        columns = self._columns(spark, batch, found.stored)
        identity = {_CONF[name]: value for name, value in self.log.identity(batch).items()}
        with configured(spark, {**_KEPT, **identity}):
            merge(found, self._place, self.key, self.order_by, columns.names, _among(found))

    @property
    def _narrowing(self) -> list[str]:
        """Partition columns that are part of the key: only files of the partitions in the batch can hold its keys."""
        return [name for name in self.partition_by if name in self.key]

    @property
    def _place(self) -> str:
        return f"delta.{quoted(str(self.path.absolute()))}"

    def _columns(self, spark: SparkSession, batch: Batch, rows: StructType) -> StructType:
        """The columns of the table, which now exists and has those of the rows."""
        there = self.log.table() is not None
        columns = spark.table(self._place).schema if there else rows
        if why := misfit(rows, columns, evolve=self.evolve, widen=self.evolve):
            raise self.misfit(f"sink '{self.name}' refused batch {batch.id}", why)
        gained = there and misfit(rows, columns, evolve=False)
        if not there or gained:
            none = spark.createDataFrame([], rows).write.format("delta").mode("append")
            if self.partition_by:
                none = none.partitionBy(*self.partition_by)
            self.save(none.option("mergeSchema", bool(gained)), spark, evolve=self.evolve)
            columns = spark.table(self._place).schema
            if why := misfit(rows, columns, evolve=False):
                raise self.misfit(f"sink '{self.name}' refused batch {batch.id}", why)
        return columns

    def _failure(self, error: Exception, batch: Batch) -> Exception:
        return lost_rows(self.name, batch, error) or self.log.failure(error, batch)

    def positions(self, column: str) -> None:
        """None: the table holds the newest record of each key, not every record."""


def _among(found: Latest) -> dict[str, list[Any]]:
    """Values that let Delta leave out whole partitions. Only of types that come back from Python as they were: a
    timestamp goes through the time zone of the driver's machine, and a row that is not found is inserted again."""
    return {
        name: values
        for name, values in found.among.items()
        if 0 < len(values) <= _MANY and all(type(value) in _UNCHANGED for value in values)
    }
