"""The short way of a batch: decode, rules and the write in one pass inside the Python worker.

For pipelines with no SQL between a source view and one sink that can take it, rows need not go back to the engine.
Files are then published at once by the driver; to Kafka each worker commits what it sent, and dead letters with it
(`posted`). What is counted, what dies and what the sink holds is the same as by the other way.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.ledger import ViewCount
from penstock.decode.columns import arrow_type
from penstock.decode.worker import DecodeBatches
from penstock.errors import SinkFailed
from penstock.record import DELETED, ERROR, KAFKA, NULL_VALUE, Batch
from penstock.runtime import fingerprint
from penstock.runtime.inlet import Inlet
from penstock.runtime.posted import Origins, letters, not_plain
from penstock.runtime.tally import Counted
from penstock.sink.contract import Incoming, Sink, Written
from penstock.sink.kafka.exactly_once import KafkaSink
from penstock.sink.native import FileWriter, Judged, NewFile, TakesFiles
from penstock.sink.postgres import PostgresSink
from penstock.spec.model import Pipeline
from penstock.transform.contract import DECODE, TOMBSTONE
from penstock.transform.native import Condition, condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from penstock.runtime.outlet import Outlet

_RESULT = (
    "read bigint, passed bigint, verdicts map<string,bigint>, fingerprint bigint, outcome string, "
    "dead array<struct<topic:string,partition:int,offset:bigint>>"
)
_RESULT_TYPE = pa.schema(
    [
        ("read", pa.int64()),
        ("passed", pa.int64()),
        ("verdicts", pa.map_(pa.string(), pa.int64())),
        ("fingerprint", pa.int64()),
        ("outcome", pa.string()),  # JSON: what the sink's part of the worker says
        (
            "dead",
            pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])),
        ),
    ]
)


@dataclass(frozen=True)
class Judge:
    """The contract over decoded columns: the verdict per row, as `transform.contract` gives it."""

    rules: tuple[tuple[str, Condition], ...]
    drop_tombstones: bool

    def __call__(self, batch: pa.RecordBatch) -> pa.Array | None:
        """Verdicts, null where a record passes; None when all of them pass."""
        error = batch.column(ERROR)
        failed = error.null_count < len(error)
        verdict = pa.nulls(len(error), pa.string())
        if failed:
            there = error.is_valid()
            verdict = pc.if_else(there, DECODE, verdict)
            if self.drop_tombstones:
                tombstone = pc.fill_null(pc.equal(pc.struct_field(error, "class"), NULL_VALUE), False)
                verdict = pc.if_else(tombstone, TOMBSTONE, verdict)
        open_ = pc.invert(error.is_valid()) if failed else None
        if DELETED in batch.schema.names:  # a delete has no fields that a rule could speak of
            kept = pc.invert(batch.column(DELETED))
            open_ = kept if open_ is None else pc.and_(open_, kept)
        columns = {name: batch.column(name) for name in batch.schema.names}
        broken_any = failed
        for name, holds in self.rules:
            broken = pc.invert(pc.fill_null(holds(columns), False))
            if open_ is not None:
                broken = pc.and_(broken, open_)
            if pc.any(broken).as_py():
                broken_any = True
                verdict = pc.if_else(pc.and_(broken, verdict.is_null()), name, verdict)
        return verdict if broken_any else None


class Out(Protocol):
    """The sink's part of the worker. Pickles."""

    def __call__(self, parts: Iterator[Judged], origins: Origins, /) -> dict[str, Any] | None:
        """Take every batch, to its end; say what became of the records that passed, in JSON's types."""


@dataclass(frozen=True)
class Counting:
    """For a replay of what is written already: nothing is done with the records."""

    def __call__(self, parts: Iterator[Judged], _origins: Origins) -> None:
        for _ in parts:
            pass


