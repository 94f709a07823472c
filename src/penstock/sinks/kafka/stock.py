"""Kafka, at least once: Spark's own sink. A batch that is run again is written again, and says so."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.record import OUTGOING, OUTGOING_AT, OUTGOING_ERROR, Batch, Known
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.files.writer import Judged
from penstock.sinks.kafka.encoding import (
    SCHEMA,
    Encode,
    EncodeBatches,
    Encoding,
    Picked,
    look_at_topics,
    look_where_records_go,
    rejected,
)
from penstock.sinks.kafka.worker import packed
from penstock.spark.write_errors import configured
from penstock.spec.types import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark has two writers to Kafka. The one that streams use is part of the engine's own accounting, so what passes it is
# counted on its way. A batch gets the other one by default, because of this list.
_IN_THE_ENGINE = {"spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text"}

_AT_ONCE = 16_384  # bytes that Java's client sends to a partition at once, by default
_TYPES = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True)
class StockKafkaSink:
    name: str
    config: dict[str, str]
    options: dict[str, str]  # Spark's names of the same settings
    encoding: Encoding
    guarantee: str = "at-least-once: Spark's own Kafka sink; a batch that is run again is written again"

    def prepare(self, _batch: Batch, _known: Known, _accepted: frozenset[str]) -> None:
        look_at_topics(self.config, self.encoding)

    def suits(self, incoming: Incoming) -> None:
        self.encoding.prepare(incoming.view, incoming.columns)

    def write(self, _batch: Batch, rows: DataFrame, *, replay: bool) -> Written:  # noqa: ARG002  it cannot tell
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        look_where_records_go(self.config, self.encoding)
        failed = F.col(OUTGOING_ERROR).isNotNull()
        why = F.struct(*OUTGOING_AT, F.col(OUTGOING_ERROR)["class"], F.col(OUTGOING_ERROR)["reason"])
        encoded = self.encoding.whole(rows)
        if encoded is None:
            encoded = self.encoding.rows(rows).mapInArrow(EncodeBatches(self.encoding.encode), SCHEMA)
        seen = Observation()
        counted = encoded.observe(
            seen, F.count_if(~failed).alias("rows"), F.collect_list(F.when(failed, why)).alias("why")
        )
        write(counted.where(~failed).select(*OUTGOING), self.sending)
        found = seen.get
        return Written(found["rows"], rejected=rejected(self.name, found["why"]))

    @property
    def sending(self) -> dict[str, str]:
        """The options, so that no more is sent at once than the topic takes: Java's client would not end trying."""
        if self.encoding.largest is None or self.encoding.largest >= _AT_ONCE:
            return self.options
        return {"kafka.batch.size": str(self.encoding.largest), **self.options}

    def one_pass(self, struct: Struct) -> OnePassStock | str:
        """This sink's part of a batch that only comes back to the engine to be sent, or why it cannot have one."""
        picked = self.encoding.picked(struct)
        return picked if isinstance(picked, str) else OnePassStock(self, picked)

    def positions(self, _column: str) -> dict[tuple[str, int], list[int]] | None:
        return None

    def rows_by_batch(self, _query: str) -> dict[int, int] | None:
        return None

    def holds(self, _batch: Batch) -> bool:
        return False  # it cannot tell, and what it holds is written again in batches of whatever size


def write(records: DataFrame, options: dict[str, str]) -> None:
    with configured(records.sparkSession, _IN_THE_ENGINE):
        records.write.format("kafka").options(**options).mode("append").save()


@dataclass(frozen=True)
class MakeRecords:
    """In the worker: decoded rows become records. In the driver: Spark's sink is given them. Pickles."""

    encode: Encode
    picked: Picked
    options: dict[str, str]

    @property
    def columns(self) -> dict[str, str]:
        return OUTGOING

    @property
    def types(self) -> pa.Schema:
        return _TYPES

    def rows(self, parts: Iterator[Judged], origins: Any) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        rows, refused = 0, []
        for part in parts:
            parcel, _ = packed(self.encode, self.picked(part.good, origins))
            rows += parcel.records.num_rows
            refused += parcel.refused
            yield parcel.records.select(list(OUTGOING))
        return {"rows": rows, "rejected": refused}

    def write(self, rows: DataFrame) -> None:
        write(rows, self.options)


@dataclass(frozen=True)
class OnePassStock:
    """The sink's part of the driver in `batch.fused`."""

    does: ClassVar[str] = "encode"
    posts: ClassVar[str] = ""
    publishes: ClassVar[bool] = False  # readers see records one by one, as they are sent

    sink: StockKafkaSink
    picked: Picked

    @property
    def name(self) -> str:
        return self.sink.name

    def begin(self, _batch: Batch, _rows: DataFrame, *, replay: bool) -> MakeRecords:  # noqa: ARG002  it cannot tell
        look_where_records_go(self.sink.config, self.sink.encoding)
        return MakeRecords(self.sink.encoding.encode_picked, self.picked, self.sink.sending)

    def end(self, _batch: Batch, outcomes: list[dict[str, Any]], _handed: int) -> Written:
        refused = (tuple(each.values()) for outcome in outcomes for each in outcome["rejected"])
        return Written(sum(outcome["rows"] for outcome in outcomes), rejected=rejected(self.name, refused))

    def discard(self, _outcomes: list[dict[str, Any]]) -> None:
        """What was sent stays."""
