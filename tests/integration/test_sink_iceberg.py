"""K4: a batch is one snapshot, staged and published under an id that Iceberg takes once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.handed import (
    AFTER_FIRST,
    AFTER_OLDER,
    AFTER_SECOND,
    FIRST,
    OLDER,
    OTHER_QUERY,
    QUERY,
    SECOND,
    batch,
    changes,
    every_type,
    hand,
    hand_counting_reads,
    two_at_once,
)

from penstock.batch.counts import Handed
from penstock.errors import NotWritable, SinkBusy, SinkFailed, SpecInvalid, TableDiffers, TableOfAnotherQuery
from penstock.local import ports
from penstock.local.postgres import LocalPostgres
from penstock.record import Known
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.iceberg.catalog import HadoopCatalog, JdbcCatalog, open_in
from penstock.sinks.iceberg.sink import IcebergSink


@pytest.fixture
def catalog(tmp_path: Path) -> HadoopCatalog:
    # A name of its own: in one session a name stands for one catalog.
    return HadoopCatalog(tmp_path / "warehouse", f"ice_{abs(hash(tmp_path))}")


def numbered(spark: Any, first: int, rows: int = 20) -> Any:
    return spark.range(first, first + rows, 1, 2).selectExpr(
        "string(id) id",
        "id % 3 as c",
        "timestamp'2026-11-01' + make_dt_interval(int(id % 2)) as at",
        "named_struct('topic', 't', 'partition', 0, 'offset', id, 'timestamp', timestamp'2026-11-01') as _kafka",
    )


def held(spark: Any, sink: IcebergSink) -> dict[str, int]:
    rows = spark.table(f"{sink.catalog.name}.{sink.table}").collect()
    found = {row.id: row.v for row in rows}
    assert len(found) == len(rows)
    return found


@dataclass(frozen=True)
class Dies(IcebergSink):
    """Killed when everything is staged, and nothing published."""

    def _publish(self, spark: Any, batch: Any, attempt: str) -> int:
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Meets(IcebergSink):
    """Waits for the other attempt when everything is staged."""

    gate: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def _publish(self, spark: Any, batch: Any, attempt: str) -> int:
        self.gate.wait(60)
        return super()._publish(spark, batch, attempt)


def test_catalog_is_opened_once_in_a_session_and_again_in_another_one(spark: Any, catalog: HadoopCatalog) -> None:
    setting = f"spark.sql.catalog.{catalog.name}.cache-enabled"
    open_in(spark, catalog)
    spark.conf.unset(setting)
    open_in(spark, catalog)
    assert spark.conf.get(setting, None) is None
    other = spark.newSession()
    open_in(other, catalog)
    assert other.conf.get(setting) == "false"


def test_batches_are_appended_once_and_proven_without_the_engine(spark: Any, catalog: HadoopCatalog) -> None:
    sink = IcebergSink("ice", "db.events", catalog, ("c", "days(at)", "bucket(2, id)"))
    sink.prepare(batch(0), Known(), frozenset())
    sink.suits(Incoming("v", numbered(spark, 0).schema))
    with pytest.raises(KeyboardInterrupt):
        Dies("ice", "db.events", catalog, sink.partition_by).write(batch(0), numbered(spark, 0), replay=False)
    sink.prepare(batch(0), Known(None, 0), frozenset())
    assert hand_counting_reads(sink, 0, numbered(spark, 0), replay=True) == Written(20)
    assert hand_counting_reads(sink, 0, numbered(spark, 0), replay=True) == Written(20)
    with pytest.raises(SinkBusy):  # without our own check
        sink.write(batch(0), numbered(spark, 0), replay=False)
    assert hand(sink, 1, numbered(spark, 20)) == Written(20)
    assert hand(sink, 2, numbered(spark, 0, 0)) == Written(0)
    assert hand(sink, 2, numbered(spark, 0, 0), replay=True) == Written(0)
    assert spark.table(f"{catalog.name}.db.events").count() == 40
    assert sink.rows_by_batch(QUERY) == {0: 20, 1: 20, 2: 0}
    positions = sink.positions("_kafka")
    assert positions is not None
    assert sorted(positions["t", 0]) == list(range(40))
    assert sink.positions("other") is None
    sink.prepare(batch(0), Known(2, 3), frozenset())
    for lost_or_ahead in (Known(3, 3), Known(0, 0), Known(None, None)):
        with pytest.raises(TableDiffers):
            sink.prepare(batch(0), lost_or_ahead, frozenset())
    with pytest.raises(TableOfAnotherQuery):
        sink.prepare(batch(0, OTHER_QUERY), Known(), frozenset())
    # A batch that was rolled back is not there any more.
    before = spark.sql(f"select snapshot_id from {catalog.name}.db.events.history order by made_current_at").collect()
    spark.sql(f"call {catalog.name}.system.rollback_to_snapshot('db.events', {before[1].snapshot_id})")
    with pytest.raises(TableDiffers):
        sink.prepare(batch(0), Known(2, 3), frozenset())


@pytest.mark.parametrize("key", [(), ("id",)], ids=["append", "upsert"])
def test_two_attempts_at_once_are_published_once(spark: Any, catalog: HadoopCatalog, key: tuple[str, ...]) -> None:
    hand(IcebergSink("ice", "db.events", catalog, key=key), 0, numbered(spark, 0))
    sink = Meets("ice", "db.events", catalog, key=key)
    # Sessions as of two processes: what one sets for its write the other does not see.
    outcomes = two_at_once(lambda: sink.write(batch(1), numbered(spark.newSession(), 10), replay=False))
    assert outcomes == ["SinkBusy", "Written"]
    assert spark.table(f"{catalog.name}.db.events").count() == (30 if key else 40)
    assert sink.rows_by_batch(QUERY) == {0: 20, 1: 20}


def test_rows_for_a_table_that_wants_them_by_ranges_are_counted_once(spark: Any, catalog: HadoopCatalog) -> None:
    """Left to itself the engine would read them twice: to find out where ranges end, and to write them. A table with an
    order wants them so without being told."""
    sink = IcebergSink("ice", "n.t", catalog, partition_by=("c",))
    hand(sink, 0, numbered(spark, 0))
    spark.sql(f"alter table {catalog.name}.n.t set tblproperties ('write.distribution-mode' = 'range')")
    handed = Handed(numbered(spark, 20))
    assert sink.write(batch(1), handed.rows, replay=False) == Written(20)
    assert handed.result()[0] == 20


@pytest.mark.parametrize("by", ["A b", "bucket(4, A b)", "größe"])
def test_partition_column_that_the_engine_cannot_name_is_refused_before_the_start(
    spark: Any, catalog: HadoopCatalog, by: str
) -> None:
    columns = spark.createDataFrame([], "`A b` string, `größe` int, plain int").schema
    IcebergSink("ice", "n.t", catalog, partition_by=("plain",)).suits(Incoming("v", columns))
    with pytest.raises(SpecInvalid, match="cannot be partitioned by"):
        IcebergSink("ice", "n.t", catalog, partition_by=(by,)).suits(Incoming("v", columns))


def test_upsert_keeps_the_newest_record_of_a_key(spark: Any, catalog: HadoopCatalog) -> None:
    sink = IcebergSink("ice", "db.state", catalog, key=("id",))
    assert hand_counting_reads(sink, 0, changes(spark, *FIRST)) == Written(5, superseded=3)
    assert held(spark, sink) == AFTER_FIRST
    with pytest.raises(KeyboardInterrupt):
        Dies("ice", "db.state", catalog, key=("id",)).write(batch(1), changes(spark, *SECOND), replay=False)
    assert held(spark, sink) == AFTER_FIRST
    done = hand(sink, 1, changes(spark, *SECOND), replay=True)
    assert (done.rows, done.superseded, [r.offset for r in done.rejected]) == (4, 1, [15])
    assert hand_counting_reads(sink, 1, changes(spark, *SECOND), replay=True) == done
    assert held(spark, sink) == AFTER_SECOND
    assert hand(sink, 2, changes(spark)) == Written(0)
    assert sink.rows_by_batch(QUERY) == {0: 5, 1: 4, 2: 0}
    assert sink.positions("_kafka") is None
    assert set(spark.table(f"{catalog.name}.db.state").columns) == {"id", "v", "o", "_kafka"}


def test_order_by_decides_inside_a_batch_and_against_the_table(spark: Any, catalog: HadoopCatalog) -> None:
    sink = IcebergSink("ice", "db.state", catalog, key=("id",), order_by="o")
    hand(sink, 0, changes(spark, *FIRST))
    assert hand(sink, 1, changes(spark, *OLDER)) == Written(5, superseded=3)
    assert held(spark, sink) == AFTER_OLDER


def test_every_type_arrives_and_new_columns_are_added_only_when_asked(spark: Any, catalog: HadoopCatalog) -> None:
    from pyspark.sql import functions as F

    sink = IcebergSink("ice", "db.types", catalog)
    rows = every_type(spark)
    hand(sink, 0, rows)
    back = spark.table(f"{catalog.name}.db.types").select(*rows.columns).collect()
    assert sorted(back, key=lambda r: r.id) == rows.collect()
    wider = rows.withColumn("n", F.lit(5)).withColumn("a_struct", F.col("a_struct").withField("new", F.lit(3)))
    with pytest.raises(SinkFailed) as refused:
        hand(sink, 1, wider)
    assert "'a_struct.new' is new" in (refused.value.cause or "")
    evolving = IcebergSink("ice", "db.types", catalog, evolve=True)
    hand(evolving, 1, wider)
    hand(evolving, 2, wider.drop("an_int"))
    found = spark.table(f"{catalog.name}.db.types").where("id = 'k1' and n = 5").collect()
    assert sorted(str((row.an_int, row.a_struct.new)) for row in found) == ["(7, 3)", "(None, 3)"]
    with pytest.raises(SinkFailed):
        hand(evolving, 3, wider.withColumn("a_timestamp", F.col("a_timestamp").cast("date")))
    with pytest.raises(SinkFailed):
        hand(evolving, 3, rows.withColumn("an_interval", F.expr("interval '1' month")))


@pytest.mark.parametrize(
    ("table", "partition_by"), [("events", ()), ("db.", ()), ("db.events", ("days(nothing)",)), ("db.events", ("x",))]
)
def test_table_that_can_never_be_is_refused_before_it_runs(
    spark: Any, catalog: HadoopCatalog, table: str, partition_by: tuple[str, ...]
) -> None:
    with pytest.raises(SpecInvalid):
        IcebergSink("ice", table, catalog, partition_by).suits(Incoming("v", numbered(spark, 0).schema))


def test_warehouse_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("a file")
    with pytest.raises(NotWritable):
        IcebergSink("ice", "db.t", HadoopCatalog(tmp_path / "warehouse")).prepare(batch(0), Known(), frozenset())


def test_catalog_in_a_database_works_and_keeps_its_password_to_itself(
    spark: Any, postgres: LocalPostgres, tmp_path: Path
) -> None:
    at = urlsplit(postgres.url)
    password = Path(parse_qs(at.query)["passfile"][0]).read_text().strip().rpartition(":")[2]
    assert password
    catalog = JdbcCatalog(
        lambda: f"jdbc:postgresql://{at.hostname}:{at.port}{at.path}",
        tmp_path / "warehouse",
        lambda: at.username or "",
        lambda: password,
        "lake",
    )
    sink = IcebergSink("ice", "db.events", catalog)
    sink.prepare(batch(0), Known(), frozenset())  # nobody has used the catalog yet
    assert hand(sink, 0, numbered(spark, 0)) == Written(20)
    assert hand(sink, 0, numbered(spark, 0), replay=True) == Written(20)
    with pytest.raises(SinkBusy):
        sink.write(batch(0), numbered(spark, 0), replay=False)
    sink.prepare(batch(0), Known(0, 0), frozenset())
    assert sink.rows_by_batch(QUERY) == {0: 20}
    positions = sink.positions("_kafka")
    assert positions is not None
    assert sorted(positions["t", 0]) == list(range(20))
    assert password not in repr(sink)
    assert password not in str(spark.sql("set").collect())
    wrong = JdbcCatalog(catalog.uri, catalog.warehouse, catalog.user, lambda: "s3cret-and-wrong", "other")
    for use in (
        lambda: IcebergSink("ice", "db.t", wrong).prepare(batch(0), Known(), frozenset()),
        lambda: IcebergSink("ice", "db.t", wrong).write(batch(0), numbered(spark, 0), replay=False),
    ):
        with pytest.raises(SinkFailed) as refused:
            use()
        assert "s3cret-and-wrong" not in str(refused.value.as_dict())


def test_database_of_a_catalog_that_does_not_answer_is_tried_again(spark: Any, tmp_path: Path) -> None:
    uri = f"jdbc:postgresql://{ports.HOST}:{ports.pick(set())}/lake"
    catalog = JdbcCatalog(lambda: uri, tmp_path, lambda: "nobody", lambda: "s3cret", "away")
    sink = IcebergSink("ice", "db.events", catalog)
    for use in (
        lambda: sink.prepare(batch(0), Known(), frozenset()),
        lambda: sink.write(batch(0), numbered(spark, 0), replay=False),
    ):
        with pytest.raises(SinkBusy, match="the database of Iceberg catalog 'away' cannot be asked") as busy:
            use()
        assert "s3cret" not in str(busy.value.as_dict())
