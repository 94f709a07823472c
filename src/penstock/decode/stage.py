"""Decode as a step of the plan: raw Kafka rows in, typed columns plus `_kafka` and `_error` out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import record
from penstock.decode.json import JsonDecoder
from penstock.decode.worker import DecodeBatches
from penstock.spec.source import Topic
from penstock.spec.types import Struct, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SPARK_NAME = {"timestamp_type": "timestampType"}  # where Spark's Kafka source has another name than we have
_DDL = {
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}


def decode(raw: DataFrame, topic: str, settings: Topic, struct: Struct, *, with_raw: bool = False) -> DataFrame:
    """Decode the records of one topic.

    Only the columns somebody needs travel to the Python worker and back: a record's own bytes come along for dead
    letters (`with_raw`) or when the spec asks for them (`kafka_columns`).
    """
    from pyspark.sql import functions as F

    wanted = (*record.ORIGIN[1:], *(record.ON_REQUEST if with_raw else settings.kafka_columns))
    inside = {name: f"{record.KAFKA}_{name}" for name in wanted}  # `_kafka...` is reserved: no field can clash
    sent = raw.select(
        F.col("value").alias(f"{record.KAFKA}_raw"), *(F.col(_SPARK_NAME.get(n, n)).alias(i) for n, i in inside.items())
    )
    schema = ", ".join(
        [
            struct.columns(),
            f"{record.ERROR} struct<class:string,reason:string>",
            *(f"{i} {_DDL[n]}" for n, i in inside.items()),
        ]
    )
    decoded = sent.mapInArrow(DecodeBatches(struct, JsonDecoder, tuple(inside.values())), schema)
    origin = F.struct(F.lit(topic).alias("topic"), *(F.col(i).alias(n) for n, i in inside.items()))
    fields = [F.col(quoted(m.name)) for m in struct.members]
    return decoded.select(*fields, origin.alias(record.KAFKA), record.ERROR)
