"""Exactly once into Kafka on clusters: executors of a Spark cluster die, brokers of a Kafka cluster die, transactions
take too long. `make chaos` goes through every place; `make test` through one of each kind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.broker import Cluster
from tests.crash.driver import ROUNDS, Driver
from tests.crash.forward import POINTS, WAYS, Forward, judge
from tests.crash.standalone import Standalone
from tests.payments import Payments
from tests.processes import running

ALL = ROUNDS > 1


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("three-brokers"), brokers=3)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with running(Standalone(tmp_path_factory.mktemp("standalone"))) as made:
        yield made


@pytest.fixture
def payments(brokers: Cluster, tmp_path: Path) -> Payments:
    return Payments(brokers.bootstrap, tmp_path, replication=3)


@pytest.mark.parametrize("way", WAYS if ALL else ["one pass"])
def test_executors_of_a_cluster_that_die_lose_and_repeat_nothing(
    way: str, payments: Payments, standalone: Standalone, tmp_path: Path
) -> None:
    """The JVM is killed together with its Python worker; the master starts another one, Spark runs the task again."""
    forward, sent = Forward(payments, way), []
    payments.spec["spark"]["master"] = standalone.master
    payments.spec["spark"]["conf"] |= {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
    driver = Driver(payments)
    for number, point in enumerate(POINTS if ALL else ["mid-produce"]):
        sent.append(payments.produce(600, poison=0.02, seed=number))
        once = tmp_path / f"killed-{number}"
        driver.finishes(f"{point}:{number}:executor", once)
        assert once.exists(), f"no executor died {point}"
        driver.kills += 1
        assert judge(forward, sent) == [], point
    report = payments.verify()
    assert report.complete, report.findings
    forward.keep_score(driver, sent)


@pytest.mark.parametrize("point", ["mid-produce", "after-offsets", "after-commit"] if ALL else ["after-offsets"])
@pytest.mark.parametrize("broker", [1, 2, 3] if ALL else [1])
def test_broker_that_dies_in_the_middle_of_a_transaction_and_comes_back(
    broker: int, point: str, payments: Payments, brokers: Cluster, tmp_path: Path
) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(600, poison=0.02)]
    driver = Driver(payments)
    process = driver.start(f"{point}:0:pause", tmp_path / "paused")
    paused = driver.paused_worker(process)
    brokers.kill(broker)
    driver.kills += 1
    try:
        os.kill(paused, signal.SIGCONT)
        time.sleep(3)  # the worker goes on with the brokers that are left
    finally:
        brokers.start(broker)
    driver.ends_well(process)
    assert judge(forward, sent) == []
    assert payments.verify().complete
    forward.keep_score(driver, sent)


@pytest.mark.parametrize("way", WAYS if ALL else ["exactly-once-by-partition"])
def test_transaction_that_is_open_for_too_long_is_ended_by_the_broker_and_sent_again(
    way: str, payments: Payments, tmp_path: Path
) -> None:
    forward = Forward(payments, way)
    forward.kafka["transaction_timeout"] = "2s"
    sent = [payments.produce(600, poison=0.02)]
    driver, once = Driver(payments), tmp_path / "paused"
    process = driver.start("after-offsets:0:pause", once)
    paused = driver.paused_worker(process)
    visible = len(forward.seen())  # to the end, so it waits until the broker has ended the transaction
    os.kill(paused, signal.SIGCONT)  # to commit what has been given up
    driver.ends_well(process)
    assert judge(forward, sent) == []
    assert len(forward.seen()) > visible
    assert payments.verify().complete
    forward.keep_score(driver, sent)
