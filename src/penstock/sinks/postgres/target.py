"""The table that is written: found, made, and made staging tables like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import errors as pg
from psycopg import sql

from penstock.sinks.postgres.columns import Column, Plan, TableColumn, Unsuitable
from penstock.sinks.postgres.connection import Connection
from penstock.sinks.postgres.names import OWN, Staging, TableName, listed

_FIND = """
select c.oid, n.nspname, c.relname, c.relkind::text
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)
"""
# `below` goes through domains, and through those of the items of an array, to the type that holds the values.
_COLUMNS = """
with recursive below as (
    select a.attnum, 0 as depth, a.atttypid as type, a.atttypmod as modifier, '' as suffix
    from pg_attribute a where a.attrelid = %(table)s and a.attnum > 0 and not a.attisdropped
    union all
    select b.attnum, b.depth + 1, case t.typtype when 'd' then t.typbasetype else t.typelem end,
        case t.typtype when 'd' then t.typtypmod else -1 end, case t.typtype when 'd' then b.suffix else '[]' end
    from below b join pg_type t on t.oid = b.type left join pg_type item on item.oid = t.typelem
    where t.typtype = 'd' or (t.typcategory = 'A' and item.typtype = 'd')
),
plain as (select distinct on (attnum) * from below order by attnum, depth desc)
select a.attname, format_type(a.atttypid, a.atttypmod), format_type(p.type, p.modifier) || p.suffix, t.typname,
    case p.suffix when '' then t.typcategory::text else 'A' end,
    (a.attnotnull or own.typnotnull) and not a.atthasdef and a.attidentity = '',
    a.attgenerated <> '' or a.attidentity = 'a'
from pg_attribute a join plain p using (attnum)
    join pg_type t on t.oid = p.type join pg_type own on own.oid = a.atttypid
where a.attrelid = %(table)s order by a.attnum
"""
_UNIQUE = """
select (select array_agg(a.attname::text) from unnest(i.indkey[0:i.indnkeyatts - 1]) k
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k)
from pg_index i
where i.indrelid = %s and i.indisunique and i.indimmediate and i.indisvalid
    and i.indpred is null and i.indexprs is null
"""
_RELATIONS = """
select distinct left(c.relname, -5) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and starts_with(c.relname, %s) and c.relkind = 'r'
"""


@dataclass(frozen=True)
class Target:
    """A table as it is in the database."""

    name: TableName  # with its schema
    columns: dict[str, TableColumn]
    unique: tuple[frozenset[str], ...]

    def check_key(self, key: Sequence[str]) -> None:
        """Only a unique index can say which row is the one to replace."""
        if key and frozenset(key) not in self.unique:
            columns = ", ".join(key)
            raise Unsuitable(
                f"table {self.name} has no primary key or unique index on exactly ({columns})",
                f"add one: alter table {self.name} add primary key ({columns})",
            )


def find(connection: Connection, name: TableName) -> Target | None:
    found = connection.execute(_FIND, [name.quoted().as_string(connection)]).fetchone()
    if found is None:
        return None
    oid, schema, table, kind = found
    if kind not in ("r", "p"):
        raise Unsuitable(f"{name} is not a table", "name a table, or drop what has its name")
    columns = {column: TableColumn(*facts) for column, *facts in connection.execute(_COLUMNS, {"table": oid})}
    unique = tuple(frozenset(names) for (names,) in connection.execute(_UNIQUE, [oid]))
    return Target(TableName(schema, table), columns, unique)


def schema_of(connection: Connection, name: TableName) -> str | None:
    """The schema a new table of this name would be in; None where the search path names no schema that exists."""
    if name.schema is not None:
        return name.schema
    found = connection.execute("select current_schema()").fetchone()
    return found[0] if found else None


def create(connection: Connection, name: TableName, plan: Plan, key: Sequence[str]) -> None:
    """Make the table, unless somebody was faster."""
    parts = [sql.Identifier(c.name) + sql.SQL(f" {c.type}") for c in plan.columns]
    if key:
        parts.append(sql.SQL("primary key ({})").format(listed(list(key))))
    try:
        connection.execute(sql.SQL("create table {} ({})").format(name.quoted(), sql.SQL(", ").join(parts)))
    except (pg.DuplicateTable, pg.UniqueViolation):  # the latter when both were at it
        return


def stage(connection: Connection, target: Target, staging: Staging, plan: Plan, told: Sequence[str]) -> None:
    """Make the staging tables of an attempt, and keep the session's lock that says it is alive.

    They are like the target, so that what it cannot take fails while it is loaded, where the row is known; and so does
    what it would change (`exact`), deletes too, which would delete another row. Unlogged:
    they do not outlive the attempt, and a crash of the server, which empties them, also ends the attempt.
    `told`: the columns a delete has.
    """
    connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", [staging.name])
    like = sql.SQL("like {} including constraints including defaults including generated").format(target.name.quoted())
    own = sql.SQL(", ").join(sql.Identifier(name) + sql.SQL(f" {kind}") for name, kind in OWN.items())
    checked = {column.name: _checked(sent, column) for sent, column in plan.sent().items()}
    parts = sql.SQL(", ").join([like, own, *checked.values()])
    connection.execute(sql.SQL("create unlogged table {} ({})").format(staging.rows, parts))
    filled_later = [sql.Identifier(name) for name in target.columns if name not in plan.names]
    if filled_later:
        free = sql.SQL(", ").join(sql.SQL("alter column {} drop not null").format(name) for name in filled_later)
        connection.execute(sql.SQL("alter table {} {}").format(staging.rows, free))
    if plan.deletes:
        typed = [sql.Identifier(c.name) + sql.SQL(f" {c.type}") for c in plan.columns if c.name in told]
        parts = sql.SQL(", ").join([*typed, own, *(check for name, check in checked.items() if name in told)])
        connection.execute(sql.SQL("create unlogged table {} ({})").format(staging.gone, parts))


def _checked(sent: str, column: Column) -> sql.Composed:
    assert column.doubt is not None
    holds = column.doubt.condition(column.name, sent)
    return sql.SQL("{0} text, constraint {0} check ({1})").format(sql.Identifier(sent), holds)


def drop(connection: Connection, staging: Staging) -> None:
    """Let go of an attempt's tables. One that somebody still holds is left to the next attempt."""
    try:
        with connection.transaction():
            connection.execute("set local lock_timeout = '2s'")
            for table in (staging.rows, staging.gone):
                connection.execute(sql.SQL("drop table if exists {}").format(table))
    except (pg.LockNotAvailable, pg.DeadlockDetected):
        pass


def drop_stale(connection: Connection, schema: str, prefix: str) -> None:
    """Drop what attempts that died left behind. One that is alive holds its lock."""
    for (name,) in connection.execute(_RELATIONS, [schema, prefix]).fetchall():
        mine = connection.execute("select pg_try_advisory_lock(hashtextextended(%s, 0))", [name]).fetchone()
        if mine and mine[0]:
            drop(connection, Staging(schema, name))
            connection.execute("select pg_advisory_unlock(hashtextextended(%s, 0))", [name])
