"""Values that the name of a directory cannot say.

Delta and Parquet tables keep the value of a partition column in the name of a directory, or as text, where an empty
text means null; so does one word. A row with such a value would come back with a null in its place, and nobody would be
told. It is refused instead: a dead letter, or, where the row does not say which record it was made of, the end of the
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from penstock.errors import SinkFailed
from penstock.record import DELETED, KAFKA, OUT_OF_RANGE, PLACE, Failure
from penstock.sinks.columns import says_origin
from penstock.sinks.contract import Rejected
from penstock.spark.write_errors import engine_errors
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NULL = "__HIVE_DEFAULT_PARTITION__"  # what a directory is called whose value is null


def told_from_null(
    sink: str, rows: DataFrame, partition_by: Sequence[str], key: Sequence[str] = ()
) -> tuple[DataFrame, Callable[[], tuple[Rejected, ...]]]:
    """The rows that can be written, and those that cannot, which can be asked for when the former have been read.
    `key`, of an upsert: a row that deletes stores nothing but that."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType

    columns = [name for name in partition_by if isinstance(rows.schema[name].dataType, (StringType, BinaryType))]
    if not columns:
        return rows, tuple
    wrong = [F.coalesce(F.col(quoted(name)).cast("string").isin("", _NULL), F.lit(False)) for name in columns]
    if key and DELETED in rows.columns:
        kept = ~F.coalesce(F.col(DELETED), F.lit(False))
        wrong = [each if name in key else each & kept for name, each in zip(columns, wrong, strict=True)]
    bad = reduce(lambda a, b: a | b, wrong)
    why = f"sink '{sink}' is partitioned by %s, where an empty text and '{_NULL}' would become null"
    if not says_origin(rows.schema):
        said = f"{why % ', '.join(columns)}, and the row does not say which record it was made of: keep {KAFKA}"
        return rows.where(F.when(bad, F.raise_error(F.lit(said)).cast("boolean")).otherwise(True)), tuple
    first = F.coalesce(*(F.when(condition, F.lit(name)) for name, condition in zip(columns, wrong, strict=True)))
    at = F.struct(*(F.col(KAFKA)[name].alias(name) for name in PLACE), first.alias("column"))
    found = Observation()
    seen = rows.observe(found, F.collect_list(F.when(bad, at)).alias("at"))

    def refused() -> tuple[Rejected, ...]:
        try:
            those = found.get["at"]
        except engine_errors():  # Spark has found that no row can be left, and has not read them
            raise SinkFailed(why % ", ".join(columns), next_command="look at how the view makes it") from None
        return tuple(
            Rejected(row["topic"], row["partition"], row["offset"], Failure(OUT_OF_RANGE, why % row["column"]))
            for row in those
        )

    return seen.where(~bad), refused
