"""What sinks refuse by their type is what the engine cannot write, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.sinks.delta import table
from penstock.sinks.iceberg import sink as iceberg
from penstock.sinks.iceberg.catalog import HadoopCatalog, open_in
from penstock.sinks.parquet import sink as parquet
from penstock.spark.write_errors import engine_errors

VALUES = {
    "NullType": "null",
    "VariantType": "parse_json('{}')",
    "TimeType": "time'10:00:00'",
    "YearMonthIntervalType": "interval 1 year",
    "DayTimeIntervalType": "interval 1 day",
    "CalendarIntervalType": "make_interval(1, 1, 1)",
}
ODD = ' ,;{}()\n\t=.`"[]é%'
LACKING = {"delta": table.LACKING, "parquet": parquet._LACKING, "iceberg": iceberg._LACKING}


@pytest.mark.parametrize("kind", LACKING)
def test_engine_writes_every_type_that_is_not_refused(spark: Any, kind: str, tmp_path: Path) -> None:
    catalog = HadoopCatalog(tmp_path / "warehouse", f"types_{abs(hash(tmp_path))}")
    open_in(spark, catalog)
    refused = set()
    for name, value in VALUES.items():
        rows = spark.sql(f"select 1 as id, {value} as x")
        assert type(rows.schema["x"].dataType).__name__ == name
        try:
            if kind == "iceberg":
                rows.writeTo(f"{catalog.name}.n.{name}").using("iceberg").create()
            else:
                rows.write.format(kind).save(str(tmp_path / name))
        except engine_errors():
            refused.add(name)
    assert refused == LACKING[kind]


@pytest.mark.parametrize("kind", LACKING)
def test_engine_takes_every_character_in_a_name_that_is_not_refused(spark: Any, kind: str, tmp_path: Path) -> None:
    catalog = HadoopCatalog(tmp_path / "warehouse", f"names_{abs(hash(tmp_path))}")
    open_in(spark, catalog)
    refused = set()
    for number, character in enumerate(ODD):
        rows = spark.createDataFrame([(1, 2)], ["id", f"a{character}b"])
        try:
            if kind == "iceberg":
                rows.writeTo(f"{catalog.name}.n.t{number}").using("iceberg").create()
            else:
                rows.write.format(kind).save(str(tmp_path / f"t{number}"))
        except engine_errors():
            refused.add(character)
    assert refused == (set(table.NOT_IN_NAMES) if kind == "delta" else set())
