"""Sinks that keep what they are handed: they take the place of tables and topics while a case runs.

They keep the contract of every sink, so that a batch goes through the very same steps as in production. What a sink
does to its rows before they are written is done here too: the newest row per key, records encoded for Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.encode.stage import Encoding
from penstock.record import DELETED, OUTGOING_AT, OUTGOING_ERROR, Batch, Known
from penstock.sinks.columns import require_columns, require_upsertable
from penstock.sinks.contract import Incoming, Sink, Written
from penstock.sinks.kafka.encoding import SCHEMA, EncodeBatches, rejected
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.latest import DELETE, PLACED, latest
from penstock.spec import sinks as spec
from penstock.spec.sinks import EncodeJson, EncodeString
from penstock.testing.case.registry import FileRegistry
from penstock.testing.case.values import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.deadletters.dead_letter import DeadLetter

Rows = list[dict[str, Any]]
RECORD = "_record"  # beside the columns of its view: what a Kafka sink would have sent
_HEADER = 5  # bytes before a JSON value in the registry's wire format


@dataclass
class Gathered:
    """What every sink here has; on its own, a sink that appends."""

    name: str
    partition_by: tuple[str, ...] = ()
    guarantee: str = "none: rows are kept for a test"
    columns: tuple[str, ...] = ()
    batches: dict[int, Rows] = field(default_factory=dict)  # a batch that is run again takes its own place
    whole: bool = False  # every batch has all rows (`emit: complete`): the last one counts, as in memory

    def rows(self) -> Rows:
        if self.whole:
            return self.batches[max(self.batches)] if self.batches else []
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def clear(self) -> None:
        self.batches.clear()

    def prepare(self, _batch: Batch, _known: Known, _accepted: frozenset[str]) -> None:
        return

    def suits(self, incoming: Incoming) -> None:
        require_columns(self.name, incoming, partition_by=self.partition_by)
        self.columns = tuple(incoming.columns.names)

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:  # noqa: ARG002  it is the same twice
        self.batches[batch.id] = rows_of(rows.toArrow())
        return Written(len(self.batches[batch.id]))

    def positions(self, _column: str) -> dict[tuple[str, int], list[int]] | None:
        return None

    def rows_by_batch(self, _query: str) -> dict[int, int] | None:
        return None

    def holds(self, batch: Batch) -> bool:
        return batch.id in self.batches


@dataclass
class Upserted(Gathered):
    """The row of each key, as `sinks.latest` merges them. A key that was deleted stays, with `_deleted: true`."""

    key: tuple[str, ...] = ()
    order_by: str | None = None
    tables: dict[int, dict[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)  # after each batch

    def rows(self) -> Rows:
        return list(self.tables[max(self.tables)].values()) if self.tables else []

    def clear(self) -> None:
        super().clear()
        self.tables.clear()

    def suits(self, incoming: Incoming) -> None:
        super().suits(incoming)
        require_upsertable(self.name, incoming, self.key, self.order_by)
        self.columns = (*(name for name in self.columns if name != DELETED), DELETED)

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:  # noqa: ARG002  it is the same twice
        before = [number for number in self.tables if number < batch.id]
        table = dict(self.tables[max(before)]) if before else {}
        with latest(self.name, rows, self.key, self.order_by) as newest:
            for row in rows_of(newest.rows.toArrow()):
                self._merge(table, row)
            self.tables[batch.id] = table
            return newest.written(newest.kept)

    def _merge(self, table: dict[tuple[Any, ...], dict[str, Any]], row: dict[str, Any]) -> None:
        """As the statement of `sinks.latest.merge`."""
        delete, placed = row.pop(DELETE), row.pop(PLACED)
        key = tuple(repr(row[name]) for name in self.key)
        held = table.get(key)
        if held is not None and not held[DELETED] and self.order_by and not placed:
            theirs, ours = held[self.order_by], row[self.order_by]
            if theirs is not None and (ours is None or ours < theirs):
                return
        table[key] = {**row, DELETED: delete}


@dataclass
class Sent(Gathered):
    """Rows with the records that a Kafka sink makes of them, in `_record`. A row that cannot be one is rejected."""

    real: KafkaSink | None = None
    to: spec.KafkaTopic | None = None

    def suits(self, incoming: Incoming) -> None:
        super().suits(incoming)
        assert self.real is not None
        if self.real.asked == "at-least-once":
            self.real.encoding.prepare(incoming.view, incoming.columns)
        else:
            self.real.suits(incoming)
        self.columns = (*self.columns, RECORD)

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:  # noqa: ARG002  it is the same twice
        assert self.real is not None
        assert self.to is not None
        encoding = self.real.encoding
        table = rows.toArrow()
        again: Any = rows.sparkSession.createDataFrame(table, rows.schema)
        encoded = rows_of(encoding.rows(again).mapInArrow(EncodeBatches(encoding.encode), SCHEMA).toArrow())
        kept: Rows = []
        refused = []
        for row, made in zip(rows_of(table), encoded, strict=True):
            if why := made[OUTGOING_ERROR]:
                refused.append((*(made[name] for name in OUTGOING_AT), why["class"], why["reason"]))
            else:
                kept.append({**row, RECORD: _record(made, self.to)})
        self.batches[batch.id] = kept
        return Written(len(kept), rejected=rejected(self.name, refused))


def _record(made: dict[str, Any], to: spec.KafkaTopic) -> dict[str, Any]:
    headers = {header["key"]: header["value"] for header in made["headers"] or ()}
    parts = {part: _read(getattr(to, part), made[part]) for part in ("key", "value")}
    return {"topic": made["topic"], "partition": made["partition"], **parts, "headers": headers}


def _read(how: spec.AnyEncode | None, raw: bytes | None) -> Any:
    """What a consumer would make of it. Avro and Protobuf stay bytes: the columns of the row say what is in them."""
    if raw is None:
        return None
    if isinstance(how, EncodeJson):
        return json.loads(raw[_HEADER:] if how.wire == "registry" else raw)
    return raw.decode() if isinstance(how, EncodeString) else raw


def gathering(name: str, sink: spec.Sink, base: Path, registry: FileRegistry, *, whole: bool = False) -> Gathered:
    """What takes the place of a sink of the spec. `whole`: it gets all rows with every batch."""
    table: Any = sink.delta or sink.iceberg or sink.postgres
    upsert: spec.Upsert | None = table.upsert if table is not None else None
    parted = sink.delta or sink.parquet  # Iceberg's may be transforms of columns
    partition_by = tuple(parted.partition_by) if parted else ()
    if upsert is not None:
        return Upserted(name, partition_by, key=tuple(upsert.key), order_by=upsert.order_by)
    if sink.kafka is not None:
        encoding = Encoding(name, sink.kafka, base, lambda: registry)
        return Sent(name, real=KafkaSink(name, {}, encoding, sink.kafka.guarantee), to=sink.kafka)
    return Gathered(name, partition_by, whole=whole)


@dataclass
class GatheredLetters:
    """Dead letters, kept."""

    guarantee: str = "none: they are kept for a test"
    batches: dict[int, Rows] = field(default_factory=dict)

    def rows(self) -> Rows:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def prepare(self, _batch: Batch, _known: Known, _accepted: frozenset[str]) -> None:
        return

    def written(self, batch: Batch) -> int | None:
        return len(self.batches[batch.id]) if batch.id in self.batches else None

    def write(self, batch: Batch, rows: DataFrame) -> int:
        self.batches[batch.id] = rows_of(rows.toArrow())
        return len(self.batches[batch.id])

    def read(self, query: str | None = None) -> Iterator[DeadLetter]:  # noqa: ARG002  nobody asks
        return iter(())


def _is_a_sink(sink: Gathered) -> Sink:  # mypy holds them to the contract
    return sink
