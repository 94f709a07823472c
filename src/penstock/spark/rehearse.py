"""A short life of Spark, at whose end Java writes the classes it has loaded: see `recorded`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def rehearse(spark: SparkSession, place: Path) -> None:
    """What a pipeline does, on a few rows: SQL, columns through Python, files, a streaming query."""
    spark.sql("SELECT id, id % 7 AS k, named_struct('a', cast(id AS string)) AS s FROM range(1000)").write.parquet(
        str(place / "in")
    )
    rows = spark.read.parquet(str(place / "in"))
    rows.createOrReplaceTempView("rows")
    spark.sql("SELECT k, count(*) AS n, max(s.a) AS m FROM rows GROUP BY k ORDER BY k").collect()

    def write(batch: DataFrame, _number: int) -> None:
        batch.mapInArrow(_unchanged, batch.schema).write.mode("append").parquet(str(place / "out"))

    stream = spark.readStream.schema(rows.schema).parquet(str(place / "in"))
    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def main(archive: str) -> None:
    from penstock.spark import session
    from penstock.spec.model import Pipeline

    pipeline = Pipeline.model_validate(
        {
            "name": "rehearsal",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"t": {"value": {"format": "string"}}}},
            "sinks": {"files": {"from": "t", "parquet": {"path": "files"}}},
            "spark": {
                "master": "local[2]",
                "conf": {"spark.driver.defaultJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"},
            },
        }
    )
    with tempfile.TemporaryDirectory() as place:
        spark = session.start(pipeline, Path(place) / "logs", groups=[])
        rehearse(spark, Path(place))
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when nobody holds its standard input
    gateway.proc.wait()


if __name__ == "__main__":
    main(sys.argv[1])
