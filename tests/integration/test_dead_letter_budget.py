"""Q6 on the real stack: the budget that stops a broken pipeline."""

from __future__ import annotations

import pytest
from tests.committed import committed
from tests.doctor_score import named
from tests.payments import Payments, good

from penstock.doctor.gather import examined
from penstock.errors import DeadLetterBudget
from penstock.lifecycle import backfill
from penstock.verification.verify import verify

pytestmark = pytest.mark.usefixtures("spark")
WAYS = ["engine", "one pass, files", "one pass, kafka"]


@pytest.mark.parametrize("way", WAYS)
def test_budget_stops_before_anything_is_written_and_the_mended_batch_runs(payments: Payments, way: str) -> None:
    out = f"{payments.topic}-out"
    payments.spec["dead_letters"]["budget"] = {"share": 0.05, "at_least": 5}
    if way != "engine":
        payments.spec["transform"] = []
        payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
    if way == "one pass, kafka":
        payments.create(out)
        payments.spec["sinks"] = {"out": {"from": "payments", "kafka": {"topic": out, "origin": True}}}

    def held() -> int:
        if way == "one pass, kafka":
            return len(committed(payments.bootstrap, out))
        there = (payments.directory / "lake" / "_delta_log").is_dir()
        return len(payments.rows()) if there else 0

    def files() -> int:
        return len(list((payments.directory / "lake").rglob("*.parquet")))

    if way == "engine":
        payments.send(*(good(n, amount=-1 if n < 2 else 1) for n in range(20)))  # 10 %, but fewer than five
        payments.run()
    there = (18, 2) if way == "engine" else (0, 0)
    assert (held(), len(payments.dead())) == there
    before = files()
    payments.send(*(good(n, amount=-1) for n in range(20, 26)), b"{", *(good(n) for n in range(26, 39)))
    with pytest.raises(DeadLetterBudget) as stopped:
        payments.run()
    error = stopped.value
    assert (held(), len(payments.dead())) == there
    assert "(35.0%), the budget is 5.0%" in error.what
    assert "6 × contract, broken-rule: " in str(error.cause)
    assert "positive: not true: amount > 0; amount = -1.00" in str(error.cause)
    assert "--accept dead-letter-budget" in str(error.next_command)
    assert (error.facts["dead"], error.facts["read"], error.facts["batches"]) == (7, 20, 1)
    if way == "engine":
        with pytest.raises(DeadLetterBudget):
            payments.run()  # still
        said = examined(payments.pipeline)[1]
        named(["dead-letter-budget"], (found.cause for found in said))
        assert said[0].fix == error.next_command
    assert files() == before
    payments.spec["contract"] = {}  # the mend: six more records pass, and nothing of the batch is anywhere yet
    payments.run()
    assert (held(), len(payments.dead())) == (there[0] + 19, there[1] + 1)
    report = payments.verify()
    assert report.complete, report.findings
    assert report.unproven == []


def test_budget_can_be_let_go_for_one_batch_and_small_batches_count_together(payments: Payments) -> None:
    payments.spec["dead_letters"]["budget"] = {"share": 0.5, "at_least": 6}
    payments.spec["rate"]["max_offsets"] = 3
    for number in range(12):
        payments.send(good(number, amount=-1), key=b"all in one partition")
    with pytest.raises(DeadLetterBudget, match="6 of 6 records of batch 1 and the 1 before it"):
        payments.run()
    with pytest.raises(DeadLetterBudget, match="6 of 6 records of batch 3 and the 1 before it"):
        payments.run(accept=["dead-letter-budget"])  # batch 1 is let through, and does not count again
    assert len(payments.dead()) == 9
    payments.run(accept=["dead-letter-budget"])
    assert len(payments.dead()) == 12
    report = payments.verify()
    assert report.complete, report.findings
    assert report.unproven == []


BAD, GOOD = b"<not json>", good(1)


