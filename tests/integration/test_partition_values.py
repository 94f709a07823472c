"""A partition value that the table could not tell from null is never written as null: its record is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from tests.handed import batch, hand

from penstock.sinks.contract import Sink
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.upsert import DeltaUpsertSink
from penstock.sinks.parquet.sink import ParquetSink

VALUES = ["EUR", "", None, "__HIVE_DEFAULT_PARTITION__", " ", "a/b=c%20"]
KEPT = {0: "EUR", 2: None, 4: " ", 5: "a/b=c%20"}


def rows(spark: Any, origin: bool = True) -> Any:
    """All in one task: two of them in one directory would be two files of one name."""
    columns = "id int, part string" + ", _kafka struct<topic:string,partition:int,offset:bigint,timestamp:timestamp>"
    made = [(i, value, ("t", 0, i, None)) for i, value in enumerate(VALUES)]
    found = spark.createDataFrame(made, columns).coalesce(1)
    return found if origin else found.drop("_kafka")


def sink_of(kind: str, path: Path) -> Sink:
    if kind == "upsert":
        return DeltaUpsertSink("out", path, ("id",), None, ("part",))
    return (DeltaSink if kind == "delta" else ParquetSink)("out", path, ("part",))


def held(kind: str, path: Path) -> dict[int, str | None]:
    if kind == "parquet":
        found = ds.dataset(path, partitioning=ds.partitioning(flavor="hive")).to_table(columns=["id", "part"])
    else:
        found = DeltaTable(str(path)).to_pyarrow_table(columns=["id", "part"])
    return dict(zip(found["id"].to_pylist(), found["part"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", ["delta", "upsert", "parquet"])
def test_empty_text_is_refused_and_null_is_null(spark: Any, kind: str, tmp_path: Path) -> None:
    sink = sink_of(kind, tmp_path / "table")
    for replay in (False, True):
        done = hand(sink, 0, rows(spark), replay=replay)
        assert (done.rows, sorted(r.offset for r in done.rejected)) == (4, [1, 3])
        assert {r.why.error_class for r in done.rejected} == {"out-of-range"}
        assert "partitioned by part" in done.rejected[0].why.reason
        assert held(kind, tmp_path / "table") == KEPT


def test_row_that_deletes_its_key_stores_no_partition_value(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    sink = sink_of("upsert", tmp_path / "table")
    hand(sink, 0, rows(spark))
    gone = rows(spark).where("id < 2").withColumn("part", F.lit("")).withColumn("_deleted", F.lit(True))
    assert hand(sink, 1, gone.where("part is not null")).rejected == ()
    assert held("upsert", tmp_path / "table") == {id_: part for id_, part in KEPT.items() if id_ >= 2}


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_row_that_does_not_say_where_it_came_from_ends_the_batch_and_nothing_is_written(
    spark: Any, kind: str, tmp_path: Path
) -> None:
    sink = sink_of(kind, tmp_path / "table")
    with pytest.raises(Exception, match="would become null, and the row does not say which record"):
        sink.write(batch(0), rows(spark, origin=False), replay=False)
    assert not sink.holds(batch(0))
