"""The Python-worker end: rows of a task into the staging tables, with COPY, in one transaction per task.

A task that is given up and run again has either loaded nothing or rows under its own id, which the merge leaves out:
only what a task has reported counts. A row that PostgreSQL refuses is found by halving, and reported instead of loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock import errors
from penstock.record import Failure, shortened
from penstock.sinks.postgres import faults
from penstock.sinks.postgres.connection import Address, Connection, translated
from penstock.sinks.postgres.names import GONE, OFFSET, OWN, SENT, SEQ, SOURCE, TASK, TIME, Staging, listed
from penstock.sinks.postgres.text import PRINTED, csv
from penstock.workers import forget_archives

RESULT = "report string"
_TASK_ROWS = 1 << 40  # more than any task has, so that the rows of one partition follow those of the one before


@dataclass
class Report:
    """What one task says in the end. The only way anything comes back from a worker."""

    task: int = -1
    rows: int = 0  # loaded
    gone: int = 0  # deletes loaded
    unordered: int = 0  # of both, those without a value in `order_by`
    sources: list[tuple[int, str, int]] = field(default_factory=list)  # number in staging, topic, partition
    rejected: list[tuple[str, int, int, str, str]] = field(default_factory=list)
    # What must end the batch. A raised exception would only come through as the text of an engine's failure.
    error: dict[str, Any] | None = None

    def raise_error(self) -> None:
        if self.error:
            kind = getattr(errors, self.error["kind"])
            raise kind(self.error["what"], cause=self.error["cause"], next_command=self.error["next"])


@dataclass(frozen=True)
class Load:
    """Called by Spark with the Arrow batches of one task, as `Plan.projection` makes them; yields one report."""

    sink: str
    address: Address
    staging: Staging
    columns: tuple[str, ...]
    key: tuple[str, ...]
    order_by: str | None
    placed: bool
    deletes: bool
    sent: tuple[tuple[str, str, str], ...] = ()  # columns as they are sent, beside those they go into and their types
    prints: tuple[tuple[str, str], ...] = ()  # columns that are not printed as they are

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(asdict(self.loaded(batches)))]})

    def loaded(self, batches: Iterable[pa.RecordBatch]) -> Report:
        report = Report()
        try:
            self._load(batches, report)
        except psycopg.Error as error:
            return Report(error=_told(translated(self.sink, self.address, "load rows into a staging table", error)))
        except errors.SinkFailed as error:
            return Report(error=_told(error))
        return report

    def _load(self, batches: Iterable[pa.RecordBatch], report: Report) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        report.task = context.taskAttemptId()
        seq = context.partitionId() * _TASK_ROWS
        connection: Connection | None = None
        try:
            for batch in batches:
                if connection is None:  # a task without rows needs none
                    connection = self.address.connect(self.sink)
                    # Nothing is lost that counts: what a crash of the server takes, it takes from staging tables.
                    connection.execute("set synchronous_commit = off; begin")
                rows = self._staged(batch, seq, report)
                seq += batch.num_rows
                self._copy(connection, rows, report)
            if connection is not None:
                connection.execute("commit")
        finally:
            if connection is not None:
                connection.close()

    def _staged(self, batch: pa.RecordBatch, seq: int, report: Report) -> dict[str, pa.Array]:
        """The columns as staging has them, and GONE where rows can be deletes."""
        count = batch.num_rows
        found = {name: batch.column(i) for i, name in enumerate(self.columns)}
        found |= {name: PRINTED[how](found[name]) for name, how in self.prints}
        found |= {sent: found[name] for sent, name, _ in self.sent}
        found[TASK] = pa.array(np.full(count, report.task))
        found[SEQ] = pa.array(np.arange(seq, seq + count))
        found[SOURCE] = self._sources(batch, report) if self.placed else pa.nulls(count, pa.int64())
        found[OFFSET] = batch.column("kafka_offset") if self.placed else pa.nulls(count, pa.int64())
        if self.placed and self.key:
            found[TIME] = batch.column("kafka_timestamp").cast(pa.timestamp("us")).cast(pa.int64())
        else:
            found[TIME] = pa.nulls(count, pa.int64())
        if self.deletes:
            found[GONE] = batch.column(GONE)
        return found

    def _sources(self, batch: pa.RecordBatch, report: Report) -> pa.Array:
        """Topic and partition of each row as one number, the same in every task: names would double some tables."""
        unknown = batch.column("kafka_offset").is_null()  # a row that a join made of no record
        topics = batch.column("kafka_topic").fill_null("").dictionary_encode()
        partitions = batch.column("kafka_partition").fill_null(0).to_numpy().astype(np.int64)
        codes = topics.indices.to_numpy().astype(np.int64) << 32 | partitions
        different, which = np.unique(codes, return_inverse=True)
        numbers = np.empty(len(different), dtype=np.int64)
        for i, code in enumerate(different):
            topic, partition = topics.dictionary[int(code) >> 32].as_py(), int(code) & 0xFFFFFFFF
            digest = hashlib.blake2b(f"{topic}/{partition}".encode(), digest_size=8).digest()
            numbers[i] = int.from_bytes(digest, signed=True)
            if (source := (int(numbers[i]), topic, partition)) not in report.sources:
                report.sources.append(source)
        return pa.array(numbers[which.reshape(-1)], mask=unknown.to_numpy(zero_copy_only=False))

    def _copy(self, connection: Connection, staged: dict[str, pa.Array], report: Report) -> None:
        table = pa.table(staged)
        for name in self.key:
            missing = table.column(name).is_null()
            if pc.any(missing).as_py():
                for row in _rows(table.filter(missing)):
                    self._reject(row, faults.null_key(name), report)
                table = table.filter(pc.invert(missing))
        if self.order_by:
            report.unordered += table.column(self.order_by).null_count
        if self.deletes:
            gone = table.column(GONE)
            told = [*self.key, *([self.order_by] if self.order_by and self.order_by not in self.key else [])]
            deletes = table.filter(gone).select([*told, *(sent for sent, name, _ in self.sent if name in told), *OWN])
            table = table.filter(pc.invert(gone)).drop_columns([GONE])
            report.gone += self._into(connection, self.staging.gone, deletes, report)
        report.rows += self._into(connection, self.staging.rows, table, report)

    def _into(self, connection: Connection, target: sql.Identifier, rows: pa.Table, report: Report) -> int:
        """COPY rows; when one of them is refused, halve until it is found. Returns how many are in."""
        if not rows.num_rows:
            return 0
        connection.execute("savepoint chunk")
        try:
            _copied(connection, target, rows)
        except psycopg.Error as error:
            if not faults.is_of_row(error):
                raise
            connection.execute("rollback to savepoint chunk")
            if rows.num_rows == 1:
                [row] = _rows(rows)
                self._reject(row, self._changed(error, row) or faults.failure(error, row), report)
                return 0
            half = rows.num_rows // 2
            first, second = rows.slice(0, half), rows.slice(half)
            return self._into(connection, target, first, report) + self._into(connection, target, second, report)
        connection.execute("release savepoint chunk")
        return int(rows.num_rows)

    def _changed(self, error: psycopg.Error, row: dict[str, Any]) -> Failure | None:
        """Where the table takes the value, but as another one."""
        found = [each for each in self.sent if each[0] == error.diag.constraint_name]
        return faults.changed(found[0][1], row[found[0][0]], found[0][2]) if found else None

    def _reject(self, row: dict[str, Any], why: Failure, report: Report) -> None:
        if row[SOURCE] is None:
            raise refused(self.sink, row, self.key, why)
        [(topic, partition)] = [(t, p) for number, t, p in report.sources if number == row[SOURCE]]
        report.rejected.append((topic, partition, row[OFFSET], why.error_class, faults.of_sink(self.sink, why).reason))


def refused(sink: str, row: dict[str, Any], key: Iterable[str], why: Failure) -> errors.SinkFailed:
    """For rows that do not say which record they come from: there is nothing to make a dead letter of."""
    told = {name: row[name] for name in key or row if name not in (*OWN, GONE) and not name.startswith(SENT)}
    return errors.SinkFailed(
        f"sink '{sink}': PostgreSQL refused a row",
        cause=shortened(f"{why.reason}; the row: {told}"),
        next_command="let the view keep `_kafka`, and such rows become dead letters; or leave them out with a rule",
    )


def _copied(connection: Connection, target: sql.Identifier, rows: pa.Table) -> None:
    statement = sql.SQL("copy {} ({}) from stdin with (format csv)").format(target, listed(rows.column_names))
    texts = [csv(dict(zip(rows.column_names, batch.columns, strict=True))) for batch in rows.to_batches()]
    with connection.cursor().copy(statement) as copy:
        for text in texts:
            copy.write(text)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """As Python has them. SQL can make text of bytes that are none: those by `surrogateescape`."""
    columns = [_values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if _is_text(kind):
        return [_text(value) for value in column.cast(pa.large_binary()).to_pylist()]
    if pa.types.is_list(kind) and _is_text(kind.value_type):
        lists = column.cast(pa.list_(pa.large_binary())).to_pylist()
        return [values and [_text(value) for value in values] for values in lists]
    found: list[Any] = column.to_pylist()
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _told(error: errors.PenstockError) -> dict[str, Any]:
    return {"kind": type(error).__name__, "what": error.what, "cause": error.cause, "next": error.next_command}
