"""Dead letters that a Kafka sink sends along with its records, in the transaction of their input partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import record
from penstock.batch import fingerprint
from penstock.batch.source_view import Inlet
from penstock.contract.verdict import fields_of
from penstock.deadletters.dead_letter import from_row, to_headers
from penstock.decode.worker import SCHEMA_ID
from penstock.record import ERROR, KAFKA, ORIGIN, Batch, Failure
from penstock.sinks.kafka.worker import Letter
from penstock.spec import types
from penstock.spec.model import Pipeline
from penstock.spec.types import Scalar

_SHOWN = 80  # characters of a value in a reason
_PLAIN = ("string", "boolean", "tinyint", "smallint", "int", "bigint")  # types that are text here as they are in SQL


@dataclass(frozen=True)
class Origins:
    """Where the records of a decoded batch came from."""

    topic: str | None  # known when the view has just one

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if name == "topic" and self.topic is not None:
            return pa.repeat(pa.scalar(self.topic), batch.num_rows)
        return batch.column(f"{KAFKA}_{name}")

    def places(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        columns = (self.column(batch, name).to_pylist() for name in ORIGIN[:3])
        return [{"topic": t, "partition": p, "offset": o} for t, p, o in zip(*columns, strict=True)]

    def fingerprint(self, batch: pa.RecordBatch) -> int:
        if not batch.num_rows:
            return 0
        partitions, offsets = (self.column(batch, name).to_numpy(zero_copy_only=False) for name in ORIGIN[1:3])
        topics = [self.topic] if self.topic is not None else pc.unique(self.column(batch, "topic")).to_pylist()
        found = 0
        for topic in topics:
            here = np.ones(batch.num_rows, np.bool_)
            if self.topic is None:
                here = pc.equal(self.column(batch, "topic"), topic).to_numpy(zero_copy_only=False)
            for partition in np.unique(partitions[here]):
                picked = offsets[here & (partitions == partition)]
                found += fingerprint.of_offsets(topic, int(partition), picked.astype(np.int64))
        return found


@dataclass(frozen=True)
class Posted:
    """Dead records as letters that a Kafka sink sends along: key, value and headers as they came, reasons as
    `contract.verdict` gives them."""

    batch: Batch
    to: str  # the topic; `{topic}` in it stands for the one the record came from
    rules: tuple[tuple[str, str, tuple[str, ...]], ...]  # name, condition, the fields it speaks of
    origins: Origins

    def died(self, rows: pa.RecordBatch, verdicts: pa.Array) -> list[Letter]:
        found = []
        rules = {name: (text, fields) for name, text, fields in self.rules}
        for row, verdict in zip(self._rows(rows), verdicts.to_pylist(), strict=True):
            if row[ERROR] is not None:
                why = (record.DECODE, row[ERROR]["class"], row[ERROR]["reason"])
            else:
                text, fields = rules[verdict]
                seen = "".join(f"; {name} = {_shown(row[name])}" for name in fields)
                why = (record.CONTRACT, record.BROKEN_RULE, f"{verdict}: not true: {text}{seen}")
            found.append(self._letter(row, *why))
        return found

    def refused(self, rows: pa.RecordBatch, sink: str, failures: list[dict[str, Any]]) -> list[Letter]:
        return [
            self._letter(row, record.SINK, failure["class"], f"sink '{sink}': {failure['reason']}", sink)
            for row, failure in zip(self._rows(rows), failures, strict=True)
        ]

    def failed(self, rows: pa.RecordBatch, sink: str, failures: Iterable[Failure]) -> list[Letter]:
        """Records that a step, or the condition of the sink, fails on."""
        return [
            self._letter(row, record.TRANSFORM, failure.error_class, failure.reason, sink)
            for row, failure in zip(self._rows(rows), failures, strict=True)
        ]

    def _rows(self, rows: pa.RecordBatch) -> list[dict[str, Any]]:
        # Not as Python's time: where a producer gave Kafka microseconds for milliseconds, there is no such year.
        others = [name for name in rows.schema.names if name != f"{KAFKA}_timestamp"]
        found: list[dict[str, Any]] = rows.select(others).to_pylist()
        for name in ORIGIN:
            column = self.origins.column(rows, name)
            values = column.cast(pa.int64()) if name == "timestamp" else column
            for row, value in zip(found, values.to_pylist(), strict=True):
                row[f"{KAFKA}_{name}"] = value
        return found

    def _letter(
        self, row: dict[str, Any], stage: str, error_class: str, reason: str, sinks: str | None = None
    ) -> Letter:
        at = {name: row[f"{KAFKA}_{name}"] for name in (*ORIGIN, *record.ON_REQUEST)}
        why = {"stage": stage, "error_class": error_class, "reason": reason, "schema_id": row[SCHEMA_ID]}
        why["sinks"] = sinks
        letter = from_row({**at, **why, "timestamp_ms": at["timestamp"] // 1000}, self.batch)
        to = self.to.replace("{topic}", letter.topic)
        return Letter(letter.position, to, letter.key, letter.value, to_headers(letter), letter.timestamp_ms)


def _shown(value: Any) -> str:
    """A value of a plain type, as SQL casts it to text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return (f"{value:f}" if isinstance(value, Decimal) else str(value))[:_SHOWN]


def letters(pipeline: Pipeline, inlet: Inlet) -> Callable[[Batch], Posted] | None:
    """How dead records are sent along with the rows; None where dead letters do not go to Kafka."""
    to = pipeline.dead_letters.kafka
    if to is None:
        return None
    columns = [member.name for member in inlet.decode.value.struct.members]
    rules = tuple((rule.name, rule.text, fields_of(rule, columns)) for rule in inlet.contract.rules)
    return lambda batch: Posted(replace(batch, ranges=()), to.topic, rules, Origins(inlet.decode.topic))


def not_plain(inlet: Inlet) -> str | None:
    """A rule whose reasons only the engine can write: it speaks of a field whose text is Spark's own."""
    fields = {member.name: member.type for member in inlet.decode.value.struct.members}
    for rule in inlet.contract.rules:
        for name in fields_of(rule, fields):
            of = fields[name]
            if not (isinstance(of, types.Decimal) or (isinstance(of, Scalar) and of.name in _PLAIN and not of.epoch)):
                return rule.name
    return None
