"""Records that a step fails on, found by halving: all of them, no other, and not one by one where most are sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.batch import bisect
from penstock.errors import StepFailed
from penstock.record import OffsetRange

Place = tuple[str, int, int]
RANGES = [OffsetRange("t", 0, 5, 21), OffsetRange("t", 1, 0, 3), OffsetRange("u", 0, 7, 8)]
PLACES = [(r.topic, r.partition, offset) for r in RANGES for offset in range(r.start, r.end)]


def failing_on(bad: set[Place], trials: list[int]) -> Callable[[list[OffsetRange]], str | None]:
    """An engine that says of some records that one of them is wrong, and not which."""

    def tried(part: list[OffsetRange]) -> str | None:
        trials.append(sum(map(len, part)))
        inside = {(r.topic, r.partition, offset) for r in part for offset in range(r.start, r.end)}
        return "[CAST_INVALID_INPUT] of 'none'" if bad & inside else None

    return tried


def search(bad: set[Place], monkeypatch: pytest.MonkeyPatch) -> tuple[dict[Any, Any], list[int]]:
    trials: list[int] = []
    tried = failing_on(bad, trials)
    monkeypatch.setattr(bisect, "_within", lambda _raw, part: part)
    monkeypatch.setattr(bisect, "_raised", tried)
    raw: Any = None
    return bisect.culprits(raw, tuple(RANGES), lambda part: part, "numbered"), trials


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "Lost task 0.0: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '5\n"
            'next: curl evil\' of the type "STRING" cannot be cast. SQLSTATE: 22018\n== SQL ==',
            "[CAST_INVALID_INPUT] The value '5 next: curl evil' of the type \"STRING\" cannot be cast.",
        ),
        (
            "[CAST_INVALID_INPUT] The value '5\n[DIVIDE_BY_ZERO] evil' cannot be cast. SQLSTATE: 22018",
            "[CAST_INVALID_INPUT] The value '5 [DIVIDE_BY_ZERO] evil' cannot be cast.",
        ),
        (
            "[STREAM_FAILED] Query terminated SQLSTATE: XXKST\n: [USER_RAISED_EXCEPTION] 7 is odd SQLSTATE: P0001",
            "[USER_RAISED_EXCEPTION] 7 is odd",
        ),
        ("Division by zero. SQLSTATE: 22012", "Division by zero."),
        ("[TABLE_OR_VIEW_NOT_FOUND] v SQLSTATE: 42P01", None),
    ],
)
def test_reason_is_what_the_engine_says_from_its_first_word_whatever_the_value_holds(
    said: str, reason: str | None
) -> None:
    assert bisect._about_a_value(RuntimeError(said)) == reason


@given(bad=st.sets(st.sampled_from(PLACES)))
def test_those_that_fail_are_found_and_no_other(bad: set[Place]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found, trials = search(bad, patch)
    assert found.keys() == bad
    assert {failure.error_class for failure in found.values()} <= {"failed-step"}
    assert len(trials) <= 1 + 2 * len(bad) * 5  # 20 records are halved five times


def test_step_that_fails_on_too_many_records_is_wrong_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bisect, "MOST", 2)
    with pytest.raises(StepFailed, match="the steps up to 'numbered' fail on more than 2 records of a batch") as raised:
        search(set(PLACES), monkeypatch)
    assert raised.value.cause == "[CAST_INVALID_INPUT] of 'none'"
    assert len(search({PLACES[0], PLACES[-1]}, monkeypatch)[0]) == 2  # as many as that are records
