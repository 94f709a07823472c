"""What `penstock dlq` prints, at 80 and at 120 columns, as it was approved: tests/unit/cli/snapshots.

After a change that is meant: PENSTOCK_SNAPSHOTS=write pytest tests/unit/cli/test_letter_text.py, and read what changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import dlq_replay, letter_text, output
from penstock.deadletters.browse import Death, Letter
from penstock.deadletters.dead_letter import DeadLetter

SNAPSHOTS = Path(__file__).parent / "snapshots"
DECODE = Death("stream", "5f1c", 7, "decode", "wrong-type", 'amount: invalid decimal string; the value is "much"', 12)
RULE = Death("stream", "5f1c", 9, "contract", "broken-rule", "positive: not true: amount > 0; amount = -5.00")
AGAIN = Death(
    "replay 1", "replay-77", 0, "sink", "missing-field", "sink 'state' upserts by id, which is null", None, "state"
)
LETTERS = [
    Letter("payments", 3, 41, 1_793_527_200_000, 120, (DECODE,)),
    Letter("payments", 0, 1_234_567, 1_793_527_201_500, 133, (RULE,)),
    Letter("payments", 11, 98, 1_793_527_202_000, 90, (RULE, AGAIN), "dead", ("1",), frozenset({"5f1c"})),
    Letter("refunds.eu-west", 2, 5, -1, 9, (replace(DECODE, reason="not JSON\x1b[31m\nat all"),), "replayed", ("1",)),
    Letter("refunds.eu-west", 2, 6, 0, 9, (DECODE,), "replaying", ("2",)),
]
VALUE = (
    b'{"payment_id": "p-1", "account": "a-1", "amount": "much", "currency": "EUR", "status": "SETTLED", "tags": ["x"]}'
)
WHOLE = DeadLetter(
    key=b"\x00\xff\x10",
    value=VALUE,
    headers=[("trace", b"4bf92f3577b34da6"), ("trace", None), ("colour\x1b[31m", b"\x1b[31m")],
    topic="payments",
    partition=11,
    offset=98,
    timestamp_ms=1_793_527_202_000,
    timestamp_type=0,
    stage="contract",
    error_class="broken-rule",
    reason="",
    pipeline="payments",
    query="5f1c",
    batch=9,
)
GROUPS: list[dict[str, Any]] = [
    {
        "topic": "payments",
        "stage": "decode",
        "class": "wrong-type",
        "reason": "amount: invalid decimal string",
        "schema_ids": [1, 2, 3, 4, 5, 6],
        "count": 12_345,
        "sample": 'payments-3 offset 41: amount: invalid decimal string; the value is "much too much for one line"',
    },
    {
        "topic": "payments",
        "stage": "contract",
        "class": "broken-rule",
        "reason": "positive: not true: amount > 0 (by amount)",
        "schema_ids": [],
        "count": 7,
        "sample": "payments-0 offset 17: positive: not true: amount > 0; amount = -5.00",
    },
]
TRIED: dict[str, Any] = {
    "goes_on": None,
    "letters": 412,
    "left_out": {
        "a replay has brought them home already": 3,
        "on the list of replay 2, which is not finished: penstock dlq replay payments.yaml --as 2 --apply": 12,
    },
    "would_pass": 398,
    "would_die_again": 12,
    "would_be_dropped": 2,
    "rows": {"lake": 390, "state": 398},
    "reasons": [{**group, "count": 6} for group in GROUPS],
    "warnings": ["sink 'state' upserts without `order_by`: a replayed record replaces a newer row of its key"],
}
DONE: dict[str, Any] = {
    "replay": "3",
    "letters": 412,
    "passed": 398,
    "dead_again": 12,
    "dropped": 2,
    "written": {"lake": 390, "state": 398},
    "superseded": {"lake": 0, "state": 0},
    "left_out_before": {"lake": 8},
    "there_before": {},
}
DIED = {("5f1c", 9): "2026-11-01T10:00:07.123+00:00", ("replay-77", 0): "2026-11-02T09:00:00.000+00:00"}
COMMAND = "penstock dlq replay payments.yaml --class broken-rule --since 2026-11-01T00:00:00Z --apply"


@pytest.mark.parametrize("columns", [80, 120, None])
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("ls", lambda columns: letter_text.listed(LETTERS, 1200, 4, columns)),
        ("ls-none", lambda columns: letter_text.listed([], 0, 0, columns)),
        ("show", lambda columns: letter_text.shown(LETTERS[2], WHOLE, DIED, columns)),
        ("stats", lambda columns: letter_text.grouped(GROUPS, 12_352, 31, columns)),
        ("replay-dry-run", lambda columns: dlq_replay.tried(TRIED, COMMAND, columns)),
        ("replay", lambda columns: dlq_replay.done(DONE, {"a replay has brought them home already": 1}, columns)),
    ],
)
def test_text_is_as_it_was_approved_and_fits(
    name: str, lines: Callable[[int | None], Iterable[str]], columns: int | None
) -> None:
    found = [line for text in lines(columns) for line in text.split("\n")]
    prose = [line for line in found if not line.startswith("  penstock")]  # a command is there to be copied
    assert columns is None or max(map(len, prose)) <= columns
    assert not any("\x1b" in line for line in found)
    file = SNAPSHOTS / f"dlq-{name}-{columns or 'whole'}.txt"
    text = "\n".join(found) + "\n"
    if os.environ.get("PENSTOCK_SNAPSHOTS") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_width_is_that_of_the_terminal_and_a_file_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output.width() is None
    monkeypatch.setenv("COLUMNS", "93")
    assert output.width() == 93


def test_time_that_is_no_date_is_shown_as_the_number_it_is() -> None:
    """Microseconds, by a producer that took them for milliseconds."""
    wrong = replace(LETTERS[0], timestamp_ms=1_700_000_000_000_000)
    lines = list(letter_text.listed([wrong, LETTERS[1]], 0, 0, None))
    assert "  1700000000000000  " in lines[1]
    assert "  2026-11-01T10:00:01.500Z  " in lines[2]
    assert letter_text.moment(10**18) == str(10**18)


def test_where_nothing_matches_it_is_said_what_there_is() -> None:
    said = list(letter_text.listed([], 0, 0, 80, {"decode, wrong-type": 37, "contract, broken-rule": 3}))
    assert said == [
        "0 dead letters",
        "       3  of another kind: contract, broken-rule",
        "      37  of another kind: decode, wrong-type",
    ]
