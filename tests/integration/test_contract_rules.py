"""The short forms of rules (T2): what they let through and count, and records that are compared."""

from __future__ import annotations

import json

import pytest
from tests.payments import Heard, Payments, good

from penstock.checkpoint.ledger import Ledger
from penstock.errors import RuleStopped, StepFailed
from penstock.observe.metrics import Meters

pytestmark = pytest.mark.usefixtures("spark")


def to_lake(payments: Payments, *rules: dict[str, object]) -> None:
    payments.spec["contract"] = {"payments": list(rules)}
    payments.spec["transform"] = []
    payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}


def test_every_short_form_is_counted_by_rule_in_ledger_and_metrics(payments: Payments) -> None:
    to_lake(
        payments,
        {"name": "account", "not_null": ["payment_id", "account"]},
        {"name": "amount", "range": {"field": "amount", "min": 0.01, "max": 100}},
        {"name": "currency", "regex": {"field": "currency", "matches": "EUR|US\\w"}, "otherwise": "drop"},
        {"name": "status", "one_of": {"field": "status", "values": ["SETTLED", "it's"]}},
        {"name": "recent", "range": {"field": "event_time", "min": "2026-01-01T00:00:00Z"}, "otherwise": "drop"},
    )
    payments.send(
        good(0),
        good(1, amount=0),
        good(2, amount=0.01, currency="USD", status="it's"),
        good(3, amount=100.01),
        good(4, currency="EURO"),
        good(5, currency="US\n"),
        good(6, status="VOID"),
        good(7, event_time="2025-12-31T23:59:59Z"),
        good(8, account=...),
    )
    heard = Heard()
    payments.run(watch=heard)
    assert payments.ids() == ["p-0", "p-2"]
    (entry,) = Ledger(payments.home / "ledger").entries()
    assert entry.views["payments"].died == {"account": 0, "amount": 2, "status": 1}
    assert entry.views["payments"].dropped == {"currency": 2, "recent": 1}
    # an account is required by the schema, so that record died before any rule
    assert entry.views["payments"].dead == 4
    reasons = {json.loads(d.value or b"")["payment_id"]: d.reason for d in payments.dead()}
    assert reasons["p-1"] == "amount: not true: amount >= 0.01 and amount <= 100; amount = 0.00"
    meters = Meters("payments")
    meters.batch_done(entry, 1.0, 1.0)
    labels = {"pipeline": "payments", "view": "payments"}
    assert meters.registry.get_sample_value("penstock_rule_dead_letters_total", {**labels, "rule": "amount"}) == 2
    assert meters.registry.get_sample_value("penstock_records_dropped_total", {**labels, "rule": "currency"}) == 2
    assert payments.verify().findings == []


def test_first_record_of_a_key_passes_and_the_others_of_its_batch_do_not(payments: Payments) -> None:
    to_lake(
        payments,
        {"name": "amount", "range": {"field": "amount", "min": 1}},
        {"name": "once", "unique": ["payment_id"]},
        {"name": "status", "one_of": {"field": "status", "values": ["SETTLED"]}, "otherwise": "drop"},
    )
    # A step that fails on a repeated record: it is dead of the rule already, and must not die a second time.
    payments.spec["transform"] = [{"view": "cast", "sql": "select *, cast(currency as int) as n from payments"}]
    payments.spec["sinks"]["lake"]["from"] = "cast"
    payments.send(
        good(1, currency="1"),
        good(1, currency="2"),
        good(2, amount=0, currency="3"),  # breaks an earlier rule, so it is not the first of its key
        good(2, currency="4"),
        good(1, currency="none"),
        good(3, currency="none"),
        good(4, currency="5", status="VOID"),
        good(4, currency="6"),
        key=b"one partition",
    )
    heard = Heard()
    payments.run(watch=heard)
    assert sorted(row["n"] for row in payments.rows()) == [1, 4]
    (entry,) = heard.entries
    count = entry.views["payments"]
    assert (count.died, count.dropped, count.rejected) == ({"amount": 1, "once": 3}, {"status": 1}, 1)
    dead = [(d.stage, json.loads(d.value or b"")["currency"]) for d in payments.dead()]
    assert sorted(dead) == [
        ("contract", "2"), ("contract", "3"), ("contract", "6"), ("contract", "none"), ("transform", "none"),
    ]  # fmt: skip
    assert payments.verify().findings == []


def test_repeated_record_can_stop_the_pipeline_before_anything_is_written(payments: Payments) -> None:
    to_lake(payments, {"name": "once", "unique": "payment_id", "otherwise": "stop"})
    repeated = good(1, payment_id="p-1 SQLSTATE: 22018")  # not to be taken for a record that a step fails on
    payments.send(repeated, good(2), repeated)
    with pytest.raises(RuleStopped, match=r"(?m)payments\.once at .*; payment_id = p-1 SQLSTATE: 22018$"):
        payments.run()
    assert list((payments.directory / "lake").glob("_delta_log/*.json")) == []


def test_rule_that_is_a_number_is_named_and_said_what_it_is(payments: Payments) -> None:
    to_lake(payments, {"name": "sound", "rule": "amount > 0"}, {"name": "some", "rule": "amount"})
    with pytest.raises(StepFailed, match="rule 'some' of contract 'payments'") as raised:
        payments.run()
    assert raised.value.cause == "amount is a decimal(12,2), and neither true nor false"


def test_pattern_that_java_does_not_take_is_told_before_anything_is_read(payments: Payments) -> None:
    """Python takes it, so `check` does."""
    to_lake(payments, {"name": "named", "regex": {"field": "currency", "matches": "(?P<name>[A-Z]+)"}})
    payments.send(good(1))
    with pytest.raises(StepFailed, match="rule 'named' of contract 'payments'") as raised:
        payments.run()
    assert "near index" in (raised.value.cause or "")
    assert payments.entries() == []
