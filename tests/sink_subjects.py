"""Penstock's own sinks as subjects of the conformance suite, each with a reader that is not the sink.

Pickled to a process that is killed: addresses only.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from psycopg.rows import dict_row
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from penstock.encode.stage import Encoding
from penstock.kafka.connection import connect_to
from penstock.sinks.contract import Sink
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.upsert import DeltaUpsertSink
from penstock.sinks.iceberg.catalog import HadoopCatalog
from penstock.sinks.iceberg.sink import IcebergSink
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.kafka.stock import StockKafkaSink
from penstock.sinks.parquet.sink import ParquetSink
from penstock.sinks.postgres import PostgresSink
from penstock.spec.sinks import KafkaTopic
from penstock.testing.conformance import TOPIC, Traits

KEY = ("id",)
TAKES_ALL = {"rejected-row": "the rows of a batch have the columns of the table, and it takes whatever they hold"}
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Delta:
    path: Path
    upserts: bool = False

    @property
    def traits(self) -> Traits:
        return Traits(upserts=self.upserts, excused={} if self.upserts else TAKES_ALL)

    def sink(self) -> Sink:
        return DeltaUpsertSink("lake", self.path, KEY) if self.upserts else DeltaSink("lake", self.path)

    def rows(self) -> Rows:
        try:
            return list(DeltaTable(str(self.path)).to_pyarrow_table().to_pylist())
        except TableNotFoundError:
            return []

    def as_read(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Parquet:
    path: Path
    traits: Traits = field(default_factory=lambda: Traits(excused=TAKES_ALL))

    def sink(self) -> Sink:
        return ParquetSink("files", self.path)

    def rows(self) -> Rows:
        return list(ds.dataset(self.path).to_table().to_pylist()) if self.path.exists() else []

    def as_read(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Iceberg:
    path: Path
    upserts: bool = False
    catalog: str = field(default_factory=lambda: f"c{uuid.uuid4().hex[:8]}")  # in a session a name stands for one

    @property
    def traits(self) -> Traits:
        reserved = {"deletes": "`_deleted` is a column that Iceberg has itself, so a table cannot have another"}
        return Traits(upserts=self.upserts, excused={} if self.upserts else {**TAKES_ALL, **reserved})

    def sink(self) -> Sink:
        key = KEY if self.upserts else ()
        return IcebergSink("ice", "db.things", HadoopCatalog(self.path, self.catalog), key=key)

    def rows(self) -> Rows:
        """By its directory, without the sink's catalog."""
        spark = SparkSession.builder.getOrCreate()
        try:
            return list(spark.read.format("iceberg").load(str(self.path / "db" / "things")).toArrow().to_pylist())
        except AnalysisException:  # there is no table yet
            return []

    def as_read(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Postgres:
    url: str
    schema: str
    upserts: bool = False

    @property
    def traits(self) -> Traits:
        return Traits(upserts=self.upserts, refuses={"text": "PostgreSQL has no \0 in a text"})

    def sink(self) -> Sink:
        return PostgresSink("db", self.url, f"{self.schema}.things", KEY if self.upserts else ())

    def rows(self) -> Rows:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            try:
                return connection.execute(f"select * from {self.schema}.things").fetchall()
            except psycopg.errors.UndefinedTable:
                return []

    def as_read(self, value: Any) -> Any:
        return value


class _Aimed(Encoding):
    """Every row to one topic, but for one whose `n` is negative: its topic has a name that none can have."""

    topic = ""

    def rows(self, rows: Any) -> Any:
        bad = "n < 0" if "n" in rows.columns else "false"
        return super().rows(rows.selectExpr("*", f"if({bad}, 'no topic', '{self.topic}') as __topic"))


@dataclass(frozen=True)
class Kafka:
    """Records of JSON, with the id as their key."""

    bootstrap: str
    topic: str
    guarantee: str

    @property
    def traits(self) -> Traits:
        # Two transactions in one topic: a reader stops before the first record of the one that is open, and has by then
        # seen the beginning of the other one, if that is committed.
        by_partition = self.guarantee == "exactly-once-by-partition"
        return Traits(visible_by="row" if by_partition else "batch", refuses={"n": -1})

    def sink(self) -> Sink:
        to = KafkaTopic.model_validate(
            {"topic_column": "__topic", "key": {"format": "json", "columns": ["id"]}, "guarantee": self.guarantee}
        )
        encoding, config = _Aimed("out", to, Path(), _no_registry), connect_to(self.bootstrap)
        encoding.topic = self.topic
        if self.guarantee == "at-least-once":
            return StockKafkaSink("out", config, {"kafka.bootstrap.servers": self.bootstrap}, encoding)
        return KafkaSink("out", config, encoding, self.guarantee, (TOPIC,))

    def rows(self) -> Rows:
        """Up to where a reader of committed records gets now: before the first transaction that is open."""
        settings = {"group.id": "judge", "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "enable.partition.eof": True, **settings})
        found: list[dict[str, Any]] = []
        try:
            consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
            while True:
                for message in consumer.consume(10_000, 0.1):
                    if error := message.error():
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        return found
                    found.append(_json(message.key()) | _json(message.value()))
        finally:
            consumer.close()

    def as_read(self, value: Any) -> Any:
        return in_json(value)


def _json(text: bytes | None) -> dict[str, Any]:
    return json.loads(text, parse_float=Decimal) if text else {}


def _no_registry() -> Any:
    raise AssertionError("JSON needs none")


_ODD = {math.inf: "Infinity", -math.inf: "-Infinity"}
_IN_JSON: dict[type, Callable[[Any], Any]] = {
    float: lambda v: "NaN" if math.isnan(v) else _ODD.get(v) or Decimal(repr(v)),
    bytes: lambda v: base64.b64encode(v).decode(),
    datetime: lambda v: v.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    date: lambda v: v.isoformat(),
    list: lambda v: [in_json(item) for item in v],
    dict: lambda v: {name: in_json(item) for name, item in v.items()},
}


def in_json(value: Any) -> Any:
    return _IN_JSON.get(type(value), lambda v: v)(value)
