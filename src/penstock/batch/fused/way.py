"""The short way of a batch: decode, rules and the write in one pass inside the Python worker.

For pipelines with no SQL between a source view and one sink that can take it, but for a `where` that needs no engine,
rows need not go back to it. Files are then published at once by the driver; to Kafka each worker commits what it sent,
and dead letters with it (`letters`), or hands what it encoded to the one task that sends (by batch: `told`) or to the
engine (at least once: `engine_rows`). Counts, dead letters and what the sink holds are the same as by the other way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.batch import fingerprint
from penstock.batch.counts import Counted
from penstock.batch.fused import engine_rows, task_report
from penstock.batch.fused.engine_rows import Makes
from penstock.batch.fused.files import Files
from penstock.batch.fused.letters import Origins, letters, not_plain
from penstock.batch.fused.task_report import Gathered, Packs
from penstock.batch.fused.worker import Judge, OnePass, Out
from penstock.batch.source_view import Inlet
from penstock.contract.native import Condition, condition
from penstock.decode.arrow.columns import arrow_type
from penstock.record import DELETED, KAFKA, Batch
from penstock.sinks.contract import Incoming, Sink, Written
from penstock.sinks.files.writer import Counting, TakesFiles
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.kafka.stock import StockKafkaSink
from penstock.sinks.postgres import PostgresSink
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.batch.output import Outlet

_Told = Mapping[str, Any]


class Finish(Protocol):
    """The sink's part of the driver."""

    @property
    def name(self) -> str: ...

    @property
    def does(self) -> str:
        """What its part of the worker does, in a word or two."""

    @property
    def posts(self) -> str:
        """The transaction in which it writes dead letters together with the rows, in words; it is then handed the raw
        records too. Empty: dead letters are for others to write."""

    @property
    def publishes(self) -> bool:
        """Whether nothing is visible before `end`; else each worker commits what it wrote."""

    def begin(self, batch: Batch, rows: DataFrame, /, *, replay: bool) -> Out | Packs | Makes: ...

    def end(self, batch: Batch, outcomes: list[dict[str, Any]], handed: int, /) -> Written: ...

    def discard(self, outcomes: list[dict[str, Any]], /) -> None:
        """Instead of `end`, where nothing is visible yet and the batch must not become so; with no outcomes, where
        workers have failed."""


@dataclass(frozen=True)
class Shortcut:
    """A pipeline that qualifies: its one inlet and its one sink."""

    inlet: Inlet
    judge: Judge
    finish: Finish
    where: Condition | None = None  # of the sink

    def run(
        self, raw: DataFrame, batch: Batch, *, replay: bool, locate: bool, afford: Callable[[Counted], None] | None
    ) -> tuple[Counted, Written, int, int]:
        """What was counted, what the sink says, how many rows it was handed, and their fingerprint.

        `afford` is asked before anything is visible. Where workers commit by themselves the batch is counted first,
        which reads it twice.
        """
        if afford is not None and not self.finish.publishes:
            afford(self._counted(self._passed(raw, Counting(), locate=locate), locate=locate))
            afford = None
        out = self.finish.begin(batch, raw, replay=replay)
        try:
            found = self._passed(raw, out, locate=locate)
        except BaseException:
            self.finish.discard([])
            raise
        counted = self._counted(found, locate=locate)
        outcomes = [json.loads(row["outcome"]) for row in found if row["outcome"]]
        if afford is not None:
            try:
                afford(counted)
            except BaseException:
                self.finish.discard(outcomes)  # else the files stay in the table's directory, each time it is tried
                raise
        handed = sum(row["handed"] for row in found)
        written = self.finish.end(batch, outcomes, handed)
        which = sum(row["fingerprint"] for row in found)
        which -= sum(fingerprint.of_offset(r.topic, r.partition, r.offset) for r in written.rejected)
        return counted, written, handed, which

    def _passed(self, raw: DataFrame, out: Out | Packs | Makes, *, locate: bool) -> Sequence[_Told]:
        """What each task tells, by the columns of `told.RESULT`."""
        decode, deadly = self.inlet.decode, frozenset(self.inlet.contract.deadly)
        sent, worker = decode.handed(raw, with_raw=bool(self.finish.posts))
        one_pass = OnePass(worker, self.judge, deadly, self.where, Origins(decode.topic), out, locate)
        if isinstance(out, Makes):
            return engine_rows.written(out, sent.mapInArrow(one_pass, engine_rows.columns(out)))
        done = sent.mapInArrow(one_pass, task_report.RESULT)
        if isinstance(out, Packs):
            done = done.repartition(1).mapInArrow(Gathered(out.take), task_report.RESULT)
        return [row.asDict(recursive=True) for row in done.collect()]

    def _counted(self, found: Sequence[_Told], *, locate: bool) -> Counted:
        verdicts: Counter[str] = Counter()
        for row in found:
            verdicts.update(row["verdicts"])
        read, passed = (sum(row[name] for row in found) for name in ("read", "passed"))
        at = [(p["topic"], p["partition"], p["offset"]) for row in found for p in row["dead"]] if locate else None
        return Counted(self.inlet.contract.counted(read, passed, verdicts), at)


