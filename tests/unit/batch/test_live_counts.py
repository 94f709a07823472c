"""What the engine counts in real-time mode is what a batch counts elsewhere: per rule too."""

from __future__ import annotations

from penstock.checkpoint.ledger import ViewCount
from penstock.contract.verdict import Contract
from penstock.lifecycle.realtime.plan import counts_of
from penstock.spec.rules import Rule


def rule(name: str, otherwise: str) -> Rule:
    return Rule.model_validate({"name": name, "rule": "amount > 0", "otherwise": otherwise})


def test_records_that_died_are_counted_by_the_rule_they_broke() -> None:
    contract = Contract(
        "payments", (rule("positive", "dead-letter"), rule("known", "drop"), rule("old", "dead-letter"))
    )
    of = {"!decode": 1, "positive": 2, "old": 3, "known": 4}
    counted = {f"verdict_{i}": of[name] for i, name in enumerate(contract.verdicts)}
    found = counts_of(contract, {"read": 30, "passed": 20, "rejected": 5, **counted})
    assert found == ViewCount(30, 20, 6, {"known": 4}, 5, {"positive": 2, "old": 3})
    assert found.balanced()
