"""Records on their way to a source view: decode, then the contract."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from penstock import record
from penstock.batch.counts import Counted
from penstock.contract.verdict import Contract
from penstock.deadletters import dead_letter
from penstock.decode.stage import Decode, Wrap
from penstock.record import Failure, Position
from penstock.spec.stateful import AheadRule
from penstock.transform.steps import Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RAW = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)
"""The columns of Kafka's records, as Spark reads them."""

_FEW = 20_000  # dead records that are still picked out by position


@dataclass(frozen=True)
class Inlet:
    view: str
    decode: Decode
    contract: Contract
    alone: bool  # the only view: no need to look at each record's topic

    def at(self, clock_ms: int | None) -> Inlet:
        """As of a moment; None: the inlet of a stream, which has the moment of each of its batches."""
        rules = (rule.at(clock_ms) if isinstance(rule, AheadRule) else rule for rule in self.contract.rules)
        return replace(self, contract=replace(self.contract, rules=tuple(rules)))

    def judged(self, raw: DataFrame, *, with_raw: bool = False, wrapped: Wrap | None = None) -> DataFrame:
        topic = self.decode.topic
        mine = raw if self.alone or topic is None else raw.where(raw["topic"] == topic)
        return self.contract.judged(self.decode.rows(mine, with_raw=with_raw, wrapped=wrapped))

    def dead_rows(self, raw: DataFrame, counted: Counted) -> DataFrame:
        """The dead records with their bytes and reasons. Where they are few, no other record is decoded again."""
        few = counted.dead_at if counted.dead_at and len(counted.dead_at) <= _FEW else None
        if self.contract.compares:  # what is wrong with a record shows only among the others
            few = None
        judged = self.judged(_at(raw, few) if few else raw, with_raw=True)
        dead = judged.where(judged[record.RULE].isin(self.contract.deadly))
        return dead_letter.as_rows(dead, self.contract.reason(dead))

    def picked_rows(
        self, raw: DataFrame, stage: str, failed: dict[Position, Failure], sinks: dict[Position, str]
    ) -> DataFrame:
        """The records of this view that a later stage refused, with their bytes and its reasons. `sinks`: those that
        do not get each of them."""
        from pyspark.sql import functions as F

        at = list(failed)
        judged = self.judged(_at(raw, at) if len(at) <= _FEW else raw, with_raw=True)
        reasons = raw.sparkSession.createDataFrame(
            [(*where, why.error_class, why.reason, sinks.get(where)) for where, why in failed.items()],
            "at_topic string, at_partition int, at_offset bigint, why_class string, why_reason string, "
            "why_sinks string",
        )
        here = F.col(record.KAFKA)
        same = (
            (here["topic"] == F.col("at_topic"))
            & (here["partition"] == F.col("at_partition"))
            & (here["offset"] == F.col("at_offset"))
        )
        dead = judged.join(F.broadcast(reasons), same)
        return dead_letter.as_rows(dead, (F.lit(stage), F.col("why_class"), F.col("why_reason")), F.col("why_sinks"))


def passed(judged: DataFrame) -> DataFrame:
    return judged.where(judged[record.RULE].isNull()).drop(record.ERROR, record.RULE)


def all_views(transform: Transform, inlets: Iterable[Inlet], raw: DataFrame) -> dict[str, DataFrame]:
    """Every view of the spec over some raw records, without counting: to try the spec out, and to recount."""
    return transform.views(source_views(inlets, raw))


def source_views(inlets: Iterable[Inlet], raw: DataFrame) -> dict[str, DataFrame]:
    return {inlet.view: passed(inlet.judged(raw)) for inlet in inlets}


def _at(raw: DataFrame, positions: Iterable[Position]) -> DataFrame:
    return raw.where(is_one_of(positions, raw["topic"], raw["partition"], raw["offset"]))


def is_one_of(positions: Iterable[Position], topic: Column, partition: Column, offset: Column) -> Column:
    """Whether a row comes from one of these records."""
    by_partition: dict[tuple[str, int], list[int]] = {}
    for of, number, at in positions:
        by_partition.setdefault((of, number), []).append(at)
    here = [
        (topic == of) & (partition == number) & offset.isin(offsets) for (of, number), offsets in by_partition.items()
    ]
    return reduce(lambda a, b: a | b, here)
