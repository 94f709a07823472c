"""PostgreSQL: rows are loaded beside the table by the tasks, and one transaction makes a batch of them visible.

1. A replay looks into `penstock_ledger`, a table of the same schema: a batch that is there is only read through.
2. Fresh staging tables; those that an attempt left when it died are dropped.
3. Every task loads its rows with COPY and reports what it loaded (`load`).
4. One transaction merges what was reported and writes the ledger row (`merge`).

A crash before the commit of 4 leaves staging tables and nothing else. A commit whose answer was lost is found by 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from penstock.errors import NotWritable, SpecInvalid
from penstock.record import KAFKA, Batch, Known
from penstock.sink.contract import Incoming, Written, read_through
from penstock.sink.held import require_complete, require_own
from penstock.sink.postgres import target as tables
from penstock.sink.postgres.columns import ORIGIN, Plan, Unsuitable, plan
from penstock.sink.postgres.connection import Address, Connection, connected, retried
from penstock.sink.postgres.ledger import SinkLedger
from penstock.sink.postgres.load import RESULT, Load, Report
from penstock.sink.postgres.merge import Merge
from penstock.sink.postgres.names import Staging, TableName, listed
from penstock.sink.postgres.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_FETCH = 50_000  # rows a time, when `verify` reads a table


@dataclass(frozen=True)
class PostgresSink:
    """`url` is resolved already, and may hold a password. Without `key` rows are appended. With it they replace the row
    that has their key or, where `_deleted` is true, delete it."""

    name: str
    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] = ()
    order_by: str | None = None  # of two rows of a key the one with the larger value counts, however late it comes
    guarantee: str = "exactly-once: a batch and its ledger row are one PostgreSQL transaction"

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        with self._connected("look at its table") as connection, self._suitable():
            target = tables.find(connection, self._table)
            ledger = self._ledger(connection, target)
            self._check_rights(connection, ledger.schema, target)
            newest = ledger.newest(connection, batch)
        version = newest.get(batch.query) if target is not None else None
        place = f"table {self.table}"
        require_complete(self.name, place, known, version, accepted)
        if target is not None and version is None:
            require_own(self.name, place, batch, newest, accepted)

    def suits(self, incoming: Incoming) -> None:
        with self._connected("look at its table") as connection, self._suitable(incoming.view):
            self._plan(incoming.columns, tables.find(connection, self._table))

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        with self._connected(f"write batch {batch.id}") as connection, self._suitable():
            target = tables.find(connection, self._table)
            ledger = self._ledger(connection, target)
            # 1. has it been written?
            held = ledger.find(connection, batch) if replay else None
            if held is not None:
                read_through(rows)
                return held
            # 2. staging
            if target is None:
                schema = ledger.schema
                made = self._plan(rows.schema, None)
                tables.create(connection, TableName(schema, self._table.table), made, self.key)
                target = tables.find(connection, TableName(schema, self._table.table))
                assert target is not None
            ledger.create(connection)
            writing = self._plan(rows.schema, target)
            tables.drop_stale(connection, ledger.schema, Staging.prefix(batch.pipeline, self.name))
            staging = Staging.new(ledger.schema, batch.pipeline, self.name)
            try:
                told = [*self.key, *([self.order_by] if self.order_by else [])]
                tables.stage(connection, target, staging, writing, told)
                # 3. load
                reports = self._load(rows, staging, writing)
                # 4. merge
                merge = Merge(
                    self.name,
                    ledger,
                    batch,
                    target.name.quoted(),
                    staging,
                    writing.names,
                    self.key,
                    self.order_by,
                    reports,
                )
                return retried(lambda: merge.run(connection))
            finally:
                with suppress(psycopg.Error):  # the next attempt drops it
                    tables.drop(connection, staging)

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        """Of appended rows only: a row that was replaced or deleted has left no position behind."""
        if self.key or column != KAFKA:
            return None
        found: dict[tuple[str, int], list[int]] = {}
        with self._connected("read its table") as connection, self._suitable():
            target = tables.find(connection, self._table)
            if target is None:
                return {}
            if not target.columns.keys() >= ORIGIN.keys():
                return None
            query = sql.SQL("select {} from {}").format(listed(list(ORIGIN)), target.name.quoted())
            with connection.transaction(), connection.cursor("penstock_positions") as cursor:
                cursor.itersize = _FETCH
                for topic, partition, offset in cursor.execute(query):
                    found.setdefault((topic, partition), []).append(offset)
        return found

    def rows_by_batch(self, query: str) -> dict[int, int]:
        with self._connected("read its table") as connection, self._suitable():
            return self._ledger(connection, tables.find(connection, self._table)).rows_by_batch(connection, query)

    def holds(self, batch: Batch) -> bool:
        return batch.id in self.rows_by_batch(batch.query)

    def _load(self, rows: DataFrame, staging: Staging, writing: Plan) -> list[Report]:
        load = Load(
            self.name,
            self._address,
            staging,
            tuple(writing.names),
            self.key,
            self.order_by,
            writing.placed,
            writing.deletes,
        )
        told = rows.selectExpr(*writing.projection()).mapInArrow(load, RESULT).collect()
        reports = [Report(**json.loads(row["report"])) for row in told]
        for report in reports:
            report.raise_error()
        return reports

    def _plan(self, columns: StructType, target: Target | None) -> Plan:
        if target is not None:
            target.check_key(self.key)
        return plan(columns, target.columns if target is not None else None, self.key, self.order_by)

    def _check_rights(self, connection: Connection, schema: str, target: Target | None) -> None:
        rows = connection.execute(
            "select has_schema_privilege(oid, 'create') from pg_namespace where nspname = %s", [schema]
        ).fetchone()
        lacks = None
        if rows is None:
            lacks = f"there is no schema '{schema}'"
        elif not rows[0]:
            lacks = f"its user may not create tables in schema '{schema}', where staging tables and ledger are"
        elif target is not None:
            for right in ("insert", "select", *(("update", "delete") if self.key else ())):
                asked = [target.name.quoted().as_string(connection), right]
                granted = connection.execute("select has_table_privilege(%s, %s)", asked).fetchone()
                if granted and not granted[0]:
                    lacks = f"its user may not {right} rows of table {target.name}"
        if lacks:
            raise NotWritable(
                f"sink '{self.name}' cannot write to {self.table} at {self._address}",
                cause=lacks,
                next_command=f"grant the user of sink '{self.name}' what it lacks",
            )

    def _ledger(self, connection: Connection, target: Target | None) -> SinkLedger:
        schema = target.name.schema if target is not None else tables.schema_of(connection, self._table)
        if schema is None:
            raise NotWritable(
                f"sink '{self.name}': the user's search path names no schema for table {self.table}",
                next_command=f"write `table` of sink '{self.name}' as schema.table",
            )
        return SinkLedger(schema, self.name, self._table.table)

    @contextmanager
    def _connected(self, doing: str) -> Iterator[Connection]:
        with connected(self.name, self._address, doing) as connection:
            yield connection

    @contextmanager
    def _suitable(self, view: str | None = None) -> Iterator[None]:
        """Where view and table do not go together, the spec is wrong."""
        try:
            yield
        except Unsuitable as error:
            of = f"view '{view}' does" if view is not None else "its rows do"
            raise SpecInvalid(
                f"sink '{self.name}': {of} not fit table {self.table}",
                cause=str(error),
                next_command=error.hint,
            ) from None

    @property
    def _address(self) -> Address:
        return Address(self.url)

    @property
    def _table(self) -> TableName:
        try:
            return TableName.parse(self.table)
        except ValueError as error:
            raise SpecInvalid(
                f"sink '{self.name}': `table` is not the name of a table",
                cause=str(error),
                next_command=f"correct `table` of sink '{self.name}'",
            ) from None
