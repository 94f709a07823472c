"""Kafka into Spark: the raw stream, with every column Kafka has (S6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kafka.connection import spark_options
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The raw records of every topic. Called once per start; Spark's checkpoint decides where it goes on."""
    source = pipeline.source
    options = {
        **spark_options(pipeline),
        "subscribe": ",".join(source.topics),
        "startingOffsets": source.start,
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(pipeline.rate.max_offsets),
        # Only committed records count: an aborted transaction was never written (S9).
        "kafka.isolation.level": "read_committed",
    }
    return spark.readStream.format("kafka").options(**options).load()
