"""The driver is killed with SIGKILL, again and again, at the places that matter; then every record is counted.

The judge is the producer's own ledger of acknowledged records against what other readers find in the table and in
the dead-letter topic. The last test shows that this judge can find something.

`make chaos` runs the same with more rounds: PENSTOCK_CHAOS_ROUNDS.
"""

from __future__ import annotations

import random
import sys
import time

import pytest

from tests.crash.driver import ROUNDS, Driver
from tests.crash.score import keep_score
from tests.crash.tables import KINDS, table
from tests.payments import Payments, judge

CARELESS = (sys.executable, "-m", "tests.crash.careless")


@pytest.fixture
def payments(payments: Payments) -> Payments:
    # Small Arrow batches: a task must have handed on some rows and not yet others when it dies.
    payments.spec["spark"]["conf"] = {"spark.sql.execution.arrow.maxRecordsPerBatch": 50}
    payments.spec["rate"]["max_offsets"] = 600
    return payments


def test_each_acknowledged_record_is_there_once_whatever_the_driver_died_of(payments: Payments) -> None:
    sent = payments.produce(3000, poison=0.05)
    driver = Driver(payments)
    driver.dies_at("during-sinks:0")
    driver.dies_at("after-sinks:0")
    driver.dies_at("after-dead-letters:1")
    driver.dies_at("after-ledger:2")
    assert driver.finishes()
    assert judge(payments, [sent]) == []
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == 3000
    keep_score("delta", driver, [sent], payments.places())


def test_short_way_loses_and_repeats_nothing_either_and_dead_letters_in_a_table_are_written_once(
    payments: Payments,
) -> None:
    """No SQL between: the workers write the files, the driver publishes them."""
    payments.spec["transform"] = []
    payments.spec["contract"]["payments"].append({"name": "void", "rule": "status <> 'VOID'", "otherwise": "drop"})
    payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
    payments.spec["dead_letters"] = {"delta": {"path": "dead"}}
    sent = payments.produce(1800, poison=0.05)
    driver = Driver(payments)
    driver.dies_at("during-sinks:0")
    driver.dies_at("after-sinks:0")
    driver.dies_at("after-dead-letters:1")
    assert driver.finishes()
    assert judge(payments, [sent]) == []
    assert payments.verify().complete
    keep_score("delta, one pass", driver, [sent], payments.places())


@pytest.mark.parametrize("kind", KINDS if ROUNDS > 1 else ["delta"])  # the others die in test_conformance
def test_kills_at_any_moment_lose_and_repeat_nothing(
    kind: str, payments: Payments, request: pytest.FixtureRequest
) -> None:
    to = table(kind, request)
    to.into(payments)
    payments.spec["rate"]["max_offsets"] = 500
    sent = [payments.produce(2000, poison=0.05, seed=n) for n in range(2)]
    driver, seed = Driver(payments), random.randrange(2**32)
    moment = random.Random(seed)
    for number in range(ROUNDS):
        process = driver.start()
        try:
            # Up to the first batch nothing can be lost; from there on any moment may be the wrong one.
            driver.waits_for_work(process)
            time.sleep(moment.uniform(0, 3))
            assert process.poll() is None, process.communicate()
        finally:
            driver.kill(process)
            process.communicate()
        driver.nothing_is_left()
        sent.append(payments.produce(500, poison=0.05, seed=100 + number))
    assert driver.finishes()
    found = to.places(payments)
    assert judge(payments, sent, found) == [], f"seed {seed}"
    assert payments.verify().complete, f"seed {seed}"
    keep_score(kind, driver, sent, found)


def test_a_sink_that_forgets_what_it_wrote_is_found_out(payments: Payments) -> None:
    """The negative control: the same crash, the same judge, and a sink that is not idempotent."""
    sent = payments.produce(1000, poison=0.05)
    driver = Driver(payments, CARELESS)
    driver.dies_at("after-sinks:0")
    driver.finishes()
    [wrong] = judge(payments, [sent])
    assert wrong.startswith("table: ")
    assert "repeated or invented" in wrong
    keep_score("delta without its application transaction (control)", driver, [sent], payments.places())
    report = payments.verify()
    assert "duplicate" in {finding.kind for finding in report.findings}
