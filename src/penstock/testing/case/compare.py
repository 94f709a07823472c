"""What came out against what a case expects. Pure functions over plain rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from penstock import record
from penstock.spec.case import AnyRows, Letter, Rows
from penstock.testing.case.result import Difference, Pair, Row
from penstock.testing.case.values import same

OWN = (record.KAFKA, record.KEY, record.DELETED)
_OF_LETTERS = ("topic", "partition", "offset", "stage", "error_class", "reason")  # shown of one that nobody expected

Same = Callable[[str, Any, Any], bool]
"""Column, expected, got."""


def rows_differ(of: str, expected: AnyRows, got: Sequence[Row], columns: Sequence[str]) -> Difference | None:
    """None: they are as expected. `columns`: those the rows have."""
    asked = expected if isinstance(expected, Rows) else Rows(rows=expected)
    named = [name for name in columns if any(name in row for row in asked.rows)]
    if asked.exact or not named:
        named = [name for name in columns if name not in OWN or name in named]
    wanted = [{name: row.get(name) for name in named} for row in asked.rows] if asked.exact else asked.rows

    def equal(_column: str, left: Any, right: Any) -> bool:
        return same(left, right, exact=asked.exact)

    pairs = _in_order(wanted, got, equal) if asked.in_order else _matched(wanted, got, equal)
    return None if all(pair.equal for pair in pairs) else Difference(of, tuple(named), tuple(pairs))


def letters_differ(expected: Sequence[Letter], got: Sequence[Row]) -> Difference | None:
    wanted = [
        {name: getattr(each, name) for name in Letter.model_fields if name in each.model_fields_set}
        for each in expected
    ]
    pairs = _matched(wanted, got, _same_in_letter)
    if all(pair.equal for pair in pairs):
        return None
    named = {name for row in wanted for name in row} | set(_OF_LETTERS)
    return Difference("dead letters", tuple(name for name in Letter.model_fields if name in named), tuple(pairs))


def _same_in_letter(column: str, expected: Any, got: Any) -> bool:
    if column == "reason":
        return isinstance(got, str) and str(expected) in got
    if column == "sinks":
        return sorted(expected or ()) == sorted(got or ())
    if column == "value" and isinstance(expected, dict | list) and isinstance(got, bytes):
        try:
            return same(expected, json.loads(got))
        except ValueError:
            return False
    return same(expected, got)


def _in_order(expected: Sequence[Row], got: Sequence[Row], equal: Same) -> list[Pair]:
    both = [_pair(left, right, equal) for left, right in zip(expected, got, strict=False)]
    return [
        *both,
        *(Pair(row, None) for row in expected[len(got) :]),
        *(Pair(None, row) for row in got[len(expected) :]),
    ]


def _matched(expected: Sequence[Row], got: Sequence[Row], equal: Same) -> list[Pair]:
    """As many rows as can be are matched whole; of the others, those that are most alike stand side by side."""
    differ = [[_differ(left, right, equal) for right in got] for left in expected]
    taken = _matching([[not columns for columns in row] for row in differ])
    free = [i for i in range(len(got)) if i not in taken.values()]
    alike = sorted(
        (len(differ[i][j]) - len(left), i, j)
        for i, left in enumerate(expected)
        if i not in taken
        for j in free
        if len(differ[i][j]) < len(left)
    )
    for _, i, j in alike:
        if i not in taken and j not in taken.values():
            taken[i] = j
    pairs = [
        Pair(left, got[taken[i]], differ[i][taken[i]]) if i in taken else Pair(left, None)
        for i, left in enumerate(expected)
    ]
    return [*pairs, *(Pair(None, row) for j, row in enumerate(got) if j not in taken.values())]


def _matching(fits: Sequence[Sequence[bool]]) -> dict[int, int]:
    """The largest matching: rows that name few columns must not take the places of those that name more."""
    owner: dict[int, int] = {}

    def place(i: int, seen: set[int]) -> bool:
        for j, fit in enumerate(fits[i]):
            if fit and j not in seen:
                seen.add(j)
                if j not in owner or place(owner[j], seen):
                    owner[j] = i
                    return True
        return False

    for i in range(len(fits)):
        place(i, set())
    return {i: j for j, i in owner.items()}


def _pair(expected: Row, got: Row, equal: Same) -> Pair:
    return Pair(expected, got, _differ(expected, got, equal))


def _differ(expected: Row, got: Row, equal: Same) -> tuple[str, ...]:
    return tuple(name for name, value in expected.items() if not equal(name, value, got.get(name)))
