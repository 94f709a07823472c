"""Files that workers write, read by Spark with conditions: no row is missed."""

from __future__ import annotations

from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.samples import bounds


def test_spark_finds_the_rows_at_both_ends_of_every_column(tmp_path: Path, spark: SparkSession) -> None:
    """By the statistics of the log and by those of the files: both let it leave out what it need not read."""
    rows = bounds.made(tmp_path)
    table = spark.read.format("delta").load(str(tmp_path))
    kinds = {field.name: field.dataType for field in table.schema}
    asked = list(bounds.ends(rows))
    answers: dict[int, list[int]] = {which: [] for which in range(len(asked))}
    found = []
    for which, (name, operator, value, _) in enumerate(asked):
        column, literal = F.col(f"`{name}`"), F.lit(_told(value)).cast(kinds[name])
        condition = column >= literal if operator == ">=" else column <= literal
        found.append(table.where(condition).select(F.lit(which), "row"))
    for which, row in reduce(DataFrame.union, found).collect():
        answers[which].append(row)
    for which, (name, operator, value, expected) in enumerate(asked):
        assert sorted(answers[which]) == expected, (name, operator, value)


def _told(value: Any) -> Any:
    """A date of the first century is not one that the engine can be handed."""
    return value.isoformat() if isinstance(value, date) else value
