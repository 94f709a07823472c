"""The broker goes away in the middle of a run and comes back: the run goes on by itself and nothing is lost."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.payments import PENSTOCK, Payments, judge
from tests.processes import QUICK_JVM, of_session

from penstock.checkpoint.ledger import Ledger
from penstock.local.broker import Cluster
from penstock.testing.acknowledged import Acknowledged

BROKER = 1
NOTICE = "warning[kafka-unreachable]: "
AWAY_S = 10.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker of our own: what happens to it must not reach other tests."""
    made = Cluster(tmp_path_factory.mktemp("outage"), brokers=1)
    made.up()
    yield made
    made.resume(BROKER)
    made.down()


@pytest.fixture
def payments(cluster: Cluster, tmp_path: Path) -> Payments:
    cluster.up()  # a failed test may have left it down
    made = Payments(cluster.bootstrap, tmp_path)
    made.spec["rate"]["max_offsets"] = 150
    return made


@pytest.fixture(autouse=True)
def quick_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that lives for half a minute spends most of it optimising: without that it is twice as fast."""
    monkeypatch.setenv(*next(iter(QUICK_JVM.items())))


class Run:
    """A continuous `penstock run` beside the test, in a session of its own."""

    def __init__(self, payments: Payments) -> None:
        self.payments, self.log = payments, payments.directory / "run.log"
        self.ledger = Ledger(payments.home / "ledger")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [PENSTOCK, "run", str(payments.file)], stdout=log, stderr=log, start_new_session=True
            )

    def until(self, fact: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not fact():
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.said()}"
            assert time.monotonic() < deadline, f"did not happen within {seconds} s\n{self.said()}"
            time.sleep(0.05)

    def in_the_middle_of(self, batch: int) -> bool:
        """The table has the batch, the ledger not yet: its dead letters are still to be written to Kafka."""
        commit = self.payments.directory / "lake" / "_delta_log" / f"{batch:020}.json"
        return commit.exists() and self.read() > 0

    def read(self) -> int:
        return sum(entry.read for entry in self.ledger.entries())

    def said(self) -> str:
        return self.log.read_text()

    def processes(self) -> list[psutil.Process]:
        return of_session(self.process.pid)

    def kill(self) -> None:
        for process in self.processes():
            process.kill()
        self.process.wait(10)


@pytest.fixture
def start() -> Iterator[Callable[[Payments], Run]]:
    runs: list[Run] = []

    def begin(payments: Payments) -> Run:
        runs.append(Run(payments))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()


def test_a_broker_killed_while_dead_letters_are_due_comes_back_and_the_run_goes_on(
    cluster: Cluster, payments: Payments, start: Callable[[Payments], Run]
) -> None:
    first = payments.produce(450, poison=0.05)
    run = start(payments)
    run.until(lambda: run.in_the_middle_of(1), 90)
    cluster.kill(BROKER)
    away_for(AWAY_S, run)
    cluster.start(BROKER)
    run.until(lambda: run.read() == 450, 90)
    second = payments.produce(100, poison=0.05, seed=8)  # the source follows the broker that came back
    run.until(lambda: run.read() == 550, 60)
    stopped_and_proven(run, payments, [first, second])
    assert NOTICE in run.said(), run.said()


def test_a_broker_that_answers_nothing_for_ten_seconds_and_then_resumes_is_waited_for(
    cluster: Cluster, payments: Payments, start: Callable[[Payments], Run]
) -> None:
    sent = payments.produce(450, poison=0.05)
    run = start(payments)
    run.until(lambda: run.in_the_middle_of(1), 90)
    cluster.pause(BROKER)
    away_for(AWAY_S, run)
    assert run.read() < 450  # it was in the middle, and waited
    cluster.resume(BROKER)
    run.until(lambda: run.read() == 450, 90)
    stopped_and_proven(run, payments, [sent])


def away_for(seconds: float, run: Run) -> None:
    """The outage itself: time is what it is made of. The run must outlive it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert run.process.poll() is None, f"ended with {run.process.returncode}\n{run.said()}"
        time.sleep(0.1)


def stopped_and_proven(run: Run, payments: Payments, sent: list[Acknowledged]) -> None:
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(60) == 0, run.said()
    assert "Traceback" not in run.said()
    assert judge(payments, sent) == []
    report = payments.verify()
    assert report.complete, report.findings
    deadline = time.monotonic() + 15
    while left := run.processes():
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.1)
