"""Kafka, at least once: Spark's own sink. A batch that is run again is written again, and says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.record import OUTGOING, OUTGOING_AT, OUTGOING_ERROR, Batch, Known
from penstock.sink.contract import Incoming, Written
from penstock.sink.kafka.encoding import SCHEMA, EncodeBatches, Encoding, look_at_topics, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        failed = F.col(OUTGOING_ERROR).isNotNull()
        why = F.struct(*OUTGOING_AT, F.col(OUTGOING_ERROR)["class"], F.col(OUTGOING_ERROR)["reason"])
        encoded = self.encoding.rows(rows).mapInArrow(EncodeBatches(self.encoding.encode), SCHEMA)
        # Kept, because Spark's Kafka writer runs outside the engine's own accounting: nothing is observed on its way.
        kept = encoded.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            found = kept.agg(
                F.count_if(~failed).alias("rows"), F.collect_list(F.when(failed, why)).alias("why")
            ).first()
            assert found is not None
            ready = kept.where(~failed).select(*OUTGOING)
            ready.write.format("kafka").options(**self.options, includeHeaders="true").save()
        finally:
            kept.unpersist()
        return Written(found["rows"], rejected=rejected(self.name, found["why"]))

    def positions(self, _column: str) -> dict[tuple[str, int], list[int]] | None:
        return None

    def rows_by_batch(self, _query: str) -> dict[int, int] | None:
        return None

    def holds(self, _batch: Batch) -> bool:
        return False  # it cannot tell, and what it holds is written again in batches of whatever size
