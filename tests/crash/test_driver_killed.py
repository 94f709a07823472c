"""The driver is killed with SIGKILL, again and again, at the places that matter; then every record is counted.

The judge is the producer's own ledger of acknowledged records against what other readers find in the table and in
the dead-letter topic. The last test shows that this judge can find something.

`make chaos` runs the same with more places, more kills at any moment and every kind of table: PENSTOCK_CHAOS_ROUNDS.
"""

from __future__ import annotations

import random
import sys

import pytest

from penstock.plan import build
from tests.crash.careless import careless
from tests.crash.driver import ROUNDS, Driver, Here
from tests.crash.score import keep_score
from tests.crash.tables import KINDS, table
from tests.payments import Payments, judge

pytestmark = pytest.mark.usefixtures("spark")
CARELESS = (sys.executable, "-m", "tests.crash.careless")
ALL = ROUNDS > 1


@pytest.fixture
def payments(payments: Payments) -> Payments:
    # Small Arrow batches: a task must have handed on some rows and not yet others when it dies.
    payments.spec["spark"]["conf"] = {"spark.sql.execution.arrow.maxRecordsPerBatch": 50}
    payments.spec["rate"]["max_offsets"] = 600
    return payments


def test_each_acknowledged_record_is_there_once_whatever_the_driver_died_of(payments: Payments) -> None:
    sent = [payments.produce(1200, poison=0.05)]
    driver, seed = Driver(payments), random.randrange(2**32)
    driver.dies_at("during-sinks:0")
    if ALL:
        driver.dies_at("after-sinks:0")
    driver.dies_at("after-dead-letters:1")
    sent.append(payments.produce(3000, poison=0.05, seed=8))
    if ALL:
        driver.dies_at("after-ledger:2")
    assert driver.dies_at_any_moment(random.Random(seed), 1), f"it had ended: seed {seed}"
    driver.taken_over()
    assert judge(payments, sent) == [], f"seed {seed}"
    report = payments.verify()
    assert report.complete, (report.findings, f"seed {seed}")
    assert report.records == 4200
    keep_score("delta", driver, sent, payments.places())


def test_short_way_loses_and_repeats_nothing_either_and_dead_letters_in_a_table_are_written_once(
    payments: Payments,
) -> None:
    """No SQL between: the workers write the files, the driver publishes them."""
    payments.spec["transform"] = []
    payments.spec["contract"]["payments"].append({"name": "void", "rule": "status <> 'VOID'", "otherwise": "drop"})
    payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
    payments.spec["dead_letters"] = {"delta": {"path": "dead"}}
    sent = payments.produce(1200, poison=0.05)
    driver = Driver(payments)
    for place in ["during-sinks:0", "after-sinks:0", "after-dead-letters:1"] if ALL else ["after-dead-letters:0"]:
        driver.dies_at(place)
    driver.taken_over()
    assert judge(payments, [sent]) == []
    assert payments.verify().complete
    keep_score("delta, one pass", driver, [sent], payments.places())


@pytest.mark.skipif(not ALL, reason="part of make chaos; one kill at any moment is in the first test")
@pytest.mark.parametrize("kind", KINDS)
def test_kills_at_any_moment_lose_and_repeat_nothing(
    kind: str, payments: Payments, request: pytest.FixtureRequest
) -> None:
    to = table(kind, request)
    to.into(payments)
    payments.spec["rate"]["max_offsets"] = 150
    sent = [payments.produce(2000, poison=0.05, seed=n) for n in range(2)]
    driver, seed = Driver(payments), random.randrange(2**32)
    moment = random.Random(seed)
    for number in range(ROUNDS):
        assert driver.dies_at_any_moment(moment, 3)
        sent.append(payments.produce(500, poison=0.05, seed=100 + number))
    driver.taken_over()
    found = to.places(payments)
    assert judge(payments, sent, found) == [], f"seed {seed}"
    assert payments.verify().complete, f"seed {seed}"
    keep_score(kind, driver, sent, found)


def test_a_sink_that_forgets_what_it_wrote_is_found_out(payments: Payments) -> None:
    """The negative control: the same crash (in `make test` by an exception), the same judge, and a sink that is not
    idempotent."""
    sent = payments.produce(1000, poison=0.05)
    driver = Driver(payments, CARELESS) if ALL else Here(payments)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "outlets", careless)
        driver.dies_at("after-sinks:0")
        driver.finishes()
    [wrong] = judge(payments, [sent])
    assert wrong.startswith("table: ")
    assert "repeated or invented" in wrong
    keep_score("delta without its application transaction (control)", driver, [sent], payments.places())
    report = payments.verify()
    assert "duplicate" in {finding.kind for finding in report.findings}
