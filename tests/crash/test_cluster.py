"""Exactly once into Kafka on clusters: executors of a Spark cluster die, brokers of a Kafka cluster die, transactions
take too long. `make chaos` goes through every place; `make test` through one of each kind.

Where no driver has to die or to be on another machine, it is this process."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from penstock.local.broker import Cluster
from tests.crash.driver import ROUNDS, Driver, Here
from tests.crash.forward import POINTS, WAYS, Forward, judge
from tests.crash.standalone import Standalone
from tests.payments import Payments, good
from tests.processes import running

ALL = ROUNDS > 1
SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with running(Standalone(tmp_path_factory.mktemp("standalone"))) as made:
        yield made


@pytest.fixture
def payments(payments_of_three: Payments) -> Payments:
    return payments_of_three


@pytest.mark.parametrize("way", WAYS if ALL else ["exactly-once-by-partition"])
def test_executors_of_a_cluster_that_die_lose_and_repeat_nothing(
    way: str, payments: Payments, standalone: Standalone, tmp_path: Path
) -> None:
    """The JVM is killed together with its Python worker; the master starts another one, Spark runs the task again. What
    lies between source and sink is a function that runs there too, unless it is one pass."""
    forward, sent = Forward(payments, way), []
    beside = not way.startswith("one pass")
    if beside:
        python_beside(payments)
        payments.spec["transform"].append(
            {"view": "placed", "python": {"function": "beside:placed", "from": "settled"}}
        )
        payments.spec["sinks"]["out"]["from"] = "placed"
    payments.spec["spark"]["master"] = standalone.master
    payments.spec["spark"]["conf"] |= SMALL
    payments.spec["rate"]["max_offsets"] = 10_000  # a part is a batch, so that a place can be named by its number
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
    forward.keep_score(driver, sent, "executors")
    if beside:
        rows = [json.loads(each.value or b"") for each in forward.seen()]
        assert {(row["amount"] > 50, row["place"].split(" ")[0]) for row in rows} == {(True, "large"), (False, "small")}
        assert_on_executors((row["place"] for row in rows), standalone)


STEPS = """
    import os

    from pyspark.sql import DataFrame, Row
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    import limits


    @F.udf("string")
    def place(amount):
        return f"{'large' if amount > limits.LARGE else 'small'} {os.getcwd()}"


    def placed(payments: DataFrame) -> DataFrame:
        return payments.withColumn("place", place("amount"))


    class Count(StatefulProcessor):
        def init(self, handle):
            self.large = handle.getValueState("large", "n int")

        def handleInputRows(self, key, rows, timerValues):
            n = self.large.get()[0] if self.large.exists() else 0
            self.large.update((n + sum(row["amount"] > limits.LARGE for row in rows),))
            yield Row(account=key[0], n=self.large.get()[0], place=os.getcwd())

        def close(self):
            pass
"""


def python_beside(payments: Payments) -> None:
    """A function and a class, and a module that they import: none of it is where an executor could find it."""
    (payments.directory / "beside.py").write_text(textwrap.dedent(STEPS))
    (payments.directory / "limits.py").write_text("LARGE = 50\n")


def assert_on_executors(places: Iterable[str], standalone: Standalone) -> None:
    wrong = {place for place in places if f"{standalone.directory}/worker-" not in place}
    assert wrong == set()


@pytest.mark.skipif(not ALL, reason="part of make chaos; a function on executors is in the test above")
def test_python_beside_the_spec_runs_on_the_executors_of_a_cluster(payments: Payments, standalone: Standalone) -> None:
    python_beside(payments)
    state = {"from": "placed", "key": ["account"], "processor": "beside:Count"}
    payments.spec |= {
        "transform": [
            {"view": "placed", "python": {"function": "beside:placed", "from": "payments"}},
            {"view": "counts", "state": {**state, "fields": {"account": "string", "n": "int", "place": "string"}}},
        ],
        "sinks": {name: {"from": name, "parquet": {"path": name}} for name in ("placed", "counts")},
    }
    payments.spec["spark"] |= {"master": standalone.master, "conf": {**SMALL, "spark.sql.shuffle.partitions": 2}}
    payments.send(*(good(n, account=f"a-{n % 3}", amount=n) for n in range(100)))
    Driver(payments).finishes()

    def rows(name: str) -> list[dict[str, Any]]:
        return list(ds.dataset(payments.directory / name, partitioning="hive").to_table().to_pylist())

    sizes = {row["payment_id"]: row["place"].split(" ")[0] for row in rows("placed")}
    assert sizes == {f"p-{n}": "large" if n > 50 else "small" for n in range(1, 100)}  # p-0 breaks a rule
    assert {row["account"]: row["n"] for row in rows("counts")} == {"a-0": 17, "a-1": 16, "a-2": 16}
    assert_on_executors((row["place"] for name in ("placed", "counts") for row in rows(name)), standalone)


@pytest.mark.parametrize("point", ["mid-produce", "after-offsets", "after-commit"] if ALL else ["after-offsets"])
@pytest.mark.parametrize("broker", [1, 2, 3] if ALL else [1])
@pytest.mark.usefixtures("spark")
def test_broker_that_dies_in_the_middle_of_a_transaction_and_comes_back(
    broker: int, point: str, payments: Payments, brokers: Cluster, tmp_path: Path
) -> None:
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(600, poison=0.02)]
    driver = Here(payments)
    with driver.pauses_at(f"{point}:0", tmp_path / "paused") as paused:
        brokers.kill(broker)
        driver.kills += 1
        try:
            os.kill(paused, signal.SIGCONT)
            time.sleep(3)  # the worker goes on with the brokers that are left
        finally:
            brokers.start(broker)
    assert judge(forward, sent) == []
    assert payments.verify().complete
    forward.keep_score(driver, sent, "brokers")


@pytest.mark.parametrize("way", WAYS if ALL else ["exactly-once-by-partition"])
@pytest.mark.usefixtures("spark")
def test_transaction_that_is_open_for_too_long_is_ended_by_the_broker_and_sent_again(
    way: str, payments: Payments, tmp_path: Path
) -> None:
    forward = Forward(payments, way)
    forward.kafka["transaction_timeout"] = "2s"
    sent = [payments.produce(600, poison=0.02)]
    driver = Here(payments)
    with driver.pauses_at("after-offsets:0", tmp_path / "paused"):
        visible = len(forward.seen())  # to the end, so it waits until the broker has ended the transaction
    # and then goes on to commit what has been given up
    assert judge(forward, sent) == []
    assert len(forward.seen()) > visible
    assert payments.verify().complete
    forward.keep_score(driver, sent, "none: a transaction was open for too long")
