"""Types that a table cannot have are told at the start, with the column. No engine is asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from penstock.errors import SpecInvalid
from penstock.sinks.contract import Incoming
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.upsert import DeltaUpsertSink
from penstock.sinks.iceberg.catalog import HadoopCatalog
from penstock.sinks.iceberg.sink import IcebergSink
from penstock.sinks.parquet.sink import ParquetSink

ALL = [CalendarIntervalType(), DayTimeIntervalType(), YearMonthIntervalType(), NullType(), TimeType(), VariantType()]
REFUSED = {
    "delta": [CalendarIntervalType(), DayTimeIntervalType(), YearMonthIntervalType(), TimeType()],
    "upsert": [CalendarIntervalType(), DayTimeIntervalType(), YearMonthIntervalType(), TimeType()],
    "parquet": [CalendarIntervalType(), TimeType()],
    "iceberg": ALL,
}


def refusal(kind: str, type_: DataType, path: Path) -> SpecInvalid | None:
    sinks = {
        "delta": DeltaSink("out", path),
        "upsert": DeltaUpsertSink("out", path, ("id",), "id", ()),
        "parquet": ParquetSink("out", path),
        "iceberg": IcebergSink("out", "n.t", HadoopCatalog(path)),
    }
    try:
        sinks[kind].suits(Incoming("v", StructType([StructField("id", StringType()), StructField("odd", type_)])))
    except SpecInvalid as error:
        return error
    return None


@pytest.mark.parametrize("type_", ALL, ids=lambda each: each.typeName())
@pytest.mark.parametrize("kind", REFUSED)
def test_type_that_a_table_cannot_have_is_refused_with_its_column_and_any_other_is_not(
    kind: str, type_: DataType, tmp_path: Path
) -> None:
    error = refusal(kind, type_, tmp_path)
    assert (error is not None) == (type_ in REFUSED[kind])
    if error:
        assert error.what == "sink 'out' has no type for 'odd' of view 'v'"
        assert error.cause == f"it is of type {type_.simpleString()}"


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        (ArrayType(TimeType()), "odd"),
        (MapType(StringType(), TimeType()), "odd"),
        (ArrayType(StructType([StructField("at", TimeType())])), "odd.at"),
    ],
)
def test_type_inside_another_one_is_named_by_its_path(type_: DataType, named: str, tmp_path: Path) -> None:
    error = refusal("delta", type_, tmp_path)
    assert error is not None
    assert f"'{named}'" in error.what


def test_name_that_delta_cannot_have_is_refused_unless_the_table_maps_names(tmp_path: Path) -> None:
    odd = Incoming("v", StructType([StructField("id", StringType()), StructField("we ird", StringType())]))
    with pytest.raises(SpecInvalid) as refused:
        DeltaSink("out", tmp_path).suits(odd)
    assert refused.value.what == "sink 'out' cannot have a column called 'we ird', which view 'v' has"
    assert refused.value.next_command == "give it another name in a step: select `we ird` as other"
    ParquetSink("out", tmp_path).suits(odd)
    table = pa.table({"id": ["a"]})
    write_deltalake(tmp_path, table, configuration={"delta.columnMapping.mode": "name"}, mode="overwrite")
    DeltaSink("out", tmp_path).suits(odd)
