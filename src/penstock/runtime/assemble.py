"""The path of a record, top to bottom: source -> decode -> contract -> transform -> sinks, dead letters, ledger.

One batch is `Assembly.process`. Its steps, and why a crash between any two of them loses and repeats nothing:

    1. decode and judge every record; nothing is written
    2. sinks, each whole and once: a replay finds the batch already there
    3. dead letters, whole and once: a replay finds them already there
    4. the balance: read = passed + dead + dropped, sinks and dead letters hold what was handed to them
    5. the ledger entry, synced
    6. Spark commits the batch; until then it runs the same offsets under the same batch id again

Kafka is read once per batch: the counts of step 4 are taken while the sink writes. Only a batch that has dead letters
is read a second time, to fetch their bytes; where the dead are few, the others are left out before they are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING

from penstock import record
from penstock.checkpoint.ledger import Entry, Ledger, SinkCount, TopicCount
from penstock.checkpoint.log import SparkLog
from penstock.decode.stage import decode
from penstock.errors import BatchUnbalanced
from penstock.record import Batch
from penstock.route import dead_letter
from penstock.runtime import failpoint
from penstock.runtime.tally import Counted, Tally
from penstock.spec.model import Pipeline, Topic
from penstock.spec.types import Struct
from penstock.transform.contract import Contract
from penstock.transform.sql import row_for_row, views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.route.dead_letter import DeadLetters
    from penstock.sink.contract import Sink


_LOCATED = 1_000_000  # offsets: up to this size the positions of a batch's dead records are collected
_FEW = 20_000  # dead records that are still picked out by position


@dataclass(frozen=True)
class Inlet:
    """One topic on its way to its view."""

    topic: str
    view: str
    settings: Topic
    struct: Struct
    contract: Contract
    alone: bool  # the only topic: no need to look at each record's topic

    def judged(self, raw: DataFrame, *, with_raw: bool = False) -> DataFrame:
        mine = raw if self.alone else raw.where(raw["topic"] == self.topic)
        return self.contract.judged(decode(mine, self.topic, self.settings, self.struct, with_raw=with_raw))


def passed(judged: DataFrame) -> DataFrame:
    return judged.where(judged[record.RULE].isNull()).drop(record.ERROR, record.RULE)


def all_views(pipeline: Pipeline, inlets: Iterable[Inlet], raw: DataFrame) -> dict[str, DataFrame]:
    """Every view of the spec over some raw records, without counting: to try the spec out, and to recount."""
    return views({inlet.view: passed(inlet.judged(raw)) for inlet in inlets}, pipeline.transform)


@dataclass
class Assembly:
    """Everything a batch meets. Made once per start of the query; `process` is called by Spark, batch by batch."""

    pipeline: Pipeline
    inlets: list[Inlet]
    sinks: dict[str, Sink]
    dead_letters: DeadLetters
    log: SparkLog
    ledger: Ledger
    first: bool = True  # only the first batch after a start can have been written before

    def process(self, raw: DataFrame, batch_id: int) -> Entry:
        batch = Batch(self.pipeline.name, self.log.query_id() or "", batch_id)
        ranges = self.log.ranges(batch_id)
        shared = len(self.inlets) > 1 or len(self.sinks) > 1
        locate = sum(len(r) for r in ranges) <= _LOCATED  # or a batch of dead records alone could fill the driver
        # 1. decode and judge
        tallies = [Tally(i.contract, i.judged(raw), shared=shared, locate=locate) for i in self.inlets]
        sources = {inlet.view: passed(tally.rows) for inlet, tally in zip(self.inlets, tallies, strict=True)}
        made = views(sources, self.pipeline.transform)
        try:
            # 2. sinks
            failpoint.reach("before-sinks", batch_id, raw)
            handed = {
                name: self._into(sink, batch, made[self.pipeline.sinks[name].from_])
                for name, sink in self.sinks.items()
            }
            counted = {inlet.topic: tally.result() for inlet, tally in zip(self.inlets, tallies, strict=True)}
            failpoint.reach("after-sinks", batch_id, raw)
        finally:
            for tally in tallies:
                tally.release()
        # 3. dead letters
        self._bury(batch, raw, counted)
        failpoint.reach("after-dead-letters", batch_id, raw)
        # 4. the balance
        counts = {topic: found.counts for topic, found in counted.items()}
        entry = Entry(
            pipeline=batch.pipeline,
            query=batch.query,
            batch=batch_id,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            start=self.pipeline.source.start,
            ranges=ranges,
            topics=counts,
            sinks={name: self._sink_count(name, rows, made, sources, counts) for name, rows in handed.items()},
        )
        _balance(entry)
        # 5. the ledger
        self.ledger.append(entry)
        failpoint.reach("after-ledger", batch_id, raw)
        self.first = False
        return entry

    def _into(self, sink: Sink, batch: Batch, rows: DataFrame) -> int:
        """Hand the rows to a sink, or in a replay only count them; either way every row is seen once."""
        counted, handed = Tally.of_rows(failpoint.midway("during-sinks", batch.id, rows))
        held = sink.written(batch) if self.first else None
        if held is None:
            held = sink.write(batch, counted)
        else:
            counted.write.format("noop").mode("overwrite").save()
        if held != handed():
            raise _unbalanced(batch.id, f"sink '{sink.name}' got {handed()} rows and holds {held}")
        return held

    def _bury(self, batch: Batch, raw: DataFrame, counted: dict[str, Counted]) -> None:
        dead = sum(found.counts.dead for found in counted.values())
        if not dead:
            return
        held = self.dead_letters.written(batch) if self.first else None
        if held is None:
            parts = [self._dead_rows(i, raw, counted[i.topic]) for i in self.inlets if counted[i.topic].counts.dead]
            held = self.dead_letters.write(batch, reduce(lambda a, b: a.unionByName(b), parts))
        if held != dead:
            raise _unbalanced(batch.id, f"{dead} records died, {held} dead letters were written")

    @staticmethod
    def _dead_rows(inlet: Inlet, raw: DataFrame, found: Counted) -> DataFrame:
        few = found.dead_at if found.dead_at and len(found.dead_at) <= _FEW else None
        judged = inlet.judged(_at(raw, few) if few else raw, with_raw=True)
        dead = judged.where(judged[record.RULE].isin(inlet.contract.deadly))
        return dead_letter.as_rows(dead, inlet.contract.reason(dead))

    def _sink_count(
        self,
        name: str,
        rows: int,
        made: dict[str, DataFrame],
        sources: dict[str, DataFrame],
        counts: dict[str, TopicCount],
    ) -> SinkCount:
        view = made[self.pipeline.sinks[name].from_]
        for inlet in self.inlets:
            if row_for_row(view, sources[inlet.view]):
                return SinkCount(rows, counts[inlet.topic].passed - rows)
        return SinkCount(rows, None)


def _at(raw: DataFrame, positions: list[tuple[int, int]]) -> DataFrame:
    by_partition: dict[int, list[int]] = {}
    for partition, offset in positions:
        by_partition.setdefault(partition, []).append(offset)
    here = [(raw["partition"] == p) & raw["offset"].isin(offsets) for p, offsets in by_partition.items()]
    return raw.where(reduce(lambda a, b: a | b, here))


def _balance(entry: Entry) -> None:
    spanned = sum(len(r) for r in entry.ranges)
    if entry.read > spanned:
        raise _unbalanced(entry.batch, f"{entry.read} records were read from {spanned} offsets")
    for topic, count in entry.topics.items():
        if not count.balanced():
            raise _unbalanced(entry.batch, f"topic '{topic}': {count}")
    for name, sink in entry.sinks.items():
        if sink.dropped is not None and sink.dropped < 0:
            raise _unbalanced(entry.batch, f"sink '{name}' got more rows than records passed")


def _unbalanced(batch: int, what: str) -> BatchUnbalanced:
    return BatchUnbalanced(
        f"batch {batch} does not add up: {what}",
        cause="a rule or a step gives another result each time (rand(), current_timestamp()), or this is a defect",
        next_command="penstock verify FILE",
    )