@dataclass(frozen=True)
class IntoFile:
    directory: Path
    columns: pa.Schema
    layout: str

    def __call__(self, parts: Iterator[Judged], origins: Origins) -> dict[str, Any] | None:
        writer = FileWriter(self.directory, self.columns, self.layout)
        for part in parts:
            if part.good.num_rows:
                writer.write(self._row(part.good, origins))
        file = writer.close()
        return asdict(file) if file else None

    def _row(self, batch: pa.RecordBatch, origins: Origins) -> pa.RecordBatch:
        """The columns of the view: the decoded fields, and where the record came from."""
        parts = []
        for field in self.columns:
            if field.name == KAFKA:
                inside = [origins.column(batch, member.name).cast(member.type) for member in field.type]
                parts.append(pa.StructArray.from_arrays(inside, fields=list(field.type)))
            else:
                column = batch.column(field.name)
                parts.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(parts, schema=self.columns)


@dataclass(frozen=True)
class OnePass:
    """Called by Spark with the raw batches of one task. Yields one row: what was counted, and what the sink did."""

    decode: DecodeBatches
    judge: Judge
    deadly: frozenset[str]
    origins: Origins
    out: Out
    locate: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read, passed, which = 0, 0, 0
        verdicts: Counter[str] = Counter()
        dead: list[dict[str, Any]] = []

        def judged() -> Iterator[Judged]:
            nonlocal read, passed, which
            for batch in self.decode(batches):
                read += batch.num_rows
                verdict = self.judge(batch)
                part = Judged(batch)
                if verdict is not None:
                    verdicts.update(v for v in verdict.to_pylist() if v is not None)
                    died = pc.is_in(verdict, pa.array(list(self.deadly), pa.string()))
                    part = Judged(batch.filter(verdict.is_null()), batch.filter(died), verdict.filter(died))
                    if self.locate:
                        dead.extend(self.origins.places(part.dead))
                passed += part.good.num_rows
                which += self.origins.fingerprint(part.good)
                yield part

        outcome = self.out(judged(), self.origins)
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "read": read,
                    "passed": passed,
                    "verdicts": list(verdicts.items()),
                    "fingerprint": which,
                    "outcome": None if outcome is None else json.dumps(outcome),
                    "dead": dead,
                }
            ],
            schema=_RESULT_TYPE,
        )


class Finish(Protocol):
    """The sink's part of the driver."""

    @property
    def name(self) -> str: ...

    @property
    def posts(self) -> bool:
        """Whether dead letters are written by it, together with the rows; it is then handed the raw records too."""

    @property
    def publishes(self) -> bool:
        """Whether nothing is visible before `end`; else each worker commits what it wrote."""

    def begin(self, batch: Batch, rows: DataFrame, /, *, replay: bool) -> Out: ...

    def end(self, batch: Batch, outcomes: list[dict[str, Any]], passed: int, /) -> Written: ...

    def discard(self, outcomes: list[dict[str, Any]], /) -> None:
        """Instead of `end`, where nothing is visible yet and the batch must not become so; with no outcomes, where
        workers have failed."""


@dataclass
class Files:
    """Append sinks that publish files: see `sink.native`."""

    sink: TakesFiles
    columns: pa.Schema
    layout: str
    _staging: Path = Path()
    _held: int | None = None

    @property
    def name(self) -> str:
        return self.sink.name

    @property
    def posts(self) -> bool:
        return False

    @property
    def publishes(self) -> bool:
        return True

    def begin(self, batch: Batch, _rows: DataFrame, *, replay: bool) -> Out:
        self._held = self.sink.held(batch) if replay else None
        self._staging = self.sink.staging(batch)
        return Counting() if self._held is not None else IntoFile(self._staging, self.columns, self.layout)

    def end(self, batch: Batch, outcomes: list[dict[str, Any]], passed: int) -> Written:
        if self._held is not None:
            return Written(self._held)
        files = [NewFile(**outcome) for outcome in outcomes]
        rows = sum(file.rows for file in files)
        if rows != passed:
            raise SinkFailed(f"the files of batch {batch.id} have {rows} rows, not {passed}")
        return self.sink.publish(batch, self._staging, files, self.columns)

    def discard(self, outcomes: list[dict[str, Any]]) -> None:
        for outcome in outcomes:
            (self._staging / NewFile(**outcome).name).unlink(missing_ok=True)


