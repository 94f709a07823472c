"""The short way of a batch as a sink of the conformance suite: rows are made records again, and `Shortcut.run` decodes,
judges and writes them in one pass. Which sink they go to is that of another subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.batch.fused.way import Shortcut, shortcut
from penstock.batch.output import Outlet
from penstock.encode.stage import Encoding
from penstock.kafka.connection import connect_to
from penstock.plan import build
from penstock.record import KAFKA, Batch, Known
from penstock.sinks.contract import Incoming, Sink, Written
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.kafka.stock import StockKafkaSink
from penstock.spec.model import Pipeline
from penstock.spec.sinks import KafkaTopic
from penstock.testing.conformance import TOPIC, Subject, Traits
from tests import sink_subjects as own

_MADE_BY_DECODE = "what a record can hold is for decode to say: tests/integration/test_one_pass.py compares both ways"
EXCUSED = {"every-type": _MADE_BY_DECODE, "deletes": "a delete is a record without a value here, and none is handed"}


@dataclass
class InOnePass:
    """A sink whose batches take the short way."""

    sink: Sink
    way: Shortcut | None = None

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def guarantee(self) -> str:
        return self.sink.guarantee

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        self.sink.prepare(batch, known, accepted)

    def suits(self, incoming: Incoming) -> None:
        self.sink.suits(incoming)
        pipeline = _pipeline(incoming.columns)
        way = shortcut(pipeline, build.inlets(pipeline), [Outlet(self.sink, TOPIC)], incoming)
        assert isinstance(way, Shortcut), way
        self.way = way

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        assert self.way is not None
        counted, written, _, _ = self.way.run(_records(rows), batch, replay=replay, locate=False, afford=None)
        assert counted.counts.passed == counted.counts.read
        return written

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        return self.sink.positions(column)

    def rows_by_batch(self, query: str) -> dict[int, int] | None:
        return self.sink.rows_by_batch(query)

    def holds(self, batch: Batch) -> bool:
        return self.sink.holds(batch)


@dataclass(frozen=True)
class ShortWay:
    """Over the place of another subject."""

    to: Subject

    @property
    def traits(self) -> Traits:
        of = self.to.traits
        return Traits(of.upserts, of.visible_by, of.refuses, {**of.excused, **EXCUSED})

    def sink(self) -> Sink:
        return InOnePass(self.to.sink())

    def rows(self) -> Sequence[Mapping[str, Any]]:
        return self.to.rows()

    def as_read(self, value: Any) -> Any:
        return self.to.as_read(value)


@dataclass(frozen=True)
class PlainKafka(own.Kafka):
    """Records of JSON without a key: the topic is no column, so that they can be made in the worker that decodes."""

    @property
    def traits(self) -> Traits:
        by = "row" if self.guarantee == "exactly-once-by-partition" else "batch"
        return Traits(visible_by=by, refuses={"text": "larger than its topic takes" * 4_000})

    def sink(self) -> Sink:
        to = KafkaTopic.model_validate({"topic": self.topic, "guarantee": self.guarantee, "origin": True})
        encoding = Encoding("out", to, Path(), own._no_registry)
        if self.guarantee == "at-least-once":
            options = {"kafka.bootstrap.servers": self.bootstrap}
            return StockKafkaSink("out", connect_to(self.bootstrap), options, encoding)
        return KafkaSink("out", connect_to(self.bootstrap), encoding, self.guarantee, (TOPIC,), origin=True)


class NeverHeld(DeltaSink):
    """Broken on purpose: it does not look whether a batch is there already."""

    def held(self, batch: Batch) -> int | None:
        return None


@dataclass(frozen=True)
class BrokenDelta(own.Delta):
    def sink(self) -> Sink:
        return NeverHeld("lake", self.path)


def _pipeline(columns: StructType) -> Pipeline:
    """Decodes what `_records` makes of such rows."""
    fields = {f.name: {"type": f.dataType.simpleString(), "required": False} for f in columns if f.name != KAFKA}
    return Pipeline.model_validate(
        {
            "name": "conformance",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {TOPIC: {"value": {"format": "json", "schema": {"fields": fields}}}}},
            "sinks": {"any": {"from": TOPIC, "delta": {"path": "unused"}}},
        }
    )


def _records(rows: DataFrame) -> DataFrame:
    """As Spark's Kafka source has them."""
    names = [name for name in rows.columns if name != KAFKA]
    return rows.select(
        F.lit(None).cast("binary").alias("key"),
        F.to_json(F.struct(*names)).cast("binary").alias("value"),
        *(F.col(KAFKA)[name].alias(name) for name in ("topic", "partition", "offset", "timestamp")),
        F.lit(0).alias("timestampType"),
        F.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
    )
