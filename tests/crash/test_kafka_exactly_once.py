"""Exactly once into Kafka, while workers and drivers are killed in the middle of their transactions.

The judge is in `forward`. Spark's own sink, under the same kills, is the negative control.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.crash.driver import ROUNDS, Driver
from tests.crash.forward import POINTS, WAYS, Forward, judge
from tests.payments import Payments


@pytest.fixture(params=WAYS)
def forward(payments: Payments, request: pytest.FixtureRequest) -> Forward:
    return Forward(payments, request.param)


@pytest.mark.usefixtures("spark")
def test_workers_that_die_in_the_middle_of_a_transaction_lose_and_repeat_nothing(
    forward: Forward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: Spark runs the task of a dead worker again, the driver goes on."""
    payments = forward.payments
    sent = []
    for number, point in enumerate(POINTS):
        sent.append(payments.produce(400, poison=0.02, seed=number))
        once = tmp_path / f"killed-{number}"
        monkeypatch.setenv("PENSTOCK_FAILPOINT_ONCE", str(once))
        monkeypatch.setenv("PENSTOCK_FAILPOINT", f"{point}:{_next_batch(payments)}:worker")
        payments.run()
        assert once.exists() or point.endswith("-init"), f"no worker died {point}"
        assert judge(forward, sent) == [], point
    report = payments.verify()
    assert report.complete, report.findings
    assert len(payments.dead()) == sum(part.poison().num_rows for part in sent)


@pytest.mark.parametrize(
    "forward",
    ["exactly-once-by-partition", "one pass", *(["exactly-once-by-batch"] if ROUNDS > 1 else [])],
    indirect=True,
)
def test_drivers_that_die_in_the_middle_of_a_transaction_lose_and_repeat_nothing(forward: Forward) -> None:
    sent = [forward.payments.produce(1200, poison=0.02)]
    driver = Driver(forward.payments)
    points = ["mid-produce:0:driver", "after-offsets:1:driver"]  # marks of an open transaction cannot be read
    if ROUNDS > 1:
        points += [
            "after-commit:0:driver",
            *(f"{point}:1:driver" for point in POINTS),
            "after-sinks:1",
            "after-ledger:1",
        ]
    for point in points:
        driver.dies_at(point)
        assert judge(forward, sent, finished=False) == [], point
    driver.finishes()
    assert judge(forward, sent) == []
    assert forward.payments.verify().complete
    forward.keep_score(driver, sent)


def test_attempt_that_wakes_up_after_its_replacement_finished_is_fenced(payments: Payments) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(600)]
    driver = Driver(payments)
    process = driver.start("after-offsets:0:pause")
    paused = driver.paused_worker(process)
    driver.kill(process, spare=frozenset({paused}))
    process.communicate()
    try:
        successor = Driver(payments)
        successor.finishes()
        assert judge(forward, sent) == []
        before = len(forward.seen())
        os.kill(paused, signal.SIGCONT)  # it goes on where it was: at the commit of a transaction that is not its own
        driver.nothing_is_left()
        assert len(forward.seen()) == before
        assert judge(forward, sent) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(paused, signal.SIGKILL)


@pytest.mark.skipif(ROUNDS == 1, reason="part of make chaos; kills at any moment are in test_driver_killed too")
def test_kills_at_any_moment_lose_and_repeat_nothing(payments: Payments) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    payments.spec["rate"]["max_offsets"] = 500
    sent = [payments.produce(2000, poison=0.02, seed=n) for n in range(2)]
    driver, seed = Driver(payments), random.randrange(2**32)
    moment = random.Random(seed)
    for number in range(ROUNDS):
        process = driver.start()
        driver.waits_for_work(process)
        time.sleep(moment.uniform(0, 2))
        driver.kill(process)
        process.communicate()
        driver.nothing_is_left()
        assert judge(forward, sent, finished=False) == [], f"seed {seed}"
        sent.append(payments.produce(500, poison=0.02, seed=100 + number))
    driver.finishes()
    assert judge(forward, sent) == [], f"seed {seed}"
    forward.keep_score(driver, sent)


def test_sparks_own_sink_is_caught_repeating(payments: Payments) -> None:
    """The negative control: the same kills and the same judge."""
    forward = Forward(payments, "at-least-once")
    sent = [payments.produce(600)]
    driver = Driver(payments)
    driver.dies_at("after-sinks:0")
    driver.finishes()
    wrong = judge(forward, sent)
    assert any("repeated" in each for each in wrong), wrong
    assert not any("lost" in each for each in wrong), wrong
    forward.keep_score(driver, sent)
    print(f"Spark's own sink, one kill: {wrong[0]}")  # noqa: T201  shown with -s


def _next_batch(payments: Payments) -> int:
    commits = payments.home / "spark" / "commits"
    return max((int(f.name) for f in commits.iterdir() if f.name.isdigit()), default=-1) + 1 if commits.is_dir() else 0
