"""Records that are not read from Kafka, such as dead letters, in the form in which Kafka's source gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.batch.source_view import RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A time as a number: a producer may write one that is no date in Python.
_IN_MICROSECONDS = RAW.replace("timestamp timestamp", "timestamp bigint")


class Came(Protocol):
    """A record as it came: a dead letter, or one that was made for a test."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...


def raw(spark: SparkSession, chosen: Sequence[Came]) -> DataFrame:
    """The records as Kafka's source would give them: one task for each input partition, in the order of its offsets."""
    from pyspark.sql import functions as F

    by_partition: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for each in sorted(chosen, key=lambda letter: letter.offset):
        by_partition.setdefault((each.topic, each.partition), []).append(_as_row(each))
    parts = list(by_partition.values())
    rows = spark.sparkContext.parallelize(parts, max(1, len(parts))).flatMap(list)
    in_microseconds = spark.createDataFrame(rows, _IN_MICROSECONDS)
    return in_microseconds.withColumn("timestamp", F.timestamp_micros("timestamp"))


def _as_row(letter: Came) -> tuple[Any, ...]:
    return (
        letter.key,
        letter.value,
        letter.topic,
        letter.partition,
        letter.offset,
        letter.timestamp_ms * 1000,
        letter.timestamp_type,
        letter.headers or None,  # as Kafka's source gives a record without headers
    )
