"""When a budget is spent: by a batch alone, by small batches together, never by few records or by a good batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.batch.budget import TOGETHER, Share, Spending, Spent, exceeded, stop
from penstock.checkpoint.ledger import Entry, ViewCount
from penstock.spec.model import Budget

BUDGET = Budget(share=0.05, at_least=100)


@pytest.mark.parametrize(
    ("read", "dead", "over"),
    [(10_000, 501, True), (10_000, 500, False), (1000, 100, True), (1000, 99, False), (100, 100, True), (0, 0, False)],
)
def test_batch_alone(read: int, dead: int, over: bool) -> None:
    assert (exceeded(BUDGET, (read, dead), []) is not None) is over


def test_small_batches_count_together_until_enough_have_died() -> None:
    before = [(30, 30)] * 2
    assert exceeded(BUDGET, (30, 30), before) is None
    assert exceeded(BUDGET, (30, 30), [*before, (30, 30)]) == Share(120, 120, 4)


def test_good_batches_before_do_not_hide_a_bad_one() -> None:
    assert exceeded(BUDGET, (1000, 200), [(1_000_000, 0)] * 5) == Share(1000, 200, 1)


def test_batches_long_ago_do_not_count() -> None:
    assert exceeded(BUDGET, (10, 0), [*[(10, 0)] * (TOGETHER - 1), (100_000, 100_000)]) is None


def test_good_batch_after_batches_within_the_budget_is_never_stopped() -> None:
    assert exceeded(BUDGET, (1000, 0), [(10_000, 500), (10_000, 499)]) is None


def test_nothing_at_all_may_die_where_the_share_is_zero() -> None:
    assert exceeded(Budget(share=0, at_least=1), (10**9, 1), []) is not None


@pytest.mark.parametrize(
    ("kinds", "last"), [(10, "1 × s, c: t-0 offset 9"), (11, "1 more reason"), (13, "3 more reasons")]
)
def test_error_has_ten_reasons_and_the_most_frequent_first(kinds: int, last: str) -> None:
    counts = [20, *[1] * (kinds - 1)]
    reasons = [
        {"stage": "s", "class": "c", "reason": "r", "count": n, "sample": f"t-0 offset {at}"}
        for at, n in enumerate(counts)
    ]
    error = stop(BUDGET, 7, sum(counts), Share(100, sum(counts), 1), list(reasons))
    said = str(error.cause).split("\n")
    assert said[:2] == ["20 × s, c: t-0 offset 0", "1 × s, c: t-0 offset 1"]
    assert (said[9], said[-1]) == ("1 × s, c: t-0 offset 9", last)
    assert error.facts["reasons"] == reasons


ENTRY = Entry("p", "q", 0, "", "earliest", [], {}, {"v": ViewCount(100, 40, 50, {"rule": 10}, rejected=5)}, {})


def test_what_was_spent_is_known_from_the_ledger_up_to_what_was_accepted() -> None:
    accepted = replace(ENTRY, batch=1, accepted=["dead-letter-budget"])
    many = [replace(ENTRY, batch=number) for number in range(100)]
    assert Spending.since(BUDGET, many[:3]).before == [Spent(number, 100, 55) for number in (2, 1, 0)]
    assert Spending.since(BUDGET, [ENTRY, accepted, many[2]]).before == [Spent(2, 100, 55)]
    assert [each.batch for each in Spending.since(BUDGET, many).before] == list(range(99, 99 - TOGETHER, -1))


def test_batch_that_runs_again_after_its_entry_was_written_is_not_counted_twice() -> None:
    small = replace(ENTRY, views={"v": ViewCount(60, 0, 60)})
    after_a_restart = Spending.since(BUDGET, [small])
    assert after_a_restart.over(0, 60, 60) is None
    after_a_restart.spent(small)
    assert after_a_restart.before == [Spent(0, 60, 60)]
    assert after_a_restart.over(1, 60, 60) == Share(120, 120, 2)


def test_batch_that_the_operator_let_through_is_let_through_when_it_runs_again() -> None:
    spending = Spending.since(BUDGET, [replace(ENTRY, batch=4, accepted=["dead-letter-budget"])])
    assert spending.over(4, 1000, 1000) is None
    assert spending.over(5, 1000, 1000) == Share(1000, 1000, 1)
