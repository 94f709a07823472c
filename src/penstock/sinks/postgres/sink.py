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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from psycopg import sql

from penstock.errors import NotWritable, SpecInvalid
from penstock.record import KAFKA, Batch, Known
from penstock.sinks.contract import Incoming, Written, read_through
from penstock.sinks.held import require_complete, require_own
from penstock.sinks.postgres import target as tables
from penstock.sinks.postgres.attempt import Attempt
from penstock.sinks.postgres.columns import ORIGIN, Plan, Unsuitable, plan
from penstock.sinks.postgres.connection import Address, Connection, connected
from penstock.sinks.postgres.ledger import SinkLedger
from penstock.sinks.postgres.load import RESULT
from penstock.sinks.postgres.names import Staging, TableName, listed
from penstock.sinks.postgres.one_pass import OnePassPostgres
from penstock.sinks.postgres.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_FETCH = 50_000  # rows a time, when `verify` reads a table


@dataclass
class PostgresSink:
    """`url` is resolved already, and may hold a password. Without `key` rows are appended. With it they replace the row
    that has their key or, where `_deleted` is true, delete it."""

    name: str
    url: str = field(repr=False)
    table: str
    key: tuple[str, ...] = ()
    order_by: str | None = None  # of two rows of a key the one with the larger value counts, however late it comes
    guarantee: str = "exactly-once: a batch and its ledger row are one PostgreSQL transaction"
    _agreed: Plan | None = field(default=None, repr=False, compare=False)  # for the rows that `suits` was told of

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
        self._agreed = self._plan_for(incoming)

    def losses(self) -> list[str]:
        return self._agreed.losses() if self._agreed else []

    def _plan_for(self, incoming: Incoming) -> Plan:
        with self._connected("look at its table") as connection, self._suitable(incoming.view):
            return self._plan(incoming.columns, tables.find(connection, self._table))

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        with ExitStack() as stack:
            attempt = self._begin(rows.schema, batch, stack, replay)
            if isinstance(attempt, Written):
                read_through(rows)
                return attempt
            # 3. load
            told = rows.selectExpr(*attempt.plan.projection()).mapInArrow(attempt.load(), RESULT).collect()
            # 4. merge
            return attempt.merged([json.loads(row["report"]) for row in told])

    def one_pass(self, incoming: Incoming) -> OnePassPostgres | str:
        """The short way, or why such rows cannot take it."""
        if self._plan_for(incoming).taken() is None:
            return "the engine makes columns for PostgreSQL of what its rows hold"
        return OnePassPostgres(self.name, partial(self._begin, incoming.columns))

    def _begin(self, columns: StructType, batch: Batch, stack: ExitStack, replay: bool) -> Attempt | Written:
        """Steps 1 and 2. Connection and staging tables are let go of when the stack is closed."""
        connection = stack.enter_context(self._connected(f"write batch {batch.id}"))
        stack.enter_context(self._suitable())
        target = tables.find(connection, self._table)
        ledger = self._ledger(connection, target)
        # 1. has it been written?
        held = ledger.find(connection, batch) if replay else None
        if held is not None:
            return held
        # 2. staging
        if target is None:
            name = TableName(ledger.schema, self._table.table)
            tables.create(connection, name, self._plan(columns, None), self.key)
            target = tables.find(connection, name)
            assert target is not None
        ledger.create(connection)
        attempt = Attempt(
            self.name,
            self._address,
            connection,
            ledger,
            batch,
            target,
            self._plan(columns, target),
            self.key,
            self.order_by,
            Staging.new(ledger.schema, batch.pipeline, self.name),
        )
        attempt.stage()
        stack.callback(attempt.close)
        return attempt

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

    def _plan(self, columns: StructType, target: Target | None) -> Plan:
        if target is not None:
            target.check_key(self.key)
        return plan(columns, target.columns if target is not None else None, self.key, self.order_by)

    def _check_rights(self, connection: Connection, schema: str, target: Target | None) -> None:
        rows = connection.execute(
            "select has_schema_privilege(oid, 'create') from pg_namespace where nspname = %s", [schema]
        ).fetchone()
        lacks, what_to_do = None, f"grant the user of sink '{self.name}' what it lacks"
        if rows is None:
            lacks = f"there is no schema '{schema}'"
            what_to_do = sql.SQL("create schema {}").format(sql.Identifier(schema)).as_string(connection)
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
                next_command=what_to_do,
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
