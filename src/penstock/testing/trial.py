"""One pipeline on one place, driven as the runtime drives it, and what the contract demands of it at every step."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.batch.counts import Handed
from penstock.errors import SinkFailed, first_line
from penstock.record import Batch, Known, OffsetRange, ends_of
from penstock.sinks.contract import Incoming, Sink, Written
from penstock.spark.session import mark_errors
from penstock.testing.mishap import Mishap, passed_on
from penstock.testing.portion import Filtered, Listed, Numbered, Portion
from penstock.testing.subject import PARTITIONS, TOPIC, Subject, is_exactly_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Broken(AssertionError):
    """A sink does not do what the contract demands."""

    def __init__(self, demand: str, found: object) -> None:
        super().__init__(demand, found)
        self.demand, self.found = demand, found
        self.check = ""  # its name, filled in by the check

    def __str__(self) -> str:
        return f"{self.check}: the contract demands: {self.demand}\n  found: {self.found}"


def require(kept: bool, demand: str, found: object = "") -> None:
    if not kept:
        raise Broken(demand, found)


@dataclass
class Trial:
    subject: Subject
    spark: SparkSession
    pipeline: str = field(default_factory=lambda: f"conformance-{uuid.uuid4().hex[:8]}")
    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    _ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    _batches: int = 0

    def __post_init__(self) -> None:
        mark_errors(self.spark)  # whoever tests a sink may have a session that is not of ours

    @property
    def exactly_once(self) -> bool:
        return is_exactly_once(self.subject)

    def numbered(self, each: int = 20) -> Numbered:
        """The next batch."""
        return Numbered(self._number(), self._ranges([each] * PARTITIONS))

    def filtered(self, each: int = 5) -> Filtered:
        return Filtered(self._number(), self._ranges([each] * PARTITIONS))

    def listed(self, columns: str, rows: Sequence[Mapping[str, Any]]) -> Listed:
        return Listed(self._number(), self._ranges([len(rows)]), columns, rows)

    def start(
        self,
        portion: Portion,
        *,
        written: Portion | None = None,
        new: bool = False,
        accepted: Iterable[str] = (),
    ) -> Sink:
        """A sink as after a start of the process. `written`: the newest batch in the ledger; `portion`: the one that
        comes next, which was planned before the start unless the pipeline is `new`."""
        sink = self.subject.sink()
        ends = ends_of(written.ranges) if written else {}
        known = Known() if new else Known(written.number if written else None, portion.number, ends)
        sink.prepare(Batch(self.pipeline, "" if new else self.query, 0), known, frozenset(accepted))
        sink.suits(Incoming("view", portion.frame(self.spark).schema))
        return sink

    def begin(self, portion: Portion) -> Sink:
        """The first start of a new pipeline."""
        try:
            return self.start(portion, new=True)
        except Exception as error:
            raise Broken("`prepare` and `suits` take a place that is empty", repr(error)) from error

    def again(self, portion: Portion, *, written: Portion | None = None) -> Sink:
        """The start after a crash."""
        try:
            return self.start(portion, written=written)
        except Exception as error:
            raise Broken("`prepare` and `suits` take what a crash has left", repr(error)) from error

    def write(self, sink: Sink, portion: Portion, *, replay: bool, mishap: Mishap | None = None) -> Written:
        """Hand a batch to the sink. It must take it, account for every row, and have read each of them once."""
        read = self.spark.sparkContext.accumulator(0)
        rows = portion.frame(self.spark)
        handed = Handed(passed_on(rows, mishap, read))
        doing = f"`write` of batch {portion.number}{' with replay' if replay else ''}"
        try:
            done = sink.write(self.batch(portion), handed.rows, replay=replay)
        except Exception as error:
            raise Broken(f"{doing} succeeds", f"{type(error).__name__}: {first_line(error)}") from error
        count = len(portion.rows)
        once = f"{doing} reads each of its {count} rows exactly once, also those that are there already"
        require(read.value == count, once, f"{read.value} rows were read")
        try:
            observed, _ = handed.result()
        except SinkFailed as error:  # what the runtime counts by has not arrived
            raise Broken(f"{doing} runs the rows it is handed in an action of the engine", error.what) from error
        require(observed == count, once, f"{observed} rows were observed")
        require(
            done.all == count,
            f"{doing} accounts for every row: held, superseded or rejected; {count} were handed",
            done,
        )
        return done

    def write_and_crash(self, sink: Sink, portion: Portion, mishap: Mishap) -> None:
        """Hand a batch of which a task never gets all rows: the write must not say that it succeeded."""
        rows = self.stumbling(portion.frame(self.spark), mishap)
        try:
            done = sink.write(self.batch(portion), rows, replay=True)
        except Exception:
            return
        raise Broken("`write` raises when its rows cannot be read", done)

    def stumbling(self, rows: DataFrame, mishap: Mishap) -> DataFrame:
        """Rows on whose way something happens, where it does not matter how often they are read."""
        return passed_on(rows, mishap, self.spark.sparkContext.accumulator(0))

    def batch(self, portion: Portion) -> Batch:
        return Batch(self.pipeline, self.query, portion.number, portion.ranges)

    def expect(self, *portions: Portion, when: str) -> None:
        """The place holds these batches and nothing else: each row once, or at least once if that is the guarantee."""
        self.expect_rows([row for portion in portions for row in portion.rows], when)

    def expect_rows(self, rows: Iterable[Mapping[str, Any]], when: str) -> None:
        wanted = Counter((row["id"], row["text"], row["n"]) for row in rows)
        held = Counter((row.get("id"), row.get("text"), row.get("n")) for row in self.subject.rows())
        lost, more = wanted - held, held - wanted
        require(not lost, f"{when}, nothing is lost", _some("lost", lost))
        invented = Counter({row: n for row, n in more.items() if row not in wanted})
        require(not invented, f"{when}, nothing is there that was not handed to it", _some("not handed", invented))
        if self.exactly_once:
            require(not more, f"{when}, no row is there twice", _some("repeated", more))

    def seen_whole(self, portion: Portion, when: str) -> int:
        """At any moment a reader sees all of a batch or nothing of it, or of its rows each once at most, if that is
        declared. Returns how many rows it saw."""
        ids = {row["id"] for row in portion.rows}
        found = Counter(row["id"] for row in self.subject.rows() if row.get("id") in ids)
        if self.exactly_once:
            twice = [number for number, times in found.items() if times > 1]
            require(not twice, f"{when}, a reader sees no row twice", f"{len(twice)} ids, for example {twice[:1]}")
        if self.exactly_once and self.subject.traits.visible_by == "batch":
            require(
                len(found) in (0, len(ids)),
                f"{when}, a reader sees all of a batch or nothing of it",
                f"{len(found)} of {len(ids)} rows",
            )
        return found.total()

    def _number(self) -> int:
        self._batches += 1
        return self._batches - 1

    def _ranges(self, counts: list[int]) -> tuple[OffsetRange, ...]:
        starts = list(self._ends)
        for partition, count in enumerate(counts):
            self._ends[partition] += count
        return tuple(
            OffsetRange(TOPIC, partition, starts[partition], starts[partition] + count)
            for partition, count in enumerate(counts)
        )


def _some(what: str, rows: Counter[Any]) -> str:
    return f"{rows.total()} rows {what}, for example (id, text, n) = {next(iter(rows), None)}"
