"""Iceberg, append or upsert: a batch is one snapshot, staged and then published under an id that names it.

1. Spark writes the files and stages a snapshot with them (`wap.id` = pipeline, query, batch). No reader sees it.
2. It is published: Iceberg makes it the current one, or refuses because that id was published before. The check and the
   change are one commit, so of two attempts at once one loses.
3. A replay finds the id in the history of the table and writes nothing.

A crash between 1 and 2 leaves a staged snapshot that nobody sees; expiring snapshots removes it. Whoever expires
snapshots must leave those made since the pipeline last ran: they are how a replay knows its batch.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkBusy, SinkFailed, SpecInvalid
from penstock.record import Batch, Known
from penstock.sinks import held
from penstock.sinks.columns import (
    INTERVALS,
    gained,
    misfit,
    require_columns,
    require_types,
    require_upsertable,
    sql_type,
    widened,
)
from penstock.sinks.contract import Incoming, Written, read_through
from penstock.sinks.files.parquet import positions_in
from penstock.sinks.iceberg import metadata
from penstock.sinks.iceberg.catalog import Catalog, open_in
from penstock.sinks.iceberg.files import data_files
from penstock.sinks.iceberg.metadata import ATTEMPT, BATCH, ROWS, State, identity
from penstock.sinks.latest import Latest, latest, lost_rows, merge
from penstock.spark.write_errors import configured, engine_errors, refuses, said_by
from penstock.spec.sinks import TRANSFORM, partition_column
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LACKING = INTERVALS | {"NullType", "TimeType", "VariantType"}  # types that a table cannot have
_WAP = "write.wap.enabled"  # a property of the table; without it a staged write would be an ordinary one
_OF_A_DATABASE = "org.apache.iceberg.jdbc.Unchecked"  # what a catalog in a database says of it
_PROPERTY = "spark.sql.iceberg.snapshot-property."
# What is said to the slower of two: its batch was published meanwhile, the table changed under a merge, the table was
# created by the other.
_LOST_RACE = (
    "DuplicateWAPCommitException",
    "Cannot cherry-pick",
    "CommitFailedException",
    "Found conflicting",
    "AlreadyExistsException",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
)


@dataclass(frozen=True)
class IcebergSink:
    name: str
    table: str  # namespace.name
    catalog: Catalog
    partition_by: tuple[str, ...] = ()  # columns, or days(column), bucket(16, column) and alike
    key: tuple[str, ...] = ()  # upsert by these columns; none: append
    order_by: str | None = None
    evolve: bool = False  # columns that the rows have gained are added to the table
    guarantee: str = "exactly-once: one Iceberg snapshot per batch, published under an id that Iceberg takes once"

    @property
    def _parts(self) -> tuple[str, ...]:
        return tuple(self.table.split("."))

    @property
    def _place(self) -> str:
        return ".".join(quoted(part) for part in (self.catalog.name, *self._parts))

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        held.require_writable(self.name, self.catalog.warehouse)
        now = self._state()
        ours = [h for h in now.held() if h.pipeline == batch.pipeline] if now else []
        newest = max((h.batch for h in ours if h.query == batch.query), default=None)
        held.require_complete(self.name, self.table, known, newest, accepted)
        if newest is None:
            held.require_own(self.name, self.table, batch, {h.query for h in ours}, accepted)

    def suits(self, incoming: Incoming) -> None:
        if len(self._parts) < 2 or not all(self._parts):
            raise SpecInvalid(f"'{self.table}' is no Iceberg table", next_command="write it as namespace.name")
        require_columns(self.name, incoming, partition_by=[partition_column(text) for text in self.partition_by])
        require_types(self.name, incoming, _LACKING)
        self._require_plain_partitions(incoming)
        if self.key:
            require_upsertable(self.name, incoming, self.key, self.order_by)

    def _require_plain_partitions(self, incoming: Incoming) -> None:
        """The engine reads the name of a partition column as SQL without quotes, when it creates the table."""
        for name in map(partition_column, self.partition_by):
            if not _plain(name):
                raise SpecInvalid(
                    f"sink '{self.name}' cannot be partitioned by '{name}'",
                    cause="a column that Iceberg tables are partitioned by needs a name that SQL takes without quotes",
                    next_command=f"give it another name in a step, such as: select *, `{name}` as part "
                    f"from {incoming.view}",
                )

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        open_in(rows.sparkSession, self.catalog)
        now = self._state() if replay else None
        done = now.rows_of(batch) if now else None
        try:
            if self.key:
                with latest(self.name, rows, self.key, self.order_by) as found:
                    return found.written(self._upsert(batch, found) if done is None else done)
            if done is not None:
                read_through(rows)
                return Written(done)
            return Written(self._append(batch, rows))
        except engine_errors() as error:
            raise self._failure(error, batch) from error

    def _append(self, batch: Batch, rows: DataFrame) -> int:
        from pyspark.sql import functions as F

        columns = self._columns(rows.sparkSession, batch, rows.schema)
        given = {name.lower() for name in rows.columns}
        lacking = [f for f in columns if f.name.lower() not in given]
        whole = rows.withColumns({f.name: F.lit(None).cast(f.dataType) for f in lacking}) if lacking else rows
        attempt = uuid.uuid4().hex
        with self._staging(rows.sparkSession, batch, {ATTEMPT: attempt}):
            whole.writeTo(self._place).option("distribution-mode", self._distribution()).append()
        return self._publish(rows.sparkSession, batch, attempt)

    def _distribution(self) -> str:
        """Never `range`, the default of a table with an order: for that the engine reads the rows twice, and rows are
        counted while they are read."""
        now = self._state()
        return "none" if now and now.properties.get("write.distribution-mode") == "none" else "hash"

    def _upsert(self, batch: Batch, found: Latest) -> int:
        spark = found.rows.sparkSession
        columns = self._columns(spark, batch, found.stored)
        attempt = uuid.uuid4().hex
        with self._staging(spark, batch, {ATTEMPT: attempt, ROWS: str(found.kept)}):
            merge(found, self._place, self.key, self.order_by, columns.names)
        return self._publish(spark, batch, attempt)

    def _staging(self, spark: SparkSession, batch: Batch, summary: dict[str, str]) -> AbstractContextManager[None]:
        said = {f"{_PROPERTY}{name}": value for name, value in {BATCH: identity(batch), **summary}.items()}
        return configured(spark, {"spark.wap.id": identity(batch), **said})

    def _publish(self, spark: SparkSession, batch: Batch, attempt: str) -> int:
        """Step 2. Returns the rows that the table now says it has of the batch."""
        now = self._state()
        staged = now.staged(attempt) if now else None
        if now is None or staged is None:
            raise SinkFailed(f"Iceberg staged nothing of batch {batch.id} for sink '{self.name}'")
        # Iceberg itself compares the ids of appends only. A merge is published only on top of the snapshot it was made
        # from, so what lies below that decides.
        if now.builds_on(staged, batch):
            raise self._beaten(f"batch {batch.id} was published while this one was written")
        table = ".".join(quoted(part) for part in self._parts).replace("'", "''")
        spark.sql(f"call {quoted(self.catalog.name)}.system.cherrypick_snapshot('{table}', {staged})")
        after = self._state()
        rows = after.rows_of(batch) if after else None
        if rows is None:
            raise SinkFailed(f"batch {batch.id} is not in the history of table {self.table} after it was published")
        return rows

    def _columns(self, spark: SparkSession, batch: Batch, rows: StructType) -> StructType:
        """The columns of the table, which now exists, has those of the rows, and lets writes be staged."""
        now = self._state()
        if now is None:
            self._create(spark, rows)
            now = self._state()
        columns = spark.table(self._place).schema
        why = misfit(widened(rows), columns, evolve=self.evolve)
        if why:
            raise SinkFailed(
                f"sink '{self.name}' refused batch {batch.id}",
                cause=why,
                next_command=f"compare the columns of view and table {self.table}; `evolve: add-columns` adds new ones",
            )
        if now is not None and now.properties.get(_WAP) != "true":
            spark.sql(f"alter table {self._place} set tblproperties ('{_WAP}' = 'true')")
        for name, kind in gained(widened(rows), columns):
            column = ".".join(map(quoted, name))
            spark.sql(f"alter table {self._place} add column {column} {sql_type(kind)}")
        return spark.table(self._place).schema

    def _create(self, spark: SparkSession, rows: StructType) -> None:
        namespace = ".".join(quoted(part) for part in (self.catalog.name, *self._parts[:-1]))
        spark.sql(f"create namespace if not exists {namespace}")
        new = spark.createDataFrame([], rows).writeTo(self._place).using("iceberg").tableProperty(_WAP, "true")
        if self.partition_by:
            first, *others = map(_transform, self.partition_by)
            new = new.partitionedBy(first, *others)
        new.create()

    def _state(self) -> State | None:
        return metadata.state(self.catalog, self._parts)

    def _beaten(self, cause: str) -> SinkBusy:
        return SinkBusy(
            f"sink '{self.name}': somebody else wrote to {self.table} at the same moment",
            cause=cause,
            next_command="nothing: the batch is run again",
        )

    def _failure(self, error: Exception, batch: Batch) -> Exception:
        said = said_by(error)
        if lost := lost_rows(self.name, batch, error):
            return lost
        if any(sign in said for sign in _LOST_RACE):
            return self._beaten(said)
        if _OF_A_DATABASE in said:
            return SinkBusy(
                f"sink '{self.name}': the database of its catalog did not answer",
                cause=said.split(":", maxsplit=1)[0],  # behind it may be what the catalog was given
                next_command="nothing, if it comes back: the batch is run again",
            )
        if not refuses(error) and not said.startswith("org.apache.iceberg"):
            return error  # the engine failed, not the table: let the caller look at the cause
        return SinkFailed(
            f"sink '{self.name}' refused batch {batch.id}",
            cause=said,
            next_command=f"compare the columns of view and table {self.table}",
        )

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        if self.key:
            return None  # the table holds the newest record of each key, not every record
        now = self._state()
        manifests = now.manifests() if now else None
        files = data_files(manifests) if manifests else []
        return None if files is None else positions_in(files, column)

    def rows_by_batch(self, query: str) -> dict[int, int]:
        now = self._state()
        return {h.batch: h.rows for h in now.held() if h.query == query} if now else {}

    def holds(self, batch: Batch) -> bool:
        return (now := self._state()) is not None and now.rows_of(batch) is not None


def _plain(name: str) -> bool:
    from pyspark.sql import SparkSession

    spark: Any = SparkSession.getActiveSession()
    try:
        read = spark._jsparkSession.sessionState().sqlParser().parseMultipartIdentifier(name)
    except engine_errors():
        return False
    return bool(read.size() == 1)


def _transform(text: str) -> Column:
    from pyspark.sql import functions as F

    found = TRANSFORM.fullmatch(text)
    if not found:
        return F.col(quoted(text))
    column = F.col(quoted(partition_column(text)))
    if found[3]:
        return F.partitioning.bucket(int(found[3]), column)
    by_time: Column = getattr(F.partitioning, found[1])(column)
    return by_time
