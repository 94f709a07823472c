"""Of the rows of a batch the newest one per key: what an upsert writes. Shared by every sink that merges.

Which of two rows with one key is newer:

1. `order_by`, where the sink has one: the greater value.
2. Equal, or no `order_by`: of two records of one partition the later one. (Records of one key are in one partition by
   Kafka's custom. Where they are not, the later timestamp; where that is the same too, the last by topic and
   partition: of two sinks none may choose another one.)
3. A row without a value in `order_by` (a tombstone has none) counts by its place: it is newer than all that stand
   before it in its partition, and than what the table holds.

Rows whose key is null have no place in the table; they are given back, to become dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.errors import ExecutorLost, SinkFailed, counted
from penstock.record import DELETED, KAFKA, MISSING_FIELD, PLACE, Batch, Failure
from penstock.sinks.columns import says_origin, stored
from penstock.sinks.contract import Rejected, Written
from penstock.spark.write_errors import condition_of, engine_errors, said_by
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, WindowSpec
    from pyspark.sql.types import StructType

# Columns of the rows below that are not stored.
DELETE = "__penstock_delete"  # the row deletes its key
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"  # the engine's name for it
PLACED = "__penstock_placed"  # its place decides: it is newer than what the table holds, whatever `order_by` says


@dataclass(frozen=True)
class Latest:
    """The rows to merge, computed and kept: they can be read more than once and are the same each time."""

    rows: DataFrame
    handed: int
    kept: int
    rejected: Sequence[Rejected]
    among: Mapping[str, list[Any]]  # the values of the columns that were asked for

    @property
    def stored(self) -> StructType:
        """The columns that belong in the table."""
        return self.rows.drop(DELETE, PLACED).schema

    def written(self, held: int) -> Written:
        """`held`: of how many of `rows` the table's own records say that they were merged."""
        return Written(held, superseded=self.handed - len(self.rejected) - self.kept, rejected=self.rejected)


@contextmanager
def latest(
    sink: str, rows: DataFrame, key: Sequence[str], order_by: str | None, among: Sequence[str] = ()
) -> Iterator[Latest]:
    """Reads `rows` exactly once. `among`: columns with few values, of which to say which ones there are.

    Raises SinkFailed when a key is null and the row does not say where it came from.

    The result is a local checkpoint and not a cache: what is lost with an executor is not computed again, perhaps with
    another outcome, in the middle of a merge; the batch fails and runs again.
    """
    from pyspark import StorageLevel
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    origin = says_origin(rows.schema)
    no_key = reduce(lambda a, b: a | b, [F.col(quoted(name)).isNull() for name in key])
    before, after = Observation(), Observation()
    at = F.struct(*(F.col(KAFKA)[name].alias(name) for name in PLACE)) if origin else F.lit(0)
    seen = rows.observe(
        before,
        F.count(F.lit(1)).alias("handed"),
        F.count_if(no_key).alias("no_key"),
        F.collect_list(F.when(no_key, at)).alias("at"),
    )
    columns = [F.col(quoted(name)) for name in stored(rows.schema)]
    delete = F.coalesce(F.col(DELETED), F.lit(False)) if DELETED in rows.columns else F.lit(False)
    keyed = seen.where(~no_key).select(*columns, delete.alias(DELETE))
    values = [F.collect_set(F.col(quoted(name))).alias(name) for name in among]
    newest = _newest(keyed, key, order_by, origin).observe(after, F.count(F.lit(1)).alias("__penstock_kept"), *values)
    kept = newest.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    try:
        found = _seen(sink, before, key)
        if found["no_key"] and not origin:
            raise SinkFailed(
                f"sink '{sink}' got {counted(found['no_key'], 'row')} whose key is null",
                cause=f"one of {', '.join(key)} is null, and the rows do not say which records they were made of "
                f"(no '{KAFKA}'), so that these could become dead letters",
                next_command=f"leave such rows out by `where` of sink '{sink}': "
                + " and ".join(f"{quoted(name)} is not null" for name in key),
            )
        why = Failure(MISSING_FIELD, f"sink '{sink}' upserts by {', '.join(key)}, which is null")
        rejected = tuple(Rejected(r["topic"], r["partition"], r["offset"], why) for r in found["at"]) if origin else ()
        left = after.get
        yield Latest(kept, found["handed"], left["__penstock_kept"], rejected, {name: left[name] for name in among})
    finally:
        # A checkpoint has no `unpersist` of its own; its plan is the kept rows and nothing else.
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)


