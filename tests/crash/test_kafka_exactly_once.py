"""Exactly once into Kafka, while workers and drivers are killed in the middle of their transactions.

The judge is a read_committed consumer that is not ours, and the producer's ledger: the places carried in a header are
those of the acknowledged records, each once; in order per input partition; at every moment a prefix without gaps; and
no transaction is left open. Spark's own sink, under the same kills, is the negative control.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.testing.acknowledged import Acknowledged, Place, places
from tests.committed import Seen, committed
from tests.crash.driver import ROUNDS, Driver
from tests.payments import Payments

WAYS = ("exactly-once-by-batch", "exactly-once-by-partition", "one pass")
POINTS = ("before-init", "after-init", "mid-produce", "after-offsets", "after-commit")


class Forward:
    """The payments of one topic into another, each with a header that says which record it was."""

    def __init__(self, payments: Payments, guarantee: str, *, one_pass: bool = False) -> None:
        self.payments, self.out = payments, f"{payments.topic}-out"
        payments.create(self.out, 2)
        kafka = {
            "topic": self.out,
            "key": {"format": "string", "column": "account"},
            "origin": True,
            "guarantee": guarantee,
        }
        payments.spec["sinks"] = {"out": {"from": "payments" if one_pass else "settled", "kafka": kafka}}
        if one_pass:  # no SQL between: decoded, judged, encoded and sent by the same worker
            payments.spec["transform"] = []
            drop = {"name": "void", "rule": "status <> 'VOID'", "otherwise": "drop"}
            payments.spec["contract"]["payments"].append(drop)
        payments.spec["rate"]["max_offsets"] = 600
        # Small Arrow batches: a task must have sent some records and not yet others when it dies.
        payments.spec["spark"]["conf"] = {"spark.sql.execution.arrow.maxRecordsPerBatch": 50}

    def seen(self, *, to_the_end: bool = True) -> list[Seen]:
        return committed(self.payments.bootstrap, self.out, to_the_end=to_the_end)


def judge(forward: Forward, sent: Iterable[Acknowledged], *, finished: bool = True) -> list[str]:
    """What is wrong with what readers see, so that a test can also show that it finds something wrong."""
    wrong = []
    expected: Counter[Place] = Counter(place for part in sent for place in places(part.kept()))
    seen = forward.seen(to_the_end=finished)
    found = Counter(each.origin for each in seen)
    lost, extra = expected - found, found - expected
    if extra:
        wrong.append(f"{sum(extra.values())} repeated or invented, e.g. {min(extra)}")
    if finished and lost:
        wrong.append(f"{sum(lost.values())} lost, e.g. {min(lost)}")
    for place in {(topic, partition) for topic, partition, _ in expected}:
        here = sorted(offset for t, p, offset in found if (t, p) == place)
        if here != sorted(offset for t, p, offset in expected if (t, p) == place)[: len(here)]:
            wrong.append(f"what is visible of {place} has gaps")
    in_order: dict[tuple[int, str, int], int] = {}
    for each in seen:
        topic, partition, offset = each.origin
        if in_order.get((each.partition, topic, partition), -1) > offset:
            wrong.append(f"{each.origin} came after a later one")
        in_order[each.partition, topic, partition] = offset
    return wrong


@pytest.fixture(params=WAYS)
def forward(payments: Payments, request: pytest.FixtureRequest) -> Forward:
    if request.param == "one pass":
        return Forward(payments, "exactly-once-by-partition", one_pass=True)
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
    points = ["mid-produce:0:driver", "after-commit:0:driver"]
    if ROUNDS > 1:
        points += [*(f"{point}:1:driver" for point in POINTS), "after-sinks:1", "after-ledger:1"]
    for point in points:
        driver.dies_at(point)
        assert judge(forward, sent, finished=False) == [], point
    driver.finishes()
    assert judge(forward, sent) == []
    assert forward.payments.verify().complete


def test_attempt_that_wakes_up_after_its_replacement_finished_is_fenced(payments: Payments) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(600)]
    driver = Driver(payments)
    process = driver.start("after-offsets:0:pause")
    deadline = time.monotonic() + 120
    while (paused := driver.stopped_worker()) is None:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
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
    print(f"Spark's own sink, one kill: {wrong[0]}")  # noqa: T201  shown with -s


def _next_batch(payments: Payments) -> int:
    commits = payments.home / "spark" / "commits"
    return max((int(f.name) for f in commits.iterdir() if f.name.isdigit()), default=-1) + 1 if commits.is_dir() else 0
