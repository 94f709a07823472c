"""Decode as a step of the plan: raw Kafka rows in, typed columns plus `_kafka` and `_error` out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import record
from penstock.decode.json import JsonDecoder
from penstock.decode.worker import DecodeBatches
from penstock.spec.source import Read
from penstock.spec.types import Struct, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SPARK_NAME = {"timestamp_type": "timestampType"}  # where Spark's Kafka source has another name than we have
_DDL = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}


def decode(raw: DataFrame, topic: str | None, read: Read, struct: Struct, *, with_raw: bool = False) -> DataFrame:
    """Decode the records of one view; `topic` is known when it has just one.

    Only the columns somebody needs travel to the Python worker and back: a record's own bytes come along for dead
    letters (`with_raw`) or when the spec asks for them (`kafka_columns`).
    """
    from pyspark.sql import functions as F

    told = record.ORIGIN[1:] if topic is not None else record.ORIGIN
    wanted = (*told, *(record.ON_REQUEST if with_raw else read.kafka_columns))
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
    alone = [F.lit(topic).alias("topic")] if topic is not None else []
    origin = F.struct(*alone, *(F.col(i).alias(n) for n, i in inside.items()))
    fields = [F.col(quoted(m.name)) for m in struct.members]
    return decoded.select(*fields, origin.alias(record.KAFKA), record.ERROR)
