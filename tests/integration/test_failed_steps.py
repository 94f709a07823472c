"""Records that a step fails on become dead letters (Q2); the rest of the batch is written, by every sink that can."""

from __future__ import annotations

import json

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from tests.payments import Heard, Payments, good

pytestmark = pytest.mark.usefixtures("spark")


def test_only_the_records_that_a_step_fails_on_die(payments: Payments) -> None:
    """For the sinks behind it; the others keep them, and what was written before the failure was found is there once.
    How they are found, and when they are too many: tests/unit/batch/test_culprits.py."""
    payments.spec["transform"] = [{"view": "numbered", "sql": "select *, cast(account as int) as number from payments"}]
    payments.spec["contract"] = {}
    payments.spec["sinks"] = {
        "all": {"from": "payments", "delta": {"path": "all"}},  # written before the step fails
        "lake": {"from": "numbered", "delta": {"path": "lake"}},
        "odd": {"from": "payments", "where": "1 / (amount - 5) > 0", "parquet": {"path": "odd"}},
    }
    payments.send(good(0, account="0"), good(1, account="1", amount=5), good(2, account="none"), b"{", key=b"k")
    heard = Heard()
    payments.run(watch=heard)
    assert sorted(row["number"] for row in payments.rows()) == [0, 1]
    whole = DeltaTable(str(payments.directory / "all")).to_pyarrow_table()["payment_id"].to_pylist()
    assert sorted(whole) == ["p-0", "p-1", "p-2"]
    odd = ds.dataset(payments.directory / "odd").to_table()["payment_id"].to_pylist()
    assert sorted(odd) == ["p-0", "p-2"]
    dead = {json.loads(d.value or b"")["payment_id"]: d for d in payments.dead() if d.stage == "transform"}
    assert {name: letter.sinks for name, letter in dead.items()} == {"p-2": "lake", "p-1": "odd"}
    assert {(d.error_class, d.key) for d in dead.values()} == {("failed-step", b"k")}
    assert "[CAST_INVALID_INPUT]" in dead["p-2"].reason and "'none'" in dead["p-2"].reason
    assert "[DIVIDE_BY_ZERO" in dead["p-1"].reason
    assert sum(entry.dead for entry in heard.entries) == 3
    [searching] = heard.warnings
    assert searching == "batch 0: a step or a condition fails on some record; looking for which, among 4 offsets"
    assert payments.verify().findings == []


@pytest.mark.parametrize("kind", ["kafka", "delta"])
def test_condition_that_is_never_true_leaves_out_every_row_and_the_books_balance(payments: Payments, kind: str) -> None:
    """The engine sees that beforehand, and would not read the records at all."""
    out = f"{payments.topic}-out"
    payments.create(out)
    to = {"kafka": {"topic": out, "origin": True}} if kind == "kafka" else {"delta": {"path": "lake"}}
    payments.spec["sinks"] = {"out": {"from": "settled", "where": "1 = 0", **to}}
    payments.send(good(1), good(2), b"{")
    heard = Heard()
    payments.run(watch=heard)
    assert sum(entry.read for entry in heard.entries) == 3
    assert sum(entry.sinks["out"].dropped or 0 for entry in heard.entries) == 2
    assert [letter.error_class for letter in payments.dead()] == ["malformed"]
    assert payments.verify().findings == []
