"""The short way of a batch: decode, rules and the Parquet write in one pass inside the Python worker.

For pipelines with no SQL between a source view and one append sink, rows need not go back to the engine. The driver
then publishes all files at once. What is counted, what dies and what the table holds is the same as by the other way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.checkpoint.ledger import ViewCount
from penstock.decode.columns import arrow_type
from penstock.decode.worker import DecodeBatches
from penstock.errors import SinkFailed
from penstock.record import DELETED, ERROR, KAFKA, NULL_VALUE, ORIGIN, Batch
from penstock.runtime import fingerprint
from penstock.runtime.inlet import Inlet
from penstock.runtime.tally import Counted
from penstock.sink.contract import Incoming, Written
from penstock.sink.native import FileWriter, NewFile, TakesFiles
from penstock.spec.model import Pipeline
from penstock.transform.contract import DECODE, TOMBSTONE
from penstock.transform.native import Condition, condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.runtime.outlet import Outlet

_RESULT = (
    "read bigint, passed bigint, verdicts map<string,bigint>, fingerprint bigint, name string, rows bigint, "
    "size bigint, stats string, dead array<struct<topic:string,partition:int,offset:bigint>>"
)
_RESULT_TYPE = pa.schema(
    [
        ("read", pa.int64()),
        ("passed", pa.int64()),
        ("verdicts", pa.map_(pa.string(), pa.int64())),
        ("fingerprint", pa.int64()),
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("stats", pa.string()),
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


@dataclass(frozen=True)
class OnePass:
    """Called by Spark with the raw batches of one task. Yields one row: what was counted, and the file."""

    decode: DecodeBatches
    judge: Judge
    deadly: frozenset[str]
    topic: str | None
    columns: pa.Schema
    layout: str
    directory: Path | None  # None: the batch is written already, and only counted
    locate: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = FileWriter(self.directory, self.columns, self.layout) if self.directory else None
        read, passed, which = 0, 0, 0
        verdicts: Counter[str] = Counter()
        dead: list[dict[str, Any]] = []
        for batch in self.decode(batches):
            read += batch.num_rows
            verdict = self.judge(batch)
            kept = batch
            if verdict is not None:
                verdicts.update(v for v in verdict.to_pylist() if v is not None)
                if self.locate:
                    dead += self._places(batch.filter(pc.is_in(verdict, pa.array(list(self.deadly), pa.string()))))
                kept = batch.filter(verdict.is_null())
            passed += kept.num_rows
            which += self._fingerprint(kept)
            if writer is not None and kept.num_rows:
                writer.write(self._row(kept))
        file = writer.close() if writer else None
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "read": read,
                    "passed": passed,
                    "verdicts": list(verdicts.items()),
                    "fingerprint": which,
                    "name": file.name if file else None,
                    "rows": file.rows if file else 0,
                    "size": file.size if file else 0,
                    "stats": file.stats if file else None,
                    "dead": dead,
                }
            ],
            schema=_RESULT_TYPE,
        )

    def _row(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the view: the decoded fields, and where the record came from."""
        parts = []
        for field in self.columns:
            if field.name == KAFKA:
                inside = [self._origin(batch, member.name).cast(member.type) for member in field.type]
                parts.append(pa.StructArray.from_arrays(inside, fields=list(field.type)))
            else:
                column = batch.column(field.name)
                parts.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(parts, schema=self.columns)

    def _origin(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name == "topic" and self.topic is not None:
            return pa.repeat(pa.scalar(self.topic), batch.num_rows)
        return batch.column(f"{KAFKA}_{name}")

    def _places(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = (self._origin(batch, name).to_pylist() for name in ORIGIN[:3])
        return [{"topic": t, "partition": p, "offset": o} for t, p, o in zip(*columns, strict=True)]

    def _fingerprint(self, batch: pa.RecordBatch) -> int:
        if not batch.num_rows:
            return 0
        partitions, offsets = (self._origin(batch, name).to_numpy(zero_copy_only=False) for name in ORIGIN[1:3])
        topics = [self.topic] if self.topic is not None else pc.unique(self._origin(batch, "topic")).to_pylist()
        found = 0
        for topic in topics:
            here = np.ones(batch.num_rows, np.bool_)
            if self.topic is None:
                here = pc.equal(self._origin(batch, "topic"), topic).to_numpy(zero_copy_only=False)
            for partition in np.unique(partitions[here]):
                picked = offsets[here & (partitions == partition)]
                found += fingerprint.of_offsets(topic, int(partition), picked.astype(np.int64))
        return found


@dataclass(frozen=True)
class Shortcut:
    """A pipeline that qualifies: its one inlet and its one sink."""

    inlet: Inlet
    sink: TakesFiles
    judge: Judge
    columns: pa.Schema
    layout: str

    def run(self, raw: DataFrame, batch: Batch, *, replay: bool, locate: bool) -> tuple[Counted, Written, int]:
        """What was counted, what the sink says, and the fingerprint of what it holds."""
        decode, contract = self.inlet.decode, self.inlet.contract
        held = self.sink.held(batch) if replay else None
        staging = self.sink.staging(batch)
        sent, worker = decode.handed(raw)
        one_pass = OnePass(
            worker,
            self.judge,
            frozenset(contract.deadly),
            decode.topic,
            self.columns,
            self.layout,
            None if held is not None else staging,
            locate,
        )
        found = sent.mapInArrow(one_pass, _RESULT).collect()
        files = [NewFile(row["name"], row["rows"], row["size"], row["stats"]) for row in found if row["name"]]
        rows, passed = sum(file.rows for file in files), sum(row["passed"] for row in found)
        if held is None and rows != passed:
            raise SinkFailed(f"the files of batch {batch.id} have {rows} rows, not {passed}")
        written = Written(held) if held is not None else self.sink.publish(batch, staging, files, self.columns)
        verdicts: Counter[str] = Counter()
        for row in found:
            verdicts.update(row["verdicts"])
        dead = sum(verdicts[name] for name in contract.deadly)
        dropped = {name: verdicts[name] for name in contract.dropping}
        counts = ViewCount(sum(row["read"] for row in found), passed, dead, dropped)
        at = [(p["topic"], p["partition"], p["offset"]) for row in found for p in row["dead"]] if locate else None
        if held is None and sum(file.rows for file in files) != passed:
            raise SinkFailed(
                f"the files of batch {batch.id} have {sum(file.rows for file in files)} rows, not {passed}"
            )
        return Counted(counts, at), written, sum(row["fingerprint"] for row in found)


def shortcut(pipeline: Pipeline, inlets: list[Inlet], outlets: list[Outlet], incoming: Incoming) -> Shortcut | str:
    """The short way, or why this pipeline cannot take it."""
    if len(outlets) != 1 or len(inlets) != 1:
        return "it has several sinks or several source views"
    (inlet,), (outlet,) = inlets, outlets
    if outlet.view != inlet.view or outlet.where is not None:
        return "SQL lies between the source view and the sink"
    sink = outlet.sink
    if not isinstance(sink, TakesFiles):
        return "its sink writes through the engine"
    if why := sink.takes_files(incoming):
        return why
    struct = inlet.decode.value.struct
    rules = pipeline.contract.get(inlet.view, [])
    native = [(rule.name, condition(rule.rule, struct)) for rule in rules]
    slow = [name for name, made in native if made is None]
    if slow:
        return f"rule '{slow[0]}' needs the engine"
    if any(rule.otherwise == "stop" for rule in rules) or inlet.contract.stop_unreadable:
        return "a record may stop the pipeline, which the engine reports"
    if inlet.decode.key is not None or inlet.decode.read.kafka_columns:
        return f"its rows have more than fields and `{KAFKA}`"
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
    judge = Judge(tuple((name, made) for name, made in native if made), inlet.contract.drop_tombstones)
    return Shortcut(inlet, sink, judge, columns, incoming.columns.json())
