"""Decode alone: Kafka to typed columns in Spark, nothing written. One process is one system and one case.

`python -m bench.decode SYSTEM CASE BOOTSTRAP TOPIC [REGISTRY]` reads the topic three times, the first to warm up, and
prints the better time of the others as JSON. `plain` is Spark's own from_json or from_avro; for Protobuf there is
none here, so that case is measured against Avro's.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.runtime import build, session
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = {
    "payment_id": {"type": "string", "required": True},
    "account": {"type": "string", "required": True},
    "amount": {"type": "double", "required": True},
    "currency": {"type": "string", "required": True},
    "status": {"type": "string", "required": True},
    "event_time": {"type": "bigint", "required": True},
    "country": "string",
}
AVRO = {
    "type": "record",
    "name": "Payment",
    "fields": [
        *({"name": n, "type": "string"} for n in ("payment_id", "account")),
        {"name": "amount", "type": "double"},
        *({"name": n, "type": "string"} for n in ("currency", "status")),
        {"name": "event_time", "type": "long"},
        {"name": "country", "type": ["null", "string"], "default": None},
    ],
}
PROTO = """
syntax = "proto3";
message Payment {
  string payment_id = 1; string account = 2; double amount = 3; string currency = 4; string status = 5;
  int64 event_time = 6; optional string country = 7;
}
"""


def main() -> None:
    system, case, bootstrap, topic = sys.argv[1:5]
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        (base / "payment.avsc").write_text(json.dumps(AVRO))
        (base / "payment.proto").write_text(PROTO)
        pipeline = Pipeline.model_validate(_spec(case, bootstrap, topic)).at(base)
        spark = session.start(pipeline, base / "logs", ["core", "avro"])
        seconds = [_timed(spark, pipeline, system, case, topic) for _ in range(3)]
        spark.stop()
    sys.stdout.write(json.dumps({"seconds": min(seconds[1:])}) + "\n")


def _timed(spark: SparkSession, pipeline: Pipeline, system: str, case: str, topic: str) -> float:
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", pipeline.kafka.bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    rows = _penstock(pipeline, raw) if system == "penstock" else _plain(case, raw)
    began = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _penstock(pipeline: Pipeline, raw: DataFrame) -> DataFrame:
    [inlet] = build.inlets(pipeline)
    return inlet.judged(raw)


def _plain(case: str, raw: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    if case.startswith("json"):
        ddl = ", ".join(f"{n} {t['type'] if isinstance(t, dict) else t}" for n, t in FIELDS.items())
        decoded = F.from_json(F.col("value").cast("string"), ddl)
    else:
        decoded = from_avro(F.col("value"), json.dumps(AVRO), {"mode": "PERMISSIVE"})
    return raw.select(decoded.alias("payment"), "partition", "offset", "timestamp").select(
        "payment.*", "partition", "offset", "timestamp"
    )


def _spec(case: str, bootstrap: str, topic: str) -> dict[str, Any]:
    value: dict[str, Any] = {"format": "json", "schema": {"fields": FIELDS}}
    if case.startswith("avro"):
        value = {"format": "avro", "schema": "payment.avsc", "wire": "registry" if "ids" in case else "raw"}
    if case.startswith("protobuf"):
        value = {"format": "protobuf", "schema": "payment.proto", "wire": "raw"}
    registry = {"registry": {"url": sys.argv[5]}} if "ids" in case else {}
    return {
        **registry,
        "name": "decode",
        "kafka": {"bootstrap": bootstrap},
        "source": {"topics": {topic: {"view": "payments", "value": value}}},
        "sinks": {"none": {"from": "payments", "delta": {"path": "none"}}},
    }


if __name__ == "__main__":
    main()
