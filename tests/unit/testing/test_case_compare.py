"""Rows and dead letters that came against those that were expected, and the picture of the difference."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import RuleStopped
from penstock.spec.case import Letter, Rows
from penstock.testing.case.compare import letters_differ, rows_differ
from penstock.testing.case.result import Difference, Result

SNAPSHOTS = Path(__file__).parent / "snapshots"
COLUMNS = ("id", "amount", "day", "_kafka")


def row(id_: str, amount: str = "12.50", day: str = "2026-11-01") -> dict[str, Any]:
    return {"id": id_, "amount": Decimal(amount), "day": day, "_kafka": {"offset": 1}}


def differ(expected: Any, *got: dict[str, Any]) -> Difference | None:
    return rows_differ("sink lake", expected, got, COLUMNS)


def test_only_named_columns_count_and_order_does_not() -> None:
    assert differ([{"id": "b"}, {"id": "a", "amount": 12.5}], row("a"), row("b")) is None


def test_row_that_names_little_leaves_the_other_one_to_the_row_that_names_more() -> None:
    assert differ([{"day": "2026-11-01"}, {"id": "a"}], row("a"), row("b")) is None
    assert differ([{"id": "a"}, {"day": "2026-11-01"}, {"amount": 12.5}], row("b"), row("c"), row("a")) is None


def test_row_too_few_and_row_too_many() -> None:
    found = differ([{"id": "a"}, {"id": "a"}], row("a"))
    assert found is not None
    assert (found.expected, found.got, [pair.got is None for pair in found.pairs]) == (2, 1, [False, True])
    found = differ([], row("a"))
    assert found is not None
    assert found.columns == ("id", "amount", "day")  # nothing says which ones matter: all but our own
    assert differ([]) is None


def test_rows_that_are_most_alike_stand_side_by_side() -> None:
    found = differ([{"id": "a", "amount": 1, "day": "x"}, {"id": "b", "amount": 2, "day": "x"}], row("b"), row("a"))
    assert found is not None
    assert [(p.expected["id"], p.got["id"], p.differ) for p in found.pairs if p.expected and p.got] == [
        ("a", "a", ("amount", "day")),
        ("b", "b", ("amount", "day")),
    ]


def test_exact_rows_name_every_column_but_our_own() -> None:
    whole = {"id": "a", "amount": 12.5, "day": "2026-11-01"}
    assert differ(Rows(rows=[whole], exact=True), row("a")) is None
    found = differ(Rows(rows=[{"id": "a", "amount": 12.5}], exact=True), row("a"))
    assert found is not None
    assert found.pairs[0].differ == ("day",)


def test_order_counts_where_it_is_asked_for() -> None:
    assert differ(Rows(rows=[{"id": "a"}, {"id": "b"}], in_order=True), row("a"), row("b")) is None
    assert differ(Rows(rows=[{"id": "b"}, {"id": "a"}], in_order=True), row("a"), row("b")) is not None


LETTER = {
    "topic": "payments",
    "partition": 0,
    "offset": 3,
    "key": b"k",
    "value": b'{"amount": -5, "id": "p-1"}',
    "headers": [],
    "timestamp": datetime(2026, 11, 1, tzinfo=UTC),
    "stage": "contract",
    "error_class": "broken-rule",
    "rule": "positive",
    "reason": "positive: not true: amount > 0; amount = -5.00",
    "sinks": None,
}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"topic": "payments", "partition": 0, "offset": 3, "key": "k"},
        {"rule": "positive", "reason": "amount = -5", "stage": "contract"},
        {"value": {"amount": -5}},
        {"value": '{"amount": -5, "id": "p-1"}'},
        {"sinks": None},
    ],
)
def test_letter_as_expected(said: dict[str, Any]) -> None:
    assert letters_differ([Letter(**said)], [LETTER]) is None


@pytest.mark.parametrize(
    "said",
    [
        {"offset": 4},
        {"reason": "amount = -6"},
        {"value": {"amount": 5}},
        {"value": "x"},
        {"rule": "other"},
        {"sinks": ["lake"]},
    ],
)
def test_another_letter(said: dict[str, Any]) -> None:
    found = letters_differ([Letter(**said)], [LETTER])
    assert found is not None
    assert "reason" in found.columns


def wide(amount: str, note: str) -> dict[str, Any]:
    return {"id": "p-1", "amount": Decimal(amount), "note": note, "tags": ["one", "two"]}


LONG = "a note that goes on and on, with many words in it, and is far too long for one line of a terminal"
PICTURES: dict[str, Result] = {
    "rows": Result(
        Path("t.test.yaml"),
        3,
        "rows",
        differences=tuple(
            filter(
                None,
                [
                    differ(
                        [
                            {"id": "a", "amount": 1},
                            {"id": "b", "amount": 12.5},
                            {"id": "c", "amount": 12.5},
                            {"id": "d", "amount": 12.5},
                            {"id": "e", "amount": 12.5},
                            {"id": "f", "amount": 12.5},
                        ],
                        *(row(name) for name in "abcde"),
                        row("5", "0.01"),
                    )
                ],
            )
        ),
    ),
    "wide": Result(
        Path("t.test.yaml"),
        3,
        "wide",
        differences=tuple(
            filter(
                None,
                [
                    rows_differ(
                        "sink lake",
                        [wide("1", LONG), wide("2", "x"), {**wide("3", "y"), "id": "p-3", "tags": []}],
                        [wide("1", LONG.replace("many", "few")), wide("2", "x"), wide("4", "z")],
                        ("id", "amount", "note", "tags"),
                    ),
                    letters_differ([], [LETTER]),
                ],
            )
        ),
    ),
    "error": Result(
        Path("t.test.yaml"),
        3,
        "error",
        notes=("dropped by known: 2 expected, 0 got",),
        error=RuleStopped("a record broke a rule that stops the pipeline: payments.positive at payments-0 offset 0",
                          cause="the rule says `otherwise: stop`", next_command="mend the rule"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PICTURES)
def test_picture_at_80_columns(name: str) -> None:
    """After a change that is meant: PENSTOCK_SNAPSHOTS=write pytest tests/unit/testing/test_case_compare.py"""
    text = PICTURES[name].text(80) + "\n"
    assert all(len(line) <= 80 for line in text.split("\n"))
    file = SNAPSHOTS / f"{name}-80.txt"
    if os.environ.get("PENSTOCK_SNAPSHOTS") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()
