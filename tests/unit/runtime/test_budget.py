"""When a budget is spent: by a batch alone, by small batches together, never by few records or by a good batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from penstock.checkpoint.ledger import Entry, ViewCount
from penstock.runtime.budget import TOGETHER, Share, Spending, exceeded
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


def test_what_was_spent_is_known_from_the_ledger_up_to_what_was_accepted() -> None:
    entry = Entry("p", "q", 0, "", "earliest", [], {}, {"v": ViewCount(100, 40, 50, {"rule": 10}, rejected=5)}, {})
    accepted = replace(entry, batch=1, accepted=["dead-letter-budget"])
    assert list(Spending.since(BUDGET, [entry] * 3).before) == [(100, 55)] * 3
    assert list(Spending.since(BUDGET, [entry, accepted, replace(entry, batch=2)]).before) == [(100, 55)]
    many = Spending.since(BUDGET, [entry] * 100)
    assert Counter(many.before) == {(100, 55): TOGETHER - 1}