@dataclass(frozen=True)
class Shortcut:
    """A pipeline that qualifies: its one inlet and its one sink."""

    inlet: Inlet
    judge: Judge
    finish: Finish

    def run(
        self, raw: DataFrame, batch: Batch, *, replay: bool, locate: bool, afford: Callable[[Counted], None] | None
    ) -> tuple[Counted, Written, int]:
        """What was counted, what the sink says, and the fingerprint of what it was handed.

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
        written = self.finish.end(batch, outcomes, counted.counts.passed)
        which = sum(row["fingerprint"] for row in found)
        which -= sum(fingerprint.of_offset(r.topic, r.partition, r.offset) for r in written.rejected)
        return counted, written, which

    def _passed(self, raw: DataFrame, out: Out, *, locate: bool) -> list[Row]:
        """One row per task, in the columns of `_RESULT`."""
        decode, deadly = self.inlet.decode, frozenset(self.inlet.contract.deadly)
        sent, worker = decode.handed(raw, with_raw=self.finish.posts)
        return sent.mapInArrow(
            OnePass(worker, self.judge, deadly, Origins(decode.topic), out, locate), _RESULT
        ).collect()

    def _counted(self, found: list[Row], *, locate: bool) -> Counted:
        contract = self.inlet.contract
        verdicts: Counter[str] = Counter()
        for row in found:
            verdicts.update(row["verdicts"])
        dead = sum(verdicts[name] for name in contract.deadly)
        dropped = {name: verdicts[name] for name in contract.dropping}
        read, passed = (sum(row[name] for row in found) for name in ("read", "passed"))
        at = [(p["topic"], p["partition"], p["offset"]) for row in found for p in row["dead"]] if locate else None
        died = {rule: verdicts[rule] for rule in contract.dying}
        return Counted(ViewCount(read, passed, dead, dropped, died=died), at)


def shortcut(pipeline: Pipeline, inlets: list[Inlet], outlets: list[Outlet], incoming: Incoming) -> Shortcut | str:
    """The short way, or why this pipeline cannot take it."""
    if len(outlets) != 1 or len(inlets) != 1:
        return "it has several sinks or several source views"
    (inlet,), (outlet,) = inlets, outlets
    if outlet.view != inlet.view or outlet.where is not None:
        return "SQL lies between the source view and the sink"
    struct = inlet.decode.value.struct
    rules = pipeline.contract.get(inlet.view, [])
    together = [rule.name for rule in rules if rule.unique]
    if together:
        return f"rule '{together[0]}' compares the records of a batch"
    native = [(rule.name, condition(rule.condition or "", struct)) for rule in rules]
    slow = [name for name, made in native if made is None]
    if slow:
        return f"rule '{slow[0]}' needs the engine"
    if any(rule.otherwise == "stop" for rule in rules) or inlet.contract.stop_unreadable:
        return "a record may stop the pipeline, which the engine reports"
    if inlet.decode.key is not None or inlet.decode.read.kafka_columns:
        return f"its rows have more than fields and `{KAFKA}`"
    judge = Judge(tuple((name, made) for name, made in native if made), inlet.contract.drop_tombstones)
    return _into(outlet.sink, pipeline, inlet, judge, incoming)


def _into(sink: Sink, pipeline: Pipeline, inlet: Inlet, judge: Judge, incoming: Incoming) -> Shortcut | str:
    struct = inlet.decode.value.struct
    if isinstance(sink, KafkaSink):
        if pipeline.dead_letters.kafka and (rule := not_plain(inlet)):
            return f"rule '{rule}' speaks of a field whose value only the engine can put into words"
        finish = sink.one_pass(struct, letters(pipeline, inlet))
        return finish if isinstance(finish, str) else Shortcut(inlet, judge, finish)
    if isinstance(sink, PostgresSink):
        loads = sink.one_pass(incoming)
        return loads if isinstance(loads, str) else Shortcut(inlet, judge, loads)
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
    return Shortcut(inlet, judge, Files(sink, columns, incoming.columns.json()))
