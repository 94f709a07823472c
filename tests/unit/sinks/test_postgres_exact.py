"""Which pairs of types hold every value; what PostgreSQL does with the others is in test_values_kept.py."""

from __future__ import annotations

import pytest

from penstock.sinks.postgres.exact import doubt


@pytest.mark.parametrize(
    ("kind", "precision", "there", "says"),
    [
        ("long", None, "bigint", None),
        ("short", None, "real", None),
        ("float", None, "double precision[]", None),
        ("decimal", (6, 2), "real", None),
        ("decimal", (7, 2), "real", "numbers with more digits than real holds are dead letters"),
        ("decimal", (10, 2), "numeric(11,3)", None),
        ("decimal", (10, 2), "numeric(10,3)", "numbers out of its range are dead letters"),
        (
            "decimal",
            (10, 2),
            "numeric(4,-2)",
            "numbers that are no multiples of 1e2 or out of its range are dead letters",
        ),
        ("double", None, "numeric", None),
        ("string", None, "text", None),
        ("string", None, "character varying", None),
        ("string", None, "uuid", "texts that PostgreSQL does not read as uuid are dead letters"),
        ("string", None, 'shop."Odd mood"', 'texts that PostgreSQL does not read as shop."Odd mood" are dead letters'),
        ("date", None, "timestamp(0) with time zone", "the time is taken for one in UTC"),
        ("timestamp", None, "timestamp(6) with time zone", None),
        (
            "timestamp",
            None,
            "timestamp(3) without time zone",
            "times finer than 3 places of a second are dead letters; the time is kept in UTC, without a zone",
        ),
        (
            "boolean",
            None,
            "character(5)",
            "texts longer than 5 characters are dead letters; shorter texts are padded with blanks",
        ),
    ],
)
def test_types_that_hold_every_value_leave_no_doubt(
    kind: str, precision: tuple[int, int] | None, there: str, says: str | None
) -> None:
    found = doubt(kind, precision, there)
    assert (str(found) if found else None) == says
