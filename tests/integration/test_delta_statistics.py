"""Files that workers write, read by Spark with conditions: no row is missed, and files are left out."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.samples import bounds


def test_spark_finds_by_every_condition_the_rows_that_it_speaks_of(tmp_path: Path, spark: SparkSession) -> None:
    rows = bounds.made(tmp_path)
    table = spark.read.format("delta").load(str(tmp_path))
    kinds = {field.name: field.dataType for field in table.schema}
    wanted = []
    for name, value, expected in bounds.conditions(rows):
        found = table.where(F.col(f"`{name}`") >= F.lit(value).cast(kinds[name]))
        asked = found.select(F.lit(len(wanted)).alias("which"), "row")
        wanted.append((asked, sorted(rows[i]["row"] for i in expected), name, value))
    together = wanted[0][0]
    for asked, *_ in wanted[1:]:
        together = together.union(asked)
    answers: dict[int, list[int]] = {}
    for which, row in together.collect():
        answers.setdefault(which, []).append(row)
    for which, (_, expected, name, value) in enumerate(wanted):
        assert sorted(answers[which]) == expected, (name, value)
