"""The sink's own ledger: one row per batch, written in the transaction that writes the batch.

It has the last word on whether a batch is there. The target's name is part of the key: a sink that is pointed at
another table has written nothing there yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import errors as pg
from psycopg import sql

from penstock.record import Batch, Failure
from penstock.sinks.contract import Rejected, Written
from penstock.sinks.postgres.connection import Connection

TABLE = "penstock_ledger"
_MAKE = """
create table {} (
    pipeline text, query text, sink text, target text, batch bigint,
    rows bigint not null, superseded bigint not null, rejected jsonb not null, time timestamptz not null default now(),
    primary key (pipeline, query, sink, target, batch)
)
"""


@dataclass(frozen=True)
class SinkLedger:
    """The rows of one sink and one target table in `penstock_ledger`, which is in the schema of that table."""

    schema: str
    sink: str
    target: str  # the table's name in that schema

    @property
    def _table(self) -> sql.Identifier:
        # Doubled: in a statement with arguments a % would be taken for one of them.
        return sql.Identifier(self.schema.replace("%", "%%"), TABLE)

    def exists(self, connection: Connection) -> bool:
        name = sql.Identifier(self.schema, TABLE).as_string(connection)
        found = connection.execute("select to_regclass(%s)", [name]).fetchone()
        return bool(found and found[0])

    def create(self, connection: Connection) -> None:
        if self.exists(connection):
            return
        try:
            connection.execute(sql.SQL(_MAKE).format(self._table), [])
        except (pg.DuplicateTable, pg.UniqueViolation):
            return

    def find(self, connection: Connection, batch: Batch) -> Written | None:
        """What a batch left, or None when it was not written."""
        if not self.exists(connection):
            return None
        found = connection.execute(
            sql.SQL(
                "select rows, superseded, rejected from {} "
                "where pipeline = %s and query = %s and sink = %s and target = %s and batch = %s"
            ).format(self._table),
            self._row(batch),
        ).fetchone()
        return None if found is None else Written(found[0], found[1], tuple(map(_rejected, found[2])))

    def claim(self, connection: Connection, batch: Batch) -> bool:
        """Begin the batch, inside its transaction; false when it is there already.

        When another transaction has begun it too, this waits for that one's end.
        """
        claimed = connection.execute(
            sql.SQL(
                "insert into {} (pipeline, query, sink, target, batch, rows, superseded, rejected) "
                "values (%s, %s, %s, %s, %s, 0, 0, '[]') on conflict do nothing"
            ).format(self._table),
            self._row(batch),
        )
        return claimed.rowcount == 1

    def fill(self, connection: Connection, batch: Batch, done: Written) -> None:
        told = [[r.topic, r.partition, r.offset, r.why.error_class, r.why.reason] for r in done.rejected]
        connection.execute(
            sql.SQL(
                "update {} set rows = %s, superseded = %s, rejected = %s::jsonb "
                "where pipeline = %s and query = %s and sink = %s and target = %s and batch = %s"
            ).format(self._table),
            [done.rows, done.superseded, json.dumps(told), *self._row(batch)],
        )

    def newest(self, connection: Connection, batch: Batch) -> dict[str, int]:
        """The newest batch of each query of this pipeline."""
        if not self.exists(connection):
            return {}
        found = connection.execute(
            sql.SQL(
                "select query, max(batch) from {} where pipeline = %s and sink = %s and target = %s group by query"
            ).format(self._table),
            [batch.pipeline, self.sink, self.target],
        )
        return dict(found.fetchall())

    def rows_by_batch(self, connection: Connection, query: str) -> dict[int, int]:
        if not self.exists(connection):
            return {}
        found = connection.execute(
            sql.SQL("select batch, rows from {} where query = %s and sink = %s and target = %s").format(self._table),
            [query, self.sink, self.target],
        )
        return dict(found.fetchall())

    def _row(self, batch: Batch) -> list[object]:
        return [batch.pipeline, batch.query, self.sink, self.target, batch.id]


def _rejected(told: Sequence[Any]) -> Rejected:
    topic, partition, offset, error_class, reason = told
    return Rejected(topic, partition, offset, Failure(error_class, reason))
