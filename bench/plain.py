"""The scripts a blog post would have you write: readStream -> from_json -> filter -> the sink. The baselines.

They keep no books and tell nobody about bad records; a batch that is run again is written again to Kafka. Settings are
Spark's defaults but for the shuffle partitions, which every guide tells you to set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bench.order import Order
from penstock.spark import jars, java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SCHEMA = (
    "payment_id string, account string, amount decimal(12,2), currency string, status string, event_time timestamp, "
    "merchant struct<name:string,country:string>, tags array<string>"
)
_FLAT = ("payment_id", "account", "amount", "currency", "status", "event_time")
_UPSERT = """
insert into {table} values (%s, %s, %s, %s, %s, %s)
on conflict (account) do update set payment_id = excluded.payment_id, amount = excluded.amount,
    currency = excluded.currency, status = excluded.status, event_time = excluded.event_time
where {table}.event_time <= excluded.event_time
"""


def session(groups: Sequence[str]) -> SparkSession:
    """One per worker: asked for again it is the one there is."""
    os.environ["JAVA_HOME"] = str(java.find().home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.appName("plain")
        .master("local[*]")
        .config("spark.jars", ",".join(str(f) for f in jars.ensure(groups)))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(len(os.sched_getaffinity(0))))
    )
    if "delta" in groups:
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    return builder.getOrCreate()


def run(order: Order) -> None:
    groups, sink = SINKS[order.work]
    spark = session(groups)
    writer = sink(order, _settled(spark, order)).option("checkpointLocation", str(order.checkpoint))
    writer = writer.trigger(availableNow=True)
    query = writer.toTable(f"lake.bench.{order.table}") if order.work == "iceberg" else writer.start()
    query.awaitTermination()


def _settled(spark: SparkSession, order: Order) -> DataFrame:
    from pyspark.sql import functions as F

    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", order.bootstrap)
        .option("subscribe", order.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(order.max_offsets))
        .load()
    )
    payments = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("payment")).select("payment.*")
    settled = payments.where("amount > 0 and status <> 'VOID'")
    if order.work.endswith("upsert"):
        return settled.select(*_FLAT)
    if order.work.endswith("-append") or order.work == "kafka":
        return settled
    return settled.withColumn("day", F.to_date("event_time"))


def _files(order: Order, rows: DataFrame) -> DataStreamWriter:
    writer = rows.writeStream.format(order.work.removesuffix("-append")).option("path", str(order.lake))
    return writer if order.work.endswith("-append") else writer.partitionBy("day")


def _iceberg(order: Order, rows: DataFrame) -> DataStreamWriter:
    conf = rows.sparkSession.conf
    conf.set("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    conf.set("spark.sql.catalog.lake.type", "hadoop")
    conf.set("spark.sql.catalog.lake.warehouse", str(order.warehouse))
    # A stream cannot be sorted by partition first; Iceberg's documentation says to set this instead.
    return rows.writeStream.format("iceberg").partitionBy("day").option("fanout-enabled", "true")


def _kafka(order: Order, rows: DataFrame) -> DataStreamWriter:
    from pyspark.sql import functions as F

    records = rows.select(F.col("account").alias("key"), F.to_json(F.struct("*")).alias("value"))
    return (
        records.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", order.bootstrap)
        .option("topic", order.out)
    )


def _delta_upsert(order: Order, rows: DataFrame) -> DataStreamWriter:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    table = f"delta.`{order.lake}`"
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema)
    rows.sparkSession.sql(f"create table {table} ({columns}) using delta")
    newest_first = Window.partitionBy("account").orderBy(F.desc("event_time"))

    def merge(batch: DataFrame, _id: int) -> None:
        latest = batch.withColumn("place", F.row_number().over(newest_first)).where("place = 1").drop("place")
        latest.createOrReplaceTempView("updates")
        latest.sparkSession.sql(
            f"merge into {table} t using updates s on t.account = s.account "
            "when matched and s.event_time >= t.event_time then update set * when not matched then insert *"
        )

    return rows.writeStream.foreachBatch(merge)


def create_table(order: Order) -> None:
    """The table to upsert into: the same for every system."""
    import psycopg

    with psycopg.connect(order.postgres) as connection:
        connection.execute(
            f"create table {order.table} (payment_id text, account text primary key, amount numeric(12,2), "
            "currency text, status text, event_time timestamptz)"
        )


def _postgres_upsert(order: Order, rows: DataFrame) -> DataStreamWriter:
    """The usual way without JDBC, which cannot upsert: a connection per partition, `executemany` of an insert with
    `on conflict`, one commit. psycopg 3 sends these in pipeline mode and prepares the statement; psycopg 2's would be
    several times slower. A record that comes late is kept out by the statement's condition. A batch that is run again
    is upserted again, and a batch is not visible at once: partitions commit one by one."""
    import psycopg

    url, statement = order.postgres, _UPSERT.format(table=order.table)
    create_table(order)

    def write(part: Iterable[Any]) -> None:
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.executemany(statement, [tuple(row) for row in part])

    return rows.writeStream.foreachBatch(lambda batch, _id: batch.foreachPartition(write))


SINKS: dict[str, tuple[Sequence[str], Callable[[Order, DataFrame], DataStreamWriter]]] = {
    "delta": (("core", "delta"), _files),
    "delta-append": (("core", "delta"), _files),
    "parquet-append": (("core",), _files),
    "parquet": (("core",), _files),
    "iceberg": (("core", "iceberg"), _iceberg),
    "kafka": (("core",), _kafka),
    "delta-upsert": (("core", "delta"), _delta_upsert),
    "postgres-upsert": (("core",), _postgres_upsert),
}
