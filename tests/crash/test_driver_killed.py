"""The driver is killed with SIGKILL, again and again, at the places that matter; then every record is counted.

The judge is the producer's own ledger of acknowledged records against what other readers find in the table and in
the dead-letter topic. The last test shows that this judge can find something.

`make chaos` runs the same with more rounds: PENSTOCK_CHAOS_ROUNDS.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from penstock.checkpoint.ledger import Ledger
from tests.payments import PENSTOCK, Payments, judge
from tests.processes import QUICK_JVM

ROUNDS = int(os.environ.get("PENSTOCK_CHAOS_ROUNDS", "1"))
ROOT = Path(__file__).parent.parent.parent
CARELESS = (sys.executable, "-m", "tests.crash.careless")
MARK = "PENSTOCK_TEST_MARK"


class Driver:
    """`penstock run FILE --until-caught-up` as a process that a test lets die."""

    def __init__(self, payments: Payments, program: tuple[str, ...] = (PENSTOCK,)) -> None:
        self.command = [*program, "run", str(payments.file), "--until-caught-up"]
        self.mark = uuid.uuid4().hex

    def start(self, failpoint: str = "") -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            **QUICK_JVM,
            MARK: self.mark,
            "PENSTOCK_FAILPOINT": failpoint,
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
        )

    def dies_at(self, failpoint: str) -> None:
        process = self.start(failpoint)
        said, _ = process.communicate(timeout=180)
        assert process.returncode == -signal.SIGKILL, (failpoint, process.returncode, said)
        self.nothing_is_left()

    def finishes(self) -> str:
        process = self.start()
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        self.nothing_is_left()
        return said

    def nothing_is_left(self) -> None:
        """Python workers and JVM notice that their driver is gone, and end by themselves."""
        deadline = time.monotonic() + 30
        while left := [p for p in psutil.process_iter() if self._is_ours(p)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.2)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


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
    driver.dies_at("during-sinks:1")
    driver.dies_at("after-dead-letters:1")
    driver.dies_at("after-ledger:2")
    assert driver.finishes()
    assert judge(payments, [sent]) == []
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == 3000


def test_dead_letters_in_a_table_are_written_once_too(payments: Payments) -> None:
    payments.spec["dead_letters"] = {"delta": {"path": "dead"}}
    sent = payments.produce(1200, poison=0.1)
    driver = Driver(payments)
    driver.dies_at("after-dead-letters:0")
    assert driver.finishes()
    assert judge(payments, [sent]) == []
    assert payments.verify().complete


def test_kills_at_any_moment_lose_and_repeat_nothing(payments: Payments) -> None:
    payments.spec["rate"]["max_offsets"] = 500
    sent = [payments.produce(2000, poison=0.05, seed=n) for n in range(2)]
    driver, seed, killed = Driver(payments), random.randrange(2**32), 0
    moment = random.Random(seed)
    for number in range(ROUNDS):
        process = driver.start()
        try:
            # Up to the first batch nothing can be lost; from there on any moment may be the wrong one.
            _wait_for_work(payments, process)
            time.sleep(moment.uniform(0, 3))
            killed += process.poll() is None
        finally:
            _kill_all(process)
            process.communicate()
        driver.nothing_is_left()
        sent.append(payments.produce(500, poison=0.05, seed=100 + number))
    assert killed == ROUNDS
    assert driver.finishes()
    assert judge(payments, sent) == [], f"seed {seed}"
    assert payments.verify().complete, f"seed {seed}"


def test_a_sink_that_forgets_what_it_wrote_is_found_out(payments: Payments) -> None:
    """The negative control: the same crash, the same judge, and a sink that is not idempotent."""
    sent = payments.produce(1000, poison=0.05)
    driver = Driver(payments, CARELESS)
    driver.dies_at("after-sinks:0")
    driver.finishes()
    [wrong] = judge(payments, [sent])
    assert wrong.startswith("table: ")
    assert "repeated or invented" in wrong
    report = payments.verify()
    assert "duplicate" in {finding.kind for finding in report.findings}


def _wait_for_work(payments: Payments, process: subprocess.Popen[str]) -> None:
    """Until this driver has written a ledger entry of its own; before that it may still be starting."""
    deadline, ledger = time.monotonic() + 120, Ledger(payments.home / "ledger")
    before = [entry.time for entry in ledger.entries()]
    while [entry.time for entry in ledger.entries()] == before and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _kill_all(process: subprocess.Popen[str]) -> None:
    try:
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
