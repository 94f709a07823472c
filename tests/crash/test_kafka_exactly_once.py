"""Exactly once into Kafka, while workers and drivers are killed in the middle of their transactions.

The judge is in `forward`. Spark's own sink, under the same kills, is the negative control.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
from itertools import cycle
from pathlib import Path
from typing import cast

import pytest

from penstock import failpoint
from penstock.checkpoint.log import SparkLog
from penstock.errors import TableOfAnotherQuery
from penstock.lifecycle.preview import plan
from tests.crash.driver import ROUNDS, Driver, Here
from tests.crash.forward import POINTS, WAYS, Forward, judge
from tests.payments import Payments

pytestmark = pytest.mark.usefixtures("spark")
ALL = ROUNDS > 1
INIT, LATER = POINTS[:2], POINTS[2:]


@pytest.fixture
def payments(payments: Payments, request: pytest.FixtureRequest) -> Payments:
    """On three brokers in `make chaos`, on the one that all tests share in `make test`."""
    return request.getfixturevalue("payments_of_three") if ALL else payments


@pytest.fixture
def forward(payments: Payments, way: str) -> Forward:
    return Forward(payments, way)


@pytest.mark.parametrize(
    ("way", "first"),
    [(way, first) for way in WAYS for first in INIT] if ALL else list(zip(WAYS, cycle(INIT), strict=False)),
)
def test_workers_that_die_in_the_middle_of_a_transaction_lose_and_repeat_nothing(
    forward: Forward, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: Spark runs the task of a dead worker again, the driver goes on. In each batch one worker dies.

    before-init, after-init: nothing was begun. Workers keep what they have taken, so only in the first batch of a
        pipeline is it certain that one gets there.
    mid-produce: some records are in Kafka, in an open transaction. after-offsets: all of them, with their mark.
    during-commit: Kafka has been asked to commit, its answer is never seen.
    after-commit: the transaction is committed, and Spark does not know.
    """
    payments, points = forward.payments, (first, *LATER)
    payments.spec["rate"]["max_offsets"] = 400
    sent = [payments.produce(400 * len(points), poison=0.02)]

    def crash(batch: int, _rows: object) -> failpoint.Crash | None:
        place = points[batch] if batch < len(points) else None
        return failpoint.Crash(place, "worker", (), str(tmp_path / place)) if place else None

    monkeypatch.setattr(failpoint, "crash", crash)
    driver = Here(payments)
    driver.finishes()
    assert [point for point in points if not (tmp_path / point).exists()] == []  # where no worker died
    assert judge(forward, sent) == []
    assert forward.given_up() > 0  # of those that died with a transaction open
    report = payments.verify()
    assert report.complete, report.findings
    assert len(payments.dead()) == sum(part.poison().num_rows for part in sent)
    driver.kills += len(points)
    forward.keep_score(driver, sent, "Python workers")


@pytest.mark.parametrize("way", WAYS if ALL else ["one pass"])
def test_drivers_that_die_in_the_middle_of_a_transaction_lose_and_repeat_nothing(forward: Forward) -> None:
    sent = [forward.payments.produce(1200, poison=0.02)]
    driver = Driver(forward.payments)
    # A batch that is committed is not sent again, so each one has its last place after the others.
    points = ["mid-produce:0:driver", "after-offsets:1:driver"]  # marks of an open transaction cannot be read
    if ALL:
        points[1:1] = ["after-commit:0:driver"]
        points += [*(f"{point}:1:driver" for point in POINTS[:-1]), "after-sinks:1", "after-ledger:1"]
    for point in points:
        driver.dies_at(point)
        assert judge(forward, sent, finished=False) == [], point
    a_new_checkpoint_is_refused_with_the_names_of_what_is_open(forward.payments)
    driver.taken_over()
    assert judge(forward, sent) == []
    assert forward.given_up() > 0
    assert forward.payments.verify().complete
    forward.keep_score(driver, sent)


def a_new_checkpoint_is_refused_with_the_names_of_what_is_open(payments: Payments) -> None:
    query = SparkLog(payments.home / "spark").query_id()
    aside = payments.home.rename(payments.home.with_name("aside"))
    [problem] = plan(payments.pipeline).problems
    assert type(problem) is TableOfAnotherQuery
    names = cast("list[str]", problem.facts["transactions"])
    assert names  # of one input partition or of several: their tasks run beside each other
    assert [name for name in names if f".{query}.out." not in name] == []
    shutil.rmtree(payments.home, ignore_errors=True)
    aside.rename(payments.home)


def test_attempt_that_wakes_up_after_its_replacement_finished_is_fenced(payments: Payments) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(600)]
    driver = Driver(payments)
    process = driver.start("after-offsets:0:pause")
    paused = driver.paused_worker(process)
    driver.kill(process, spare=frozenset({paused}))
    process.communicate()
    try:
        driver.taken_over()
        assert judge(forward, sent) == []
        before = len(forward.seen())
        os.kill(paused, signal.SIGCONT)  # it goes on where it was: at the commit of a transaction that is not its own
        driver.nothing_is_left()
        assert len(forward.seen()) == before
        assert judge(forward, sent) == []
        forward.keep_score(driver, sent, "driver; an old worker wakes up")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(paused, signal.SIGKILL)


@pytest.mark.skipif(not ALL, reason="part of make chaos; a kill at any moment is in test_driver_killed too")
def test_kills_at_any_moment_lose_and_repeat_nothing(payments: Payments) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    payments.spec["rate"]["max_offsets"] = 150
    sent = [payments.produce(2000, poison=0.02, seed=n) for n in range(2)]
    driver, seed = Driver(payments), random.randrange(2**32)
    moment = random.Random(seed)
    for number in range(ROUNDS):
        driver.dies_at_any_moment(moment, 2)
        assert judge(forward, sent, finished=False) == [], f"seed {seed}"
        sent.append(payments.produce(500, poison=0.02, seed=100 + number))
    driver.taken_over()
    assert judge(forward, sent) == [], f"seed {seed}"
    forward.keep_score(driver, sent)


def test_sparks_own_sink_is_caught_repeating(payments: Payments) -> None:
    """The negative control: the same judge, and the same kills (in `make test` an exception)."""
    forward = Forward(payments, "at-least-once")
    sent = [payments.produce(600)]
    driver = Driver(payments) if ALL else Here(payments)
    driver.dies_at("after-sinks:0")
    driver.finishes()
    wrong = judge(forward, sent)
    assert any("repeated" in each for each in wrong), wrong
    assert not any("lost" in each for each in wrong), wrong
    forward.keep_score(driver, sent)
    print(f"Spark's own sink, one kill: {wrong[0]}")  # noqa: T201  shown with -s
