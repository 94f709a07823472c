"""Records that a step fails on become dead letters (Q2); the rest of the batch is written, by every sink that can."""

from __future__ import annotations

import json

import pytest
from tests.payments import Heard, Payments, good

from penstock.errors import EngineFailed
from penstock.runtime import culprits

pytestmark = pytest.mark.usefixtures("spark")


def with_numbers(payments: Payments, sql: str = "select *, cast(account as int) as number from payments") -> None:
    """A step that fails on every account that is no number."""
    payments.spec["transform"] = [{"view": "numbered", "sql": sql}]
    payments.spec["sinks"] = {"lake": {"from": "numbered", "delta": {"path": "lake"}}}
    payments.spec["contract"] = {}


def test_only_the_records_that_a_step_fails_on_die(payments: Payments) -> None:
    with_numbers(payments)
    bad = {7, 8}
    payments.send(*(good(n, account="none" if n in bad else str(n)) for n in range(12)), b"{", key=b"k")
    heard = Heard()
    payments.run(watch=heard)
    assert sorted(row["number"] for row in payments.rows()) == [n for n in range(12) if n not in bad]
    dead = {json.loads(d.value or b"")["payment_id"]: d for d in payments.dead() if d.stage == "transform"}
    assert dead.keys() == {f"p-{n}" for n in bad}
    assert {(d.error_class, d.key) for d in dead.values()} == {("failed-step", b"k")}
    assert all("[CAST_INVALID_INPUT]" in d.reason and "'none'" in d.reason for d in dead.values()), dead
    assert sum(entry.dead for entry in heard.entries) == 3
    report = payments.verify()
    assert report.complete, report.findings


def test_other_sinks_keep_the_record_that_one_sinks_condition_fails_on(payments: Payments) -> None:
    with_numbers(payments, "select * from payments")
    payments.spec["sinks"]["odd"] = {"from": "numbered", "where": "1 / (amount - 5) > 0", "parquet": {"path": "odd"}}
    payments.send(good(1), good(2, amount=5), good(3))
    payments.run()
    assert sorted(row["payment_id"] for row in payments.rows()) == ["p-1", "p-2", "p-3"]
    (dead,) = payments.dead()
    assert (dead.stage, json.loads(dead.value or b"")["payment_id"]) == ("transform", "p-2")
    assert "[DIVIDE_BY_ZERO" in dead.reason
    assert payments.verify().findings == []


def test_batch_that_was_written_before_the_failure_was_found_is_not_written_again(payments: Payments) -> None:
    with_numbers(payments)
    payments.spec["sinks"] = {
        "all": {"from": "payments", "delta": {"path": "lake"}},
        "numbers": {"from": "numbered", "delta": {"path": "numbers"}},
    }
    payments.send(good(1, account="1"), good(2, account="x"))
    payments.run()
    assert sorted(row["payment_id"] for row in payments.rows()) == ["p-1", "p-2"]
    assert payments.verify().findings == []


def test_step_that_fails_on_too_many_records_stops_the_pipeline(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(culprits, "MOST", 2)
    with_numbers(payments)
    payments.send(*(good(n, account="x") for n in range(5)))
    with pytest.raises(EngineFailed, match="the engine failed"):
        payments.run()
    assert payments.dead() == []
