"""Enrichment: each row of a view once, with columns of the row of a reference table that has the same key.

A left join on a key that is unique in the table (whoever gives the table has made sure of that), so it counts as row
for row: `transform.sql` knows the join by the name of its right side. Where the table is small every task gets a copy
of it, and rows stay in their task and in their order.

With `missing: dead-letter` rows without a match are left out of the view; `lacking` says which records they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import StepFailed
from penstock.record import KAFKA, MISSING_KEY, RESERVED, Batch, Failure, shortened
from penstock.spec.enrich import Enrich
from penstock.spec.types import quoted
from penstock.transform.sql import ENRICHED, row_for_row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST = 100_000  # records of a batch that may lack their key; where more do, the table is wrong and not the records
_THERE = "_penstock_there"

Where = tuple[str, int, int]


class References(Protocol):
    """The reference tables of a pipeline, as they are for the batch that runs."""

    def views(self, spark: SparkSession, /) -> dict[str, DataFrame]: ...

    def is_small(self, name: str, /) -> bool: ...

    def heard_by(self, watch: Any, /) -> None:
        """Tell what is read, and what cannot be."""

    def begin(self, spark: SparkSession, batch: Batch, /) -> bool:
        """Called when a batch begins: whether a table is another one than before."""


def rows(view: str, how: Enrich, made: dict[str, DataFrame], references: References) -> DataFrame:
    from pyspark.sql import functions as F

    left, right = _named(made, how.from_), _named(made, how.reference)
    _check(view, how, left, right)
    keys, columns = list(how.on.values()), _columns(how, right)
    named = {_key(i): F.col(quoted(key)) for i, key in enumerate(keys)}
    table = right.select(
        *(column.alias(name) for name, column in named.items()),
        *(F.col(quoted(name)).alias(how.named(name)) for name in columns),
        F.lit(True).alias(_THERE),
    ).alias(f"{ENRICHED}{view}")
    table = F.broadcast(table) if references.is_small(how.reference) else table
    joined = left.join(table, _same(how, left), "left")
    kept = joined.where(F.col(_THERE)) if how.missing else joined
    return kept.drop(_THERE, *named)


def lacking(view: str, how: Enrich, made: dict[str, DataFrame], references: References) -> dict[Where, Failure]:
    """The records of the batch whose key the table does not have. Raises StepFailed where they are too many."""
    from pyspark.sql import functions as F

    left, right = _named(made, how.from_), _named(made, how.reference)
    keys = [F.col(quoted(name)) for name in how.on]
    table = right.select(*(F.col(quoted(name)).alias(_key(i)) for i, name in enumerate(how.on.values())))
    table = F.broadcast(table) if references.is_small(how.reference) else table
    without = left.join(table, _same(how, left), "left_anti")
    said = F.concat_ws(
        ", ",
        *(F.concat(F.lit(f"{name} = "), F.coalesce(key.cast("string"), F.lit("null"))) for name, key in
          zip(how.on, keys, strict=True)),
    )  # fmt: skip
    at = F.col(KAFKA)
    wanted = without.select(at["topic"], at["partition"], at["offset"], said.alias("said")).limit(MOST + 1)
    found = {
        (row[0], row[1], row[2]): Failure(
            MISSING_KEY, shortened(f"step '{view}': reference '{how.reference}' has no row for {row['said']}")
        )
        for row in wanted.collect()
    }
    if len(found) > MOST:
        raise StepFailed(
            f"step '{view}': reference '{how.reference}' lacks the keys of more than {MOST:,} records of a batch",
            cause=next(iter(found.values())).reason,
            next_command=f"fix the reference '{how.reference}'; or let the columns be null: `missing: null`",
            facts={"view": view, "reference": how.reference},
        )
    return found


def require_one_row_each(view: str, how: Enrich, made: dict[str, DataFrame], sources: dict[str, DataFrame]) -> None:
    """A record dies or it does not: where a view has several rows of one, some of them might be written."""
    if not any(row_for_row(_named(made, how.from_), source) for source in sources.values()):
        raise StepFailed(
            f"step '{view}' cannot tell which records lack their key",
            cause=f"view '{how.from_}' has not one row of each record, which `missing: dead-letter` needs",
            next_command=f"look up before that, or take `missing: null`; view '{view}' in the spec",
            facts={"view": view, "reference": how.reference},
        )


def feeds(view: str, rows: DataFrame) -> bool:
    """Whether rows are made with the look-up of this step."""
    return re.search(rf"{ENRICHED}{view}\b", rows._jdf.queryExecution().analyzed().toString()) is not None


def _same(how: Enrich, left: DataFrame) -> Column:
    from pyspark.sql import functions as F

    sides = [left[quoted(name)] == F.col(_key(i)) for i, name in enumerate(how.on)]
    return reduce(lambda a, b: a & b, sides)


def _key(number: int) -> str:
    return f"_penstock_key_{number}"


def _named(made: dict[str, DataFrame], name: str) -> DataFrame:
    return next(rows for view, rows in made.items() if view.lower() == name.lower())


def _check(view: str, how: Enrich, left: DataFrame, right: DataFrame) -> None:
    there, have = ({name.lower() for name in side.columns} for side in (right, left))
    wrong: list[Callable[[], str | None]] = [
        lambda: next((f"view '{how.from_}' has no column '{n}'" for n in how.on if n.lower() not in have), None),
        lambda: next(
            (
                f"reference '{how.reference}' has no column '{n}'; it has {', '.join(right.columns)}"
                for n in (*how.on.values(), *(how.columns or {}))
                if n.lower() not in there
            ),
            None,
        ),
        lambda: next((f"column '{n}' is in the view already: rename it" for n in _added(how, right, have)), None),
        lambda: (
            f"view '{how.from_}' has no column `{KAFKA}`: which record a row came from is not known"
            if how.missing and KAFKA not in left.columns
            else None
        ),
        lambda: _of_another_kind(how, left, right),
    ]
    for check in wrong:
        if cause := check():
            raise StepFailed(
                f"step '{view}' cannot look up '{how.reference}'",
                cause=cause,
                next_command=f"correct view '{view}' in the spec",
                facts={"view": view, "reference": how.reference},
            )


def _added(how: Enrich, right: DataFrame, have: set[str]) -> list[str]:
    return [how.named(name) for name in _columns(how, right) if how.named(name).lower() in have]


def _columns(how: Enrich, right: DataFrame) -> list[str]:
    """Those of the table that are added."""
    left_out = {*RESERVED, *(name.lower() for name in how.on.values())}
    return list(how.columns) if how.columns else [name for name in right.columns if name.lower() not in left_out]


def _of_another_kind(how: Enrich, left: DataFrame, right: DataFrame) -> str | None:
    """Text that is compared with a number is converted, row by row, and fails on the first one that is none."""
    for mine, theirs in how.on.items():
        one, other = left.select(quoted(mine)).schema[0].dataType, right.select(quoted(theirs)).schema[0].dataType
        if (one.typeName() == "string") != (other.typeName() == "string"):
            return f"'{mine}' is {one.simpleString()}, '{theirs}' is {other.simpleString()}: they are never equal"
    return None
