"""The transaction that makes a batch visible: out of the staging tables into the target, together with its ledger row.

1. The batch is claimed in the ledger. A second attempt at it waits here for the first one, and then finds it done.
2. Of the rows and deletes of one key the newest one counts, as `latest.py` says which that is.
3. Deletes, then rows. When one of them is refused here (a foreign key, another unique index, a trigger), it is found by
   halving, and rejected; of what is left of its key the newest one counts, until one is taken or none is left.
4. The ledger row is filled in. Commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql

from penstock.errors import SinkFailed, counted
from penstock.record import Batch, Failure
from penstock.sinks.contract import Rejected, Written
from penstock.sinks.postgres import faults
from penstock.sinks.postgres.connection import Connection
from penstock.sinks.postgres.ledger import SinkLedger
from penstock.sinks.postgres.load import Report, refused
from penstock.sinks.postgres.names import OFFSET, SEQ, SOURCE, TASK, TIME, Staging, listed

# Sorting a batch on disk costs more than all the rest. Never less than what the server's owner allows.
_MEMORY = """
select set_config('work_mem', '64MB', true) where pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB')
"""
_APPEND = "insert into {target} ({columns}) select {columns} from {rows} where {reported}"
# In the order of the keys: two that do so cannot wait for each other in a circle.
_UPSERT = """
insert into {target} as held ({columns})
select {columns} from (
    select distinct on ({key}) * from (
        select distinct on ({key}, {source}) * from {rows} where {reported}
        order by {key}, {source}, {largest} {offset} desc nulls last, {seq} desc
    ) of_partition
    order by {key}, {largest} {time} desc nulls last, {place} desc nulls last
) latest
{on_conflict}
"""
# Which rows and deletes count, numbered in the order of their keys.
_WINNERS = "create temporary table penstock_winners on commit drop as "
_NEXT_WINNERS = "insert into penstock_winners "
_ALL_WIN = "select {seq} as seq, false as gone, false as forced, row_number() over () as n from {rows} where {reported}"
_LATEST_WIN = """
with every_one as ({sides}),
placed as (
    select *, row_number() over (partition by {k}, source order by at nulls first, seq) as nth from every_one
),
cut as (
    select *, max(nth) filter (where {unordered}) over (partition by {k}, source) as after from placed
),
of_partition as (
    select distinct on ({k}, source) * from cut where after is null or nth >= after
    order by {k}, source, value desc nulls last, nth desc
)
select seq, gone, after is not null as forced, row_number() over (order by {k}) as n from (
    select distinct on ({k}) * from of_partition
    order by {k}, value desc nulls last, time desc nulls last, source desc nulls last
) latest
"""
_SIDE = """
select {keys}, {value} as value, {place} as source, {time} as time, {offset} as at, {seq} as seq, {gone} as gone
from {table} where {reported} {among}
"""
# Where a source stands among those of the batch by topic and partition. Found by halving: a batch can have thousands.
_PLACE = "(array[{places}]::integer[])[width_bucket({source}, array[{numbers}]::bigint[])]"
# Keys of which a row or delete was refused, and what is asked of the others of such a key.
_AGAIN = "create temporary table penstock_again on commit drop as select {key} from {rows} where false"
_AMONG = "and ({key}) in (select {key} from penstock_again)"
_TOLD = "penstock_winners w join {table} told on told.{seq} = w.seq and told.{reported}"
_INSERT = """
insert into {target} as held ({columns})
select {told_columns} from {told} where not w.gone and w.forced = {forced} and w.n between {first} and {last}
order by w.n {on_conflict}
"""
_DELETES = "select count(*) from {told} where w.gone and w.n between {first} and {last}"
_TOO_OLD = _DELETES + " and exists (select from {target} held where {same} and {older})"
_DELETE = """
delete from {target} held using {told} where w.gone and w.n between {first} and {last} and {same} and not ({older})
"""


@dataclass(frozen=True)
class Merge:
    """One batch on its way from staging to target. Nothing of it stays when the transaction is rolled back."""

    sink: str
    ledger: SinkLedger
    batch: Batch
    target: sql.Identifier
    staging: Staging
    columns: Sequence[str]
    key: Sequence[str]
    order_by: str | None
    reports: Sequence[Report]
    _refused: list[Rejected] = field(default_factory=list, repr=False)

    def run(self, connection: Connection) -> Written:
        """Called again from the start when another transaction was in the way."""
        self._refused.clear()
        with connection.transaction():
            connection.execute(_MEMORY)
            connection.execute("set constraints all immediate")  # what is refused must be refused where it is known
            if not self.ledger.claim(connection, self.batch):
                done = self.ledger.find(connection, self.batch)
                assert done is not None  # nobody deletes from the ledger
                return done
            rows, deletes = sum(r.rows for r in self.reports), sum(r.gone for r in self.reports)
            self._check_staged(connection, self.staging.rows, rows)
            if deletes:
                self._check_staged(connection, self.staging.gone, deletes)
            applied = self._apply(connection, bool(deletes)) if rows or deletes else 0
            rejected = [Rejected(t, p, o, Failure(c, why)) for r in self.reports for t, p, o, c, why in r.rejected]
            done = Written(applied, rows + deletes - applied - len(self._refused), (*rejected, *self._refused))
            self.ledger.fill(connection, self.batch, done)
        return done

    def _check_staged(self, connection: Connection, table: sql.Identifier, expected: int) -> None:
        [(held,)] = self._run(connection, "select count(*) from {table} where {reported}", table=table).fetchall()
        if held != expected:
            raise SinkFailed(
                f"sink '{self.sink}': tasks loaded {counted(expected, 'row')} of batch {self.batch.id}, "
                f"the staging table holds {held:,}",
                cause="somebody changed a staging table of Penstock",
                next_command="penstock run FILE: the batch is loaded again",
            )

    def _apply(self, connection: Connection, deletes: bool) -> int:
        """How many rows and deletes took effect. Mostly one statement does it, unless a row is refused."""
        if not deletes and not any(report.unordered for report in self.reports):
            try:
                with connection.transaction():
                    return self._run(connection, _UPSERT if self.key else _APPEND).rowcount
            except psycopg.Error as error:
                if not faults.is_of_row(error):
                    raise
        done, rounds, refused = 0, 0, -1
        while len(self._refused) > refused and (self.key or not rounds):
            refused = len(self._refused)
            last = self._choose(connection, deletes, rounds)
            done += self._some(connection, True, 1, last) if deletes else 0
            done += self._some(connection, False, 1, last)
            rounds += 1
        return done

    def _choose(self, connection: Connection, deletes: bool, rounds: int) -> int:
        """Write down which rows and deletes count: of every key, then of those of which one was refused. Returns the
        last one's number."""
        if rounds:
            connection.execute("truncate penstock_winners")
        if self.key:
            among = self._filled(_AMONG) if rounds else sql.SQL("")
            keys = sql.SQL(", ").join(
                sql.SQL("{} as {}").format(sql.Identifier(k), sql.Identifier(f"k{i}")) for i, k in enumerate(self.key)
            )
            value = sql.Identifier(self.order_by) if self.order_by else sql.SQL("null::bigint")
            tables = {"false": self.staging.rows, **({"true": self.staging.gone} if deletes else {})}
            sides = [
                self._filled(_SIDE, keys=keys, value=value, gone=sql.SQL(gone), table=table, among=among)
                for gone, table in tables.items()
            ]
            k = listed([f"k{i}" for i in range(len(self.key))])
            all_sides = sql.SQL(" union all ").join(sides)
            unordered = sql.SQL("value is null" if self.order_by else "false")
            latest = (_NEXT_WINNERS if rounds else _WINNERS) + _LATEST_WIN
            made = self._run(connection, latest, sides=all_sides, k=k, unordered=unordered)
        else:
            made = self._run(connection, _WINNERS + _ALL_WIN)
        if self.key:
            self._run(connection, "truncate penstock_again" if rounds else _AGAIN)
        if not rounds:
            self._run(connection, "create index on {rows} ({seq})")
            connection.execute("create index on penstock_winners (n)")
            connection.execute("analyze penstock_winners")
        elif rounds == 1:  # a key may have many that are refused, one after the other
            self._run(connection, "create index on {rows} ({key})")
        return made.rowcount

    def _some(self, connection: Connection, deletes: bool, first: int, last: int) -> int:
        """Apply the deletes or the rows among the winners from first to last; halve them when one is refused."""
        if first > last:
            return 0
        try:
            with connection.transaction():
                return (self._delete if deletes else self._insert)(connection, first, last)
        except psycopg.Error as error:
            if not faults.is_of_row(error):
                raise
            why = faults.failure(error)
        if first == last:
            self._reject(connection, deletes, first, why)
            return 0
        half = (first + last) // 2
        return self._some(connection, deletes, first, half) + self._some(connection, deletes, half + 1, last)

    def _delete(self, connection: Connection, first: int, last: int) -> int:
        """A delete of a key that is not there has its effect; one that is older than the row that is there has none."""
        same = sql.SQL(" and ").join(sql.SQL("held.{0} = told.{0}").format(sql.Identifier(k)) for k in self.key)
        older: sql.Composable = sql.SQL("false")
        if self.order_by:
            newer = sql.SQL("coalesce(held.{0} > told.{0}, false) and not w.forced")
            older = newer.format(sql.Identifier(self.order_by))
        which = {"told": self._told(self.staging.gone), "same": same, "older": older} | _between(first, last)
        [(every,)] = self._run(connection, _DELETES, **which).fetchall()
        [(too_old,)] = self._run(connection, _TOO_OLD, **which).fetchall() if self.order_by else [(0,)]
        self._run(connection, _DELETE, **which)
        return int(every - too_old)

    def _insert(self, connection: Connection, first: int, last: int) -> int:
        """What counts by its place, and not by a value of `order_by`, is not compared with what the table holds."""
        done = 0
        for forced in (True, False):
            done += self._run(
                connection,
                _INSERT,
                told_columns=listed(self.columns, "told"),
                told=self._told(self.staging.rows),
                forced=sql.Literal(forced),
                on_conflict=self._on_conflict(None if forced else self.order_by),
                **_between(first, last),
            ).rowcount
        return done

    def _on_conflict(self, order_by: str | None) -> sql.Composable:
        if not self.key:
            return sql.SQL("")
        changed = [name for name in self.columns if name not in self.key] or [self.key[0]]
        updates = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed)
        newer = sql.SQL(" where held.{0} is null or excluded.{0} >= held.{0}")
        return sql.SQL("on conflict ({}) do update set {}{}").format(
            listed(self.key), updates, newer.format(sql.Identifier(order_by)) if order_by else sql.SQL("")
        )

    def _reject(self, connection: Connection, deletes: bool, number: int, why: Failure) -> None:
        table, shown = (self.staging.gone, self.key) if deletes else (self.staging.rows, self.columns)
        [(source, offset, *values)] = self._run(
            connection,
            "select {own}, {shown} from {told} where w.n = {number}",
            own=listed([SOURCE, OFFSET], "told"),
            shown=listed(shown, "told"),
            told=self._told(table),
            number=sql.Literal(number),
        ).fetchall()
        if source is None:
            raise refused(self.sink, dict(zip(shown, values, strict=True)), self.key, why)
        topic, partition = self._sources[source]
        self._refused.append(Rejected(topic, partition, offset, faults.of_sink(self.sink, why)))
        if self.key:
            which = {"told": self._told(table), "number": sql.Literal(number), "keys": listed(self.key, "told")}
            self._run(connection, "insert into penstock_again select {keys} from {told} where w.n = {number}", **which)
            gone = "delete from {table} using penstock_winners w where w.n = {number} and {seq} = w.seq and {reported}"
            self._run(connection, gone, table=table, number=sql.Literal(number))

    @cached_property
    def _sources(self) -> dict[int, tuple[str, int]]:
        """Topic and partition of every number that staging has for them."""
        return {number: (topic, partition) for report in self.reports for number, topic, partition in report.sources}

    @cached_property
    def _place(self) -> sql.Composable:
        """Numbers of staging have no order; of records that are equal otherwise every sink must choose the same one."""
        places = {number: place for place, (_, number) in enumerate(sorted((s, n) for n, s in self._sources.items()))}
        numbers = sorted(places)
        return sql.SQL(_PLACE).format(
            places=sql.SQL(", ").join(sql.Literal(places[number]) for number in numbers),
            source=sql.Identifier(SOURCE),
            numbers=sql.SQL(", ").join(map(sql.Literal, numbers)),
        )

    def _told(self, table: sql.Identifier) -> sql.Composable:
        return self._filled(_TOLD, table=table)

    def _run(self, connection: Connection, statement: str, **parts: sql.Composable) -> psycopg.Cursor[tuple[Any, ...]]:
        return connection.execute(self._filled(statement, **parts))

    def _filled(self, statement: str, **parts: sql.Composable) -> sql.Composed:
        """With what every statement may name. Numbers are literals: with arguments, a % in a name would be taken for
        one of them."""
        largest = sql.SQL("{} desc nulls last,").format(sql.Identifier(self.order_by)) if self.order_by else sql.SQL("")
        tasks = sql.SQL(", ").join(sql.Literal(report.task) for report in self.reports)
        known: dict[str, sql.Composable] = {
            "target": self.target,
            "rows": self.staging.rows,
            "columns": listed(self.columns),
            "key": listed(self.key),
            "seq": sql.Identifier(SEQ),
            "offset": sql.Identifier(OFFSET),
            "reported": sql.SQL("{} = any(array[{}]::bigint[])").format(sql.Identifier(TASK), tasks),
            "source": sql.Identifier(SOURCE),
            "place": self._place,
            "time": sql.Identifier(TIME),
            "largest": largest,
            "on_conflict": self._on_conflict(self.order_by),
        }
        return sql.SQL(statement).format(**(known | parts))


def _between(first: int, last: int) -> dict[str, sql.Composable]:
    return {"first": sql.Literal(first), "last": sql.Literal(last)}
