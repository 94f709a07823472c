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

from penstock.record import KAFKA, OUT_OF_RANGE, PLACE, Failure
from penstock.sink.columns import says_origin
from penstock.sink.contract import Rejected
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NULL = "__HIVE_DEFAULT_PARTITION__"  # what a directory is called whose value is null


def told_from_null(
    sink: str, rows: DataFrame, partition_by: Sequence[str]
) -> tuple[DataFrame, Callable[[], tuple[Rejected, ...]]]:
    """The rows that can be written, and those that cannot, which can be asked for when the former have been read."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType

    columns = [name for name in partition_by if isinstance(rows.schema[name].dataType, (StringType, BinaryType))]
    if not columns:
        return rows, tuple
    wrong = [F.coalesce(F.col(quoted(name)).cast("string").isin("", _NULL), F.lit(False)) for name in columns]
    bad = reduce(lambda a, b: a | b, wrong)
    why = f"sink '{sink}' is partitioned by %s, where an empty text and '{_NULL}' would become null"
    if not says_origin(rows.schema):
        said = f"{why % ', '.join(columns)}, and the row does not say which record it was made of: keep {KAFKA}"
        return rows.where(F.when(bad, F.raise_error(F.lit(said)).cast("boolean")).otherwise(True)), tuple
    first = F.lit(columns[0])
    for name, condition in zip(reversed(columns), reversed(wrong), strict=True):
        first = F.when(condition, F.lit(name)).otherwise(first)
    at = F.struct(*(F.col(KAFKA)[name].alias(name) for name in PLACE), first.alias("column"))
    found = Observation()
    seen = rows.observe(found, F.collect_list(F.when(bad, at)).alias("at"))

    def refused() -> tuple[Rejected, ...]:
        return tuple(
            Rejected(row["topic"], row["partition"], row["offset"], Failure(OUT_OF_RANGE, why % row["column"]))
            for row in found.get["at"]
        )

    return seen.where(~bad), refused