def lost_rows(sink: str, batch: Batch, error: Exception) -> ExecutorLost | None:
    """The error of a merge, where it is that an executor is gone with rows of `latest`."""
    said = said_by(error)
    if _LOST not in (condition_of(error), *said.strip("[").split("]", 1)):
        return None
    return ExecutorLost(
        f"sink '{sink}': an executor was lost while batch {batch.id} was merged",
        cause=said,
        next_command="nothing: the batch is run again",
    )


def _seen(sink: str, rows: Observation, key: Sequence[str]) -> dict[str, Any]:
    try:
        return rows.get
    except engine_errors():  # Spark has found that no row can be left, and has not read them
        raise SinkFailed(
            f"sink '{sink}' upserts by {', '.join(key)}, which is null in every row",
            next_command="look at how the view makes it",
        ) from None


def _newest(rows: DataFrame, key: Sequence[str], order_by: str | None, origin: bool) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_key = [F.col(quoted(name)) for name in key]
    order = [F.col(quoted(order_by)).desc_nulls_last()] if order_by else []
    if not origin and not order:
        return rows.withColumn(PLACED, F.lit(False))  # a key is there once: see `Incoming.unique`
    if not origin:
        return _first(rows.withColumn(PLACED, F.lit(False)), Window.partitionBy(*by_key).orderBy(*order))
    offset, topic, partition, timestamp = (F.col(KAFKA)[name] for name in ("offset", "topic", "partition", "timestamp"))
    # One shuffle serves both steps: rows of one key lie together, so those of one key and partition do too.
    together = rows.repartition(*by_key)
    in_partition = [*by_key, topic, partition]
    if order_by:
        # The last row without an order cuts off all before it, and is itself the oldest of what is left.
        last = F.max(F.when(F.col(quoted(order_by)).isNull(), offset)).over(Window.partitionBy(*in_partition))
        cut = together.withColumn(PLACED, last)
        together = cut.where(F.col(PLACED).isNull() | (offset >= F.col(PLACED))).withColumn(
            PLACED, F.col(PLACED).isNotNull()
        )
    else:
        together = together.withColumn(PLACED, F.lit(False))
    by_partition = _first(together, Window.partitionBy(*in_partition).orderBy(*order, offset.desc()))
    across = Window.partitionBy(*by_key).orderBy(*order, timestamp.desc(), topic.desc(), partition.desc())
    return _first(by_partition, across)


def _first(rows: DataFrame, window: WindowSpec) -> DataFrame:
    from pyspark.sql import functions as F

    rank = "__penstock_rank"
    return rows.withColumn(rank, F.row_number().over(window)).where(F.col(rank) == 1).drop(rank)


def merge(
    found: Latest,
    into: str,
    key: Sequence[str],
    order_by: str | None,
    table: Sequence[str],
    among: Mapping[str, Sequence[Any]] | None = None,
) -> None:
    """Merges the rows into a table. Nothing of a row is text of SQL on the way: values stay values, names are quoted.

    `table`: the columns that it has. A row replaces the whole row of its key, so a column that the rows lack becomes
    null, as it does with an append. `among`: all the values that the rows have in some columns of the key, which spares
    the table's other partitions.
    """
    from pyspark.sql import functions as F

    # By numbers: what has a name of its own is the table's.
    ours = {name: f"__penstock_row_{i}" for i, name in enumerate(found.stored.names)}
    renamed = [F.col(quoted(name)).alias(at) for name, at in ours.items()]
    rows = found.rows.select(*renamed, DELETE, PLACED)
    given = {name.lower(): F.col(at) for name, at in ours.items()}
    values = {quoted(name): given.get(name.lower(), F.lit(None)) for name in table}
    on = [F.col(quoted(name)) == given[name.lower()] for name in key]
    on += [F.col(quoted(name)).isin(list(some)) for name, some in (among or {}).items()]
    newer = F.lit(True)
    if order_by is not None:
        theirs = F.col(quoted(order_by))
        newer = F.col(PLACED) | theirs.isNull() | (given[order_by.lower()] >= theirs)
    (
        rows.mergeInto(into, reduce(lambda a, b: a & b, on))
        .whenMatched(newer & F.col(DELETE))
        .delete()
        .whenMatched(newer)
        .update(values)
        .whenNotMatched(~F.col(DELETE))
        .insert(values)
        .merge()
    )
