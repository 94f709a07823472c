"""K2, upsert: a batch is one merge, whatever is in it and however often it is run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.handed import (
    AFTER_FIRST,
    AFTER_OLDER,
    AFTER_SECOND,
    FIRST,
    OLDER,
    QUERY,
    SECOND,
    batch,
    changes,
    every_type,
    hand,
    hand_counting_reads,
)

from penstock.errors import SinkFailed, SpecInvalid
from penstock.record import MISSING_FIELD, Known
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.upsert import DeltaUpsertSink


@pytest.fixture
def sink(tmp_path: Path) -> DeltaUpsertSink:
    return DeltaUpsertSink("state", tmp_path / "state", ("id",))


def held(sink: DeltaUpsertSink) -> dict[str, int]:
    """What a reader that is not Spark sees; fails where a key is there twice."""
    rows = DeltaTable(str(sink.path)).to_pyarrow_table().to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_newest_record_of_a_key_wins_and_a_replay_changes_nothing(spark: Any, sink: DeltaUpsertSink) -> None:
    assert hand_counting_reads(sink, 0, changes(spark, *FIRST)) == Written(5, superseded=3)
    assert held(sink) == AFTER_FIRST
    done = hand(sink, 1, changes(spark, *SECOND))
    assert (done.rows, done.superseded) == (4, 1)
    [refused] = done.rejected
    assert (refused.topic, refused.partition, refused.offset, refused.why.error_class) == ("t", 0, 15, MISSING_FIELD)
    assert held(sink) == AFTER_SECOND
    version = DeltaTable(str(sink.path)).version()
    assert hand_counting_reads(sink, 1, changes(spark, *SECOND), replay=True) == done
    # Without our own check Delta itself skips the merge of a batch that it has seen.
    sink.write(batch(1), changes(spark, ("kept", 0, 99, False, 99)), replay=False)
    assert DeltaTable(str(sink.path)).version() == version
    assert held(sink) == AFTER_SECOND
    assert sink.rows_by_batch(QUERY) == {0: 5, 1: 4}
    assert sink.positions("_kafka") is None
    stored = {field.name for field in DeltaTable(str(sink.path)).schema().fields}
    assert stored == {"id", "v", "o", "_kafka"}


def test_order_by_decides_inside_a_batch_and_against_the_table(spark: Any, tmp_path: Path) -> None:
    sink = DeltaUpsertSink("state", tmp_path / "state", ("id",), "o")
    hand(sink, 0, changes(spark, *FIRST))
    assert held(sink) == AFTER_FIRST
    assert hand(sink, 1, changes(spark, *OLDER)) == Written(5, superseded=3)
    assert held(sink) == AFTER_OLDER


@pytest.mark.parametrize("kind", ["timestamp_ntz", "timestamp", "date"])
def test_row_of_a_partition_by_time_is_found_again_in_any_time_zone(
    spark: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        sink = DeltaUpsertSink("state", tmp_path / "state", ("id", "at"), partition_by=("at",))
        at = F.lit("2026-07-01 12:00:00").cast(kind)
        for number in range(2):
            hand(sink, number, changes(spark, ("a", number, None, False, number)).withColumn("at", at))
        assert held(sink) == {"a": 1}
    finally:
        monkeypatch.undo()
        time.tzset()


def test_crash_before_the_merge_and_batches_without_rows(spark: Any, sink: DeltaUpsertSink) -> None:
    rows = changes(spark, ("a", 1, None, False, 0))
    rows.drop("_deleted").limit(0).write.format("delta").save(str(sink.path))  # the table was made, not merged into
    rows.drop("_deleted").write.parquet(str(sink.path / "left"))  # files that no commit names
    assert hand(sink, 0, rows, replay=True) == Written(1)
    assert hand(sink, 1, changes(spark)) == Written(0)
    assert hand(sink, 1, changes(spark), replay=True) == Written(0)
    assert hand(sink, 2, changes(spark, (None, 1, None, False, 0))).rows == 0
    assert sink.rows_by_batch(QUERY) == {0: 1, 1: 0, 2: 0}
    assert [c["operation"] for c in DeltaTable(str(sink.path)).history()].count("MERGE") == 1
    assert held(sink) == {"a": 1}
    sink.prepare(batch(0), Known(2, 2), frozenset())


def test_every_type_arrives_and_new_columns_are_added_only_when_asked(spark: Any, sink: DeltaUpsertSink) -> None:
    from pyspark.sql import functions as F

    rows = every_type(spark)
    sink.suits(Incoming("v", rows.schema))
    hand(sink, 0, rows)
    table = spark.read.format("delta").load(str(sink.path))
    assert sorted(table.select(*rows.columns).collect(), key=lambda r: r.id) == rows.collect()
    wider = rows.withColumn("n", F.lit(5)).withColumn("a_struct", F.col("a_struct").withField("new", F.lit(3)))
    with pytest.raises(SinkFailed) as refused:
        hand(sink, 1, wider)
    assert "'a_struct.new' is new" in (refused.value.cause or "")
    evolving = DeltaUpsertSink("state", sink.path, ("id",), evolve=True)
    hand(evolving, 1, wider)
    found = {r["id"]: r for r in DeltaTable(str(sink.path)).to_pyarrow_table().to_pylist()}
    assert (found["k1"]["n"], found["k1"]["a_struct"]["new"]) == (5, 3)
    hand(evolving, 2, wider.drop("n").where("id = 'k1'"))  # as with an append, what the rows lack is null
    found = {r["id"]: r for r in DeltaTable(str(sink.path)).to_pyarrow_table().to_pylist()}
    assert (found["k1"]["n"], found["k2"]["n"]) == (None, 5)
    with pytest.raises(SinkFailed) as cut:  # a merge of Delta's would cast it
        hand(evolving, 3, wider.withColumn("a_timestamp", F.col("a_timestamp").cast("date")))
    assert "'a_timestamp' was timestamp and is now date" in (cut.value.cause or "")


def test_types_become_wider_only_when_asked_and_what_does_not_fit_is_refused_before_a_batch(
    spark: Any, tmp_path: Path
) -> None:
    columns = "select {} as id, {} as v, {} as x, 1 as o"
    sink = DeltaUpsertSink("state", tmp_path / "state", ("id",), "o")
    hand(sink, 0, spark.sql(columns.format("1", "1", "1.5f")))
    wider = spark.sql(columns.format("2L", "9000000000L", "2.5d"))
    with pytest.raises(SinkFailed) as refused:
        sink.suits(Incoming("v", wider.schema))
    assert "column 'id' was int and is now bigint" in (refused.value.cause or "")
    evolving = DeltaUpsertSink("state", sink.path, ("id",), "o", evolve=True)
    evolving.suits(Incoming("v", wider.schema))
    hand(evolving, 1, wider)
    hand(evolving, 2, spark.createDataFrame([], wider.schema))
    found = spark.read.format("delta").load(str(sink.path)).orderBy("id").collect()
    assert [(row["id"], row["v"], row["x"]) for row in found] == [(1, 1, 1.5), (2, 9_000_000_000, 2.5)]
    assert evolving.rows_by_batch(QUERY) == {0: 1, 1: 1, 2: 0}
    for other in ("cast(1 as string)", "1.5d", "cast(1 as int)"):
        with pytest.raises(SinkFailed):
            evolving.suits(Incoming("v", spark.sql(columns.format("1L", other, "1d")).schema))


def test_type_that_an_append_cannot_take_is_refused_before_the_table_is_changed(spark: Any, tmp_path: Path) -> None:
    sink = DeltaSink("lake", tmp_path / "lake", evolve=True)
    hand(sink, 0, spark.sql("select 1 as id, 1L as n, named_struct('a', 1) as s"))
    for other in ("1 as id, 1.5d as n", "1 as id, named_struct('a', 'x') as s", "'x' as id"):
        with pytest.raises(SinkFailed, match="does not take the rows of view 'v'"):
            sink.suits(Incoming("v", spark.sql(f"select {other}").schema))
    assert DeltaTable(str(sink.path)).protocol().reader_features is None  # readers of today still read it
    for fits in ("1 as n", "2L as id, named_struct('a', 1, 'b', 2) as s, 3 as new", "array(1) as tags"):
        sink.suits(Incoming("v", spark.sql(f"select {fits}").schema))
    DeltaSink("lake", sink.path).suits(Incoming("v", spark.sql("select 1.5d as n").schema))  # the engine's to judge


def test_merge_reads_only_the_partitions_of_the_batch(spark: Any, tmp_path: Path) -> None:
    sink = DeltaUpsertSink("state", tmp_path / "state", ("id", "day"), "o", partition_by=("day",))
    days = "select string(id) id, date_add(date'2026-01-01', int(id)) day, 1 o, 1 v from range(5)"
    hand(sink, 0, spark.sql(days))
    hand(sink, 1, spark.sql(f"select id, day, o, 2 v from ({days}) where id = 3"))
    newest = DeltaTable(str(sink.path)).history(1)[0]
    assert "2026-01-04" in newest["operationParameters"]["predicate"]
    rows = DeltaTable(str(sink.path)).to_pyarrow_table().to_pylist()
    assert (len(rows), [r["id"] for r in rows if r["v"] == 2]) == (5, ["3"])


def test_null_keys_of_rows_that_do_not_say_where_they_came_from_stop_the_batch(spark: Any, tmp_path: Path) -> None:
    sink = DeltaUpsertSink("state", tmp_path / "state", ("id",), "o")
    with pytest.raises(SinkFailed):
        hand(sink, 0, spark.sql("select if(id = 1, null, id) id, 1 o from range(3)"))
    with pytest.raises(SinkFailed):
        hand(sink, 0, spark.sql("select cast(null as string) id, 1 o"))  # Spark sees that no row would be left
    assert not sink.path.exists()


@pytest.mark.parametrize(
    ("columns", "key", "order_by"),
    [
        ("select 1 v", ("id",), None),
        ("select 1 id, 1 v", ("id",), None),  # nothing says which of two rows is newer
        ("select 1 id", ("id",), "o"),
        ("select map(1, 1) id, 1 o", ("id",), "o"),
        ("select 1 _key, 1 o", ("_key",), "o"),
    ],
)
def test_view_that_cannot_be_upserted_is_refused_before_it_runs(
    spark: Any, tmp_path: Path, columns: str, key: tuple[str, ...], order_by: str | None
) -> None:
    with pytest.raises(SpecInvalid):
        DeltaUpsertSink("state", tmp_path, key, order_by).suits(Incoming("v", spark.sql(columns).schema))
