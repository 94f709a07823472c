"""Kafka into Spark: the raw stream, or a range of it, with every column Kafka has (S6)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.kafka.connection import spark_options
from penstock.record import OffsetRange
from penstock.source.subscription import Subscription
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(
    spark: SparkSession,
    pipeline: Pipeline,
    subscription: Subscription,
    starting_offsets: str,
    *,
    cap: int | None = None,
    waits: bool = True,
) -> DataFrame:
    """The raw records of every topic. Called once per start; Spark's checkpoint decides where it goes on.

    `cap`: most offsets of a batch, instead of the spec's. `waits`: a batch may wait for `min_offsets`; a run that ends
    once it has caught up would end before the last records.
    """
    rate = pipeline.rate
    wait = {"minOffsetsPerTrigger": rate.min_offsets, "maxTriggerDelay": rate.max_delay} if waits else {}
    options = {
        **_common(pipeline),
        **subscription.options,
        "startingOffsets": starting_offsets,
        "maxOffsetsPerTrigger": str(rate.max_offsets if cap is None else cap),
        **{name: _setting(value) for name, value in wait.items() if value is not None},
    }
    return spark.readStream.format("kafka").options(**options).load()


def live(spark: SparkSession, pipeline: Pipeline, subscription: Subscription, starting_offsets: str) -> DataFrame:
    """The raw records for real-time mode, which takes no limits."""
    options = {
        **_common(pipeline),
        **subscription.options,
        "startingOffsets": starting_offsets,
    }
    return spark.readStream.format("kafka").options(**options).load()


def bounded(spark: SparkSession, pipeline: Pipeline, ranges: Iterable[OffsetRange], *, whole: bool = True) -> DataFrame:
    """Just these offsets, as they are in Kafka now. Nothing is remembered. `whole`: what has expired is an error;
    otherwise the spec's `on_data_loss` says whether it is."""
    assigned: dict[str, list[int]] = {}
    first: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for r in ranges:
        assigned.setdefault(r.topic, []).append(r.partition)
        first.setdefault(r.topic, {})[str(r.partition)] = r.start
        end.setdefault(r.topic, {})[str(r.partition)] = r.end
    options = {
        **_common(pipeline),
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(first),
        "endingOffsets": json.dumps(end),
        **({"failOnDataLoss": "true"} if whole else {}),
    }
    return spark.read.format("kafka").options(**options).load()


def _setting(value: int | timedelta) -> str:
    return f"{round(value.total_seconds() * 1000)}ms" if isinstance(value, timedelta) else str(value)


def _common(pipeline: Pipeline) -> dict[str, str]:
    split = {
        "minPartitions": pipeline.source.min_partitions,
        "maxRecordsPerPartition": pipeline.source.max_records_per_partition,
    }
    return {
        # By default a client reads 64 KB and hands over 500 records at a time. What it holds is limited elsewhere.
        "kafka.receive.buffer.bytes": str(1 << 20),
        "kafka.max.poll.records": "10000",
        **spark_options(pipeline),
        **{name: str(value) for name, value in split.items() if value is not None},
        "failOnDataLoss": "true" if pipeline.source.on_data_loss == "fail" else "false",
        "includeHeaders": "true",
        # Only committed records count: an aborted transaction was never written (S9).
        "kafka.isolation.level": "read_committed",
    }
