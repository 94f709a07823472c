"""Names in PostgreSQL: taken as they are written, checked, and always quoted."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

_LIMIT = 63  # bytes; PostgreSQL cuts a longer name short without an error, and two columns could become one
_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


@dataclass(frozen=True)
class TableName:
    """A table, in the schema it was said to be in or, without one, in the first of the user's search path."""

    schema: str | None
    table: str

    @staticmethod
    def parse(text: str) -> TableName:
        """`table`, `schema.table`; a part with a dot or a quote in double quotes. Raises ValueError."""
        parts, at = [], 0
        while found := _PART.match(text, at):
            part = found[2] if found[1] is None else found[1].replace('""', '"')
            if fault := name_fault(part):
                raise ValueError(fault)
            parts.append(part)
            at = found.end()
            if at == len(text):
                break
            if text[at] != ".":
                raise ValueError('what follows a name in double quotes is "." or nothing')
            at += 1
        if at != len(text) or len(parts) not in (1, 2) or text.endswith("."):
            raise ValueError("it is neither `table` nor `schema.table`")
        return TableName(parts[0] if len(parts) == 2 else None, parts[-1])

    def quoted(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table) if self.schema is not None else sql.Identifier(self.table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema is not None else self.table


def name_fault(name: str) -> str | None:
    """Why this is no name of a table or column there, or None."""
    if not name:
        return "a name is empty"
    if "\0" in name:
        return "a name holds a NUL character"
    if len(name.encode()) > _LIMIT:
        return f"'{name}' has {len(name.encode())} bytes, and names there have at most {_LIMIT}"
    return None


@dataclass(frozen=True)
class Staging:
    """The tables one attempt at a batch is loaded into: `rows`, and `gone` for the keys of deletes."""

    schema: str
    name: str

    @staticmethod
    def prefix(pipeline: str, sink: str) -> str:
        """What all attempts of a pipeline's sink have in common, so that those a crash left behind are found."""
        return f"penstock_staging_{hashlib.sha256(f'{pipeline}/{sink}'.encode()).hexdigest()[:12]}_"

    @staticmethod
    def new(schema: str, pipeline: str, sink: str) -> Staging:
        return Staging(schema, Staging.prefix(pipeline, sink) + secrets.token_hex(6))

    @property
    def rows(self) -> sql.Identifier:
        return sql.Identifier(self.schema, f"{self.name}_rows")

    @property
    def gone(self) -> sql.Identifier:
        return sql.Identifier(self.schema, f"{self.name}_gone")


# What staging tables have beside the columns that are written.
TASK = "_penstock_task"  # which attempt at a Spark task loaded the row: one that was given up leaves rows behind
SEQ = "_penstock_seq"  # unique in the batch, in the order the rows were read
SOURCE = "_penstock_source"  # stands for topic and partition; what it means is in the reports of the tasks
OFFSET = "_penstock_offset"
TIME = "_penstock_time"  # the record's timestamp, where it may be needed to compare records of two partitions
GONE = "_penstock_gone"  # whether a row on its way to a worker is a delete; no column of a table
SENT = "_penstock_sent_"  # and a column's number: its value as it was sent, where the column may change it
OWN = {TASK: "bigint not null", SEQ: "bigint not null", SOURCE: "bigint", OFFSET: "bigint", TIME: "bigint"}


def listed(names: Sequence[str], prefix: str = "") -> sql.Composed:
    """`"a", "b"`, or with a prefix `p."a", p."b"`."""
    dotted = sql.SQL(f"{prefix}." if prefix else "")
    return sql.SQL(", ").join(dotted + sql.Identifier(name) for name in names)
