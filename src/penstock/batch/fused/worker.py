"""The short way, in the Python worker: one task decodes its records, judges them and hands them to the sink's part."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock.batch.fused import engine_rows, task_report
from penstock.batch.fused.engine_rows import Makes
from penstock.batch.fused.letters import Origins
from penstock.batch.fused.task_report import Packs
from penstock.contract.native import Condition
from penstock.contract.verdict import DECODE, TOMBSTONE
from penstock.decode.worker import DecodeBatches
from penstock.record import DELETED, ERROR, NULL_VALUE
from penstock.sinks.files.writer import Judged


@dataclass(frozen=True)
class Judge:
    """The contract over decoded columns: the verdict per row, as `contract.verdict` gives it."""

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
class OnePass:
    """Called by Spark with the raw batches of one task. Yields packets, where the sink's part makes some, and one row:
    what was counted, and what the sink did."""

    decode: DecodeBatches
    judge: Judge
    deadly: frozenset[str]
    where: Condition | None
    origins: Origins
    out: Out | Packs | Makes
    locate: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read, passed, handed, which = 0, 0, 0, 0
        verdicts: Counter[str] = Counter()
        dead: list[dict[str, Any]] = []

        def judged() -> Iterator[Judged]:
            nonlocal read, passed, handed, which
            for batch in self.decode(batches):
                read += batch.num_rows
                verdict = self.judge(batch)
                part = Judged(batch)
                if verdict is not None:
                    found = pc.value_counts(verdict.drop_null())
                    verdicts.update(dict(zip(*(part.to_pylist() for part in found.flatten()), strict=True)))
                    died = pc.is_in(verdict, pa.array(list(self.deadly), pa.string()))
                    part = Judged(batch.filter(verdict.is_null()), batch.filter(died), verdict.filter(died))
                    if self.locate:
                        dead.extend(self.origins.places(part.dead))
                passed += part.good.num_rows
                part = replace(part, good=self._let_through(part.good))
                handed += part.good.num_rows
                which += self.origins.fingerprint(part.good)
                yield part

        outcome = None
        if isinstance(self.out, Packs):
            yield from (task_report.row(packet=each) for each in self.out.packets(judged(), self.origins))
        elif isinstance(self.out, Makes):
            outcome = yield from engine_rows.rows(self.out, judged(), self.origins)
        else:
            outcome = self.out(judged(), self.origins)
        all_told = {
            "read": read,
            "passed": passed,
            "handed": handed,
            "verdicts": dict(verdicts),
            "fingerprint": which,
            "outcome": None if outcome is None else json.dumps(outcome),
            "dead": dead,
        }
        yield engine_rows.told(self.out, all_told) if isinstance(self.out, Makes) else task_report.row(**all_told)

    def _let_through(self, good: pa.RecordBatch) -> pa.RecordBatch:
        if self.where is None:
            return good
        return good.filter(self.where({name: good.column(name) for name in good.schema.names}))