def shortcut(pipeline: Pipeline, inlets: list[Inlet], outlets: list[Outlet], incoming: Incoming) -> Shortcut | str:
    """The short way, or why this pipeline cannot take it."""
    if len(outlets) != 1 or len(inlets) != 1:
        return "it has several sinks or several source views"
    (inlet,), (outlet,) = inlets, outlets
    if outlet.view != inlet.view:
        return "SQL lies between the source view and the sink"
    struct = inlet.decode.value.struct
    where = None if outlet.where is None else condition(outlet.where, struct)
    if outlet.where is not None and where is None:
        return f"`where` of sink '{outlet.sink.name}' needs the engine"
    judge = native_judge(pipeline, inlet)
    if isinstance(judge, str):
        return judge
    stops = any(rule.otherwise == "stop" for rule in inlet.contract.rules)
    if stops or inlet.contract.stop_unreadable:
        return "a record may stop the pipeline, which the engine reports"
    if inlet.decode.key is not None or inlet.decode.read.kafka_columns:
        return f"its rows have more than fields and `{KAFKA}`"
    finish = _finish(outlet.sink, pipeline, inlet, incoming)
    return finish if isinstance(finish, str) else Shortcut(inlet, judge, finish, where)


def native_judge(pipeline: Pipeline, inlet: Inlet) -> Judge | str:
    """The contract of a view for a Python worker, or why only the engine can judge it."""
    rules = pipeline.contract.get(inlet.view, [])
    together = [rule.name for rule in rules if rule.unique]
    if together:
        return f"rule '{together[0]}' compares the records of a batch"
    native = [(rule.name, condition(rule.condition or "", inlet.decode.value.struct)) for rule in rules]
    slow = [name for name, made in native if made is None]
    if slow:
        return f"rule '{slow[0]}' needs the engine"
    return Judge(tuple((name, made) for name, made in native if made), inlet.contract.drop_tombstones)


def _finish(sink: Sink, pipeline: Pipeline, inlet: Inlet, incoming: Incoming) -> Finish | str:
    struct = inlet.decode.value.struct
    if isinstance(sink, KafkaSink):
        if pipeline.dead_letters.kafka and (rule := not_plain(inlet)):
            return f"rule '{rule}' speaks of a field whose value only the engine can put into words"
        return sink.one_pass(struct, letters(pipeline, inlet))
    if isinstance(sink, StockKafkaSink):
        return sink.one_pass(struct)
    if isinstance(sink, PostgresSink):
        return sink.one_pass(incoming)
    if not isinstance(sink, TakesFiles):
        return "its sink writes through the engine"
    if why := sink.takes_files(incoming):
        return why
    fields = [pa.field(member.name, arrow_type(member.type)) for member in struct.members]
    origin = pa.struct(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    if DELETED in incoming.columns.names:
        fields.append(pa.field(DELETED, pa.bool_()))
    columns = pa.schema([*fields, pa.field(KAFKA, origin)])
    if columns.names != incoming.columns.names:
        return f"its columns differ: {', '.join(incoming.columns.names)}"
    return Files(sink, columns, incoming.columns.json())