@pytest.mark.parametrize("way", [*WAYS, "letters along", "several sinks", "stateful"])
def test_pipeline_whose_first_thousand_records_nearly_all_die_stops_before_it_writes_any(
    payments: Payments, way: str
) -> None:
    out = f"{payments.topic}-out"
    if way in WAYS[1:]:
        payments.spec["transform"] = []
        payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
    if way == "stateful":
        payments.spec["transform"] = [
            {"view": "once", "deduplicate": {"from": "payments", "key": ["payment_id"], "time": "event_time"}}
        ]
        payments.spec["transform"][0]["deduplicate"]["within"] = "1h"
        payments.spec["sinks"] = {"lake": {"from": "once", "delta": {"path": "lake"}}}
    if way in ("one pass, kafka", "letters along"):
        payments.create(out)
        view = "payments" if way == "one pass, kafka" else "settled"
        payments.spec["sinks"] = {"out": {"from": view, "kafka": {"topic": out, "origin": True}}}
    if way == "several sinks":
        payments.spec["sinks"]["more"] = {"from": "payments", "delta": {"path": "more"}}
    payments.spec["rate"]["max_offsets"] = 700
    payments.send(*[BAD] * 600)
    payments.run()  # too few to say
    assert len(payments.dead()) == 600
    before = sorted(payments.directory.rglob("*.parquet"))
    payments.send(*[BAD] * 350, *[GOOD] * 60)
    for _ in range(2):  # a start judges it again
        with pytest.raises(DeadLetterBudget) as stopped:
            payments.run()
    error = stopped.value
    assert (len(payments.dead()), len(payments.entries())) == (600, 1)
    assert sorted(payments.directory.rglob("*.parquet")) == before
    assert "of the first 1,0" in error.what
    assert error.facts["read"] >= 1000
    assert error.facts["dead"] >= 900
    assert "× decode, malformed: " in str(error.cause)
    assert "budget: none" in str(error.next_command)
    said = examined(payments.pipeline)[1]
    assert [found.cause for found in said][:1] == ["dead-letter-budget"]
    payments.spec["dead_letters"]["budget"] = "none"
    payments.run()
    assert len(payments.dead()) == 950
    del payments.spec["dead_letters"]["budget"]
    payments.send(*[BAD] * 1000)
    payments.run()  # it is past its first thousand
    assert len(payments.dead()) == 1950
    report = payments.verify()
    assert report.complete, report.findings


def test_first_records_that_do_not_nearly_all_die_or_that_are_let_through_stop_nothing(payments: Payments) -> None:
    payments.send(*[BAD] * 899, *[GOOD] * 101, key=b"all in one partition")
    payments.run()
    assert len(payments.dead()) == 899
    payments.spec["name"] = "another"
    payments.spec["checkpoint"] = "another"
    payments.spec["sinks"] = {"other": {"from": "payments", "delta": {"path": "other"}}}
    payments.spec["contract"]["payments"] = [{"name": "none", "rule": "amount < 0"}]
    with pytest.raises(DeadLetterBudget, match=r"1,000 of the first 1,000 records are dead \(100.0%\)"):
        payments.run()
    payments.run(accept=["dead-letter-budget"])
    assert len(payments.dead()) == 1000


def test_backfill_whose_first_records_nearly_all_die_stops_too(payments: Payments) -> None:
    payments.send(*[BAD] * 1200)
    payments.spec["rate"]["max_offsets"] = 5000
    wanted = backfill.Range("earliest", "latest")
    for _ in range(2):
        with pytest.raises(DeadLetterBudget, match=r"1,00\d of the first 1,00\d"):
            backfill.run(payments.pipeline, wanted)
    assert payments.dead() == []
    payments.spec["dead_letters"]["budget"] = "none"
    home = backfill.run(payments.pipeline, wanted)
    assert len(payments.dead()) == 1200
    assert verify(payments.pipeline, home.path.name).complete
