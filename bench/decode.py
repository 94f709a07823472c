"""Decode alone: Kafka to typed columns in Spark, nothing written.

The time is that of one batch query over the whole topic, in a JVM that has run it before. Rows are counted on their way
(`observe`), the same for both: a record that was lost or not decoded would make the figure void.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from bench import plain
from bench.order import Answer, Order
from bench.records import AVRO, FIELDS
from bench.shapes import Shape
from penstock import record
from penstock.kafka import admin, connection
from penstock.plan import build
from penstock.record import OffsetRange
from penstock.source import kafka as source
from penstock.spark import session
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def ours(order: Order) -> Answer:
    from pyspark.sql import functions as F

    pipeline = Pipeline.model_validate(_spec(order)).at(order.home)
    spark = session.start(pipeline, order.home.parent / "logs", ["core"])
    config = connection.connect_to(order.bootstrap)
    marks = admin.watermarks(config, admin.partition_counts(config, [order.topic]))
    ranges = [OffsetRange(topic, partition, low, high) for (topic, partition), (low, high) in marks.items()]
    [inlet] = build.inlets(pipeline)
    decoded = inlet.judged(source.bounded(spark, pipeline, ranges))
    return _timed(decoded, F.col(record.ERROR).isNotNull())


def stock(order: Order) -> Answer:
    """Spark's own. The header of the registry's wire format is cut off in SQL, as users do; and whatever the schema id
    says, one schema is used: with twenty ids that is right only because ours all write the same bytes."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    spark = plain.session(["core", "avro"])
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", order.bootstrap)
        .option("subscribe", order.topic)
        .load()
    )
    if order.system == "from_json":
        ddl = ", ".join(f"{n} {t['type'] if isinstance(t, dict) else t}" for n, t in FIELDS.items())
        payment = F.from_json(F.col("value").cast("string"), ddl)
    else:
        payment = from_avro(F.expr("substring(value, 6)"), json.dumps(AVRO), {"mode": "PERMISSIVE"})
    decoded = raw.select(payment.alias("payment"), "topic", "partition", "offset", "timestamp").select(
        "payment.*", "topic", "partition", "offset", "timestamp"
    )
    return _timed(decoded, F.col("payment_id").isNull())


def _timed(decoded: DataFrame, bad: Column) -> Answer:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    rows = decoded.observe(seen, F.count(F.lit(1)).alias("rows"), F.count_if(bad).alias("bad"))
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - began
    return Answer(seconds, seen.get["rows"], seen.get["bad"])


def _spec(order: Order) -> dict[str, Any]:
    kind = Shape(order.shape).kind
    value: dict[str, Any] = {"format": kind.split("-")[0]}
    if kind == "json":
        value["schema"] = {"fields": FIELDS}
    return {
        **({"registry": {"url": order.registry}} if kind != "json" else {}),
        "name": order.out,
        "kafka": {"bootstrap": order.bootstrap},
        "source": {"topics": {order.topic: {"view": "payments", "value": value}}},
        "sinks": {"none": {"from": "payments", "delta": {"path": "none"}}},
    }
