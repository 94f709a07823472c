"""The dead-letter budget of a pipeline that has none in its spec: where nearly all of its first records die, they are
not to blame. Format, schema or contract is wrong, and everything that follows would die as well.

Judged once: when the batch comes that brings a checkpoint to its first 1,000 records. As many of its first records as
are missing, from each partition its share, are read, decoded and judged by themselves, before the batch is. So nothing
of the batch is anywhere if the pipeline stops, and the batch itself goes the way it would go: the records of a new
pipeline are counted ahead once, and no others. Fewer than 1,000 records never stop it.

What was read is in the ledger: a start judges again what an earlier one stopped at, and nothing that it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.batch.budget import named, reasons
from penstock.batch.counts import Counted, Tally
from penstock.batch.source_view import Inlet
from penstock.checkpoint.ledger import Entry
from penstock.errors import DeadLetterBudget
from penstock.record import Batch, OffsetRange
from penstock.source import kafka as source
from penstock.spec.model import FIRST_RECORDS, NEARLY_ALL, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class FirstRecords:
    """What batches have read that ended, until it is enough."""

    pipeline: Pipeline
    read: int = 0
    dead: int = 0
    following: int = 0  # the first batch that has no ledger entry

    @classmethod
    def since(cls, pipeline: Pipeline, entries: Iterable[Entry]) -> FirstRecords | None:
        """None: they have been read. `entries`: all of the ledger, the oldest first."""
        found = cls(pipeline)
        for entry in entries:
            if entry.batch > found.following:  # what came before is not known any more
                return None
            if found.took(entry):
                return None
        return found

    def took(self, entry: Entry) -> bool:
        """Whether that was enough. An entry may be that of a batch which runs again: its records count once."""
        if entry.batch >= self.following:
            self.read, self.dead, self.following = self.read + entry.read, self.dead + entry.dead, entry.batch + 1
        return self.read >= FIRST_RECORDS

    def check(self, spark: SparkSession, batch: Batch, inlets: Sequence[Inlet]) -> None:
        """Raises DeadLetterBudget, with the reasons. Nothing is written, neither by this nor of the batch."""
        if batch.id < self.following:  # it is in the ledger: sinks hold it
            return
        for ranges in portions(batch.ranges, FIRST_RECORDS - self.read):
            raw = source.bounded(spark, self.pipeline, ranges, whole=False)
            counted = {inlet.view: _counted(inlet, raw) for inlet in inlets}
            read = self.read + sum(found.counts.read for found in counted.values())
            dead = self.dead + sum(found.counts.dead for found in counted.values())
            if read >= FIRST_RECORDS:
                if dead >= NEARLY_ALL * read:
                    raise _stop(batch.id, read, dead, reasons(raw, inlets, counted) if dead > self.dead else [])
                return


def portions(ranges: Sequence[OffsetRange], wanted: int) -> Iterator[list[OffsetRange]]:
    """The beginnings of these ranges: as many offsets as records are wanted, then twice as many, up to all of them. Not
    every offset is a record. None where there are too few."""
    there = sum(map(len, ranges))
    while there >= wanted:
        share = min(1.0, wanted / there)
        yield [OffsetRange(r.topic, r.partition, r.start, r.start + _up(len(r) * share)) for r in ranges if len(r)]
        if share == 1.0:
            return
        wanted = min(there, 2 * wanted)


def _up(number: float) -> int:
    return -int(-number // 1)


def _counted(inlet: Inlet, raw: DataFrame) -> Counted:
    tally = Tally(inlet.contract, inlet.judged(raw), shared=True, locate=True)
    try:
        return tally.result()
    finally:
        tally.release()


def _stop(batch: int, read: int, dead: int, why: list[dict[str, object]]) -> DeadLetterBudget:
    return DeadLetterBudget(
        f"{dead:,} of the first {read:,} records are dead ({dead / read:.1%}): nearly all of them",
        cause="\n".join([*named(why), "where nearly all die, the format, the schema or the contract is wrong"]),
        next_command=f"nothing of batch {batch} is written: fix the spec or the producer, then: penstock run FILE; "
        f"or, if they are to die: penstock run FILE --accept {DeadLetterBudget.code} (in a backfill `budget: none` "
        "under `dead_letters:`)",
        facts={
            "batch": batch,
            "read": read,
            "dead": dead,
            "share": round(dead / read, 6),
            "budget": NEARLY_ALL,
            "batches": batch + 1,
            "reasons": why,
        },
    )
