"""The script a blog post would have you write: readStream -> from_json -> filter -> Delta. The baseline."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = (
    "payment_id string, account string, amount decimal(12,2), currency string, status string, event_time timestamp, "
    "merchant struct<name:string,country:string>, tags array<string>"
)


def main(bootstrap: str, topic: str, jars: str, directory: str, max_offsets: str) -> None:
    spark = (
        SparkSession.builder.appName("plain")
        .master("local[*]")
        .config("spark.jars", jars)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max_offsets)
        .load()
    )
    payments = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("payment")).select("payment.*")
    settled = payments.where("amount > 0 and status <> 'VOID'").withColumn("day", F.to_date("event_time"))
    query = (
        settled.writeStream.format("delta")
        .partitionBy("day")
        .option("checkpointLocation", f"{directory}/checkpoint/spark")
        .trigger(availableNow=True)
        .start(f"{directory}/lake")
    )
    query.awaitTermination()


if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    main(*sys.argv[1:])
