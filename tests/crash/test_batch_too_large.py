"""A batch that every driver dies of: recognised after the second death, split, and nothing is lost.

Driver or engine are killed in the middle of the batch, as the kernel does when memory runs out, or Java ends for that
itself. The other death of the second test is what a driver that was killed leaves behind: a note that it had begun.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.cli.main import app, register
from penstock.doctor.gather import examined
from penstock.errors import BatchTooLarge
from tests.crash.driver import Driver, Here
from tests.crash.forward import Forward
from tests.crash.forward import judge as judge_topic
from tests.doctor_score import named
from tests.payments import Payments, judge

DAY = "2026-11-01"

pytestmark = pytest.mark.usefixtures("spark")


class Strict(Driver):
    """Accepts nothing."""

    def __init__(self, payments: Payments) -> None:
        super().__init__(payments)
        self.command = self.command[:-2]


def killed_in_batch_0(payments: Payments) -> None:
    """As a driver that had begun to run the batch again leaves it."""
    Attempts(Home.of(payments.pipeline)).begin(0)


def out_of_memory_in_batch_0(payments: Payments) -> None:
    """Java's own end, not the kernel's: a step needs more than the heap has."""
    steps, spark = payments.spec["transform"], payments.spec["spark"]
    large = "size(sequence(1, cast(amount * 0 as int) + 100000000))"  # 400 MB; not constant, or the start would fail
    payments.spec["transform"] = [
        {"view": "settled", "sql": f"select *, to_date('{DAY}') day, {large} n from payments"}
    ]
    payments.spec["spark"] = {**spark, "conf": {"spark.driver.memory": "500m"}}
    ran = payments.cli("run", str(payments.file), "--until-caught-up", "--json", expect=5)
    error = json.loads(ran.stdout.splitlines()[-1])["error"]
    assert (error["code"], error["what"]) == ("out-of-memory", "the engine ran out of memory")
    assert error["cause"] == "java.lang.OutOfMemoryError: Java heap space"
    assert "spark.driver.memory" in error["next"] and f"penstock split {payments.file}" in error["next"]
    noted = json.loads((payments.home / "attempts.json").read_text())
    assert noted == {"batch": 0, "deaths": 1, "running": False}
    payments.spec["transform"], payments.spec["spark"] = steps, spark


def split(payments: Payments) -> Any:
    register()
    return CliRunner().invoke(app, ["split", str(payments.file), "--json"])


def test_batch_that_kills_its_driver_twice_is_split_and_everything_arrives(payments: Payments) -> None:
    payments.spec["rate"]["max_offsets"] = 900
    sent = payments.produce(1500, poison=0.05)
    Here(payments).dies_at("before-sinks:0")  # which only plans the batch: that death is none
    out_of_memory_in_batch_0(payments)
    driver = Strict(payments)
    driver.dies_at("before-sinks:0")
    with pytest.raises(BatchTooLarge) as refused:
        payments.run()
    facts = {"batch": 0, "offsets": sum(map(len, SparkLog(payments.home / "spark").ranges(0))), "deaths": 2}
    assert (refused.value.exit_status, refused.value.facts) == (4, facts)
    assert "penstock split FILE" in str(refused.value.next_command)
    said = examined(payments.pipeline)[1]
    named(["stuck-batch"], (found.cause for found in said))
    assert said[0].fix == refused.value.next_command
    done = json.loads(split(payments).stdout)
    assert 0 < done["after"] <= facts["offsets"] / 2 == done["before"] / 2
    payments.run()
    assert judge(payments, [sent]) == []
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == 1500
    log = SparkLog(payments.home / "spark")
    assert sum(map(len, log.ranges(0))) == done["after"]
    assert not (payments.home / "attempts.json").exists()


def test_engine_that_dies_counts_and_what_a_sink_holds_is_not_split(payments: Payments) -> None:
    """The engine dies when one partition is in Kafka, and the driver can still say so."""
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(400)]
    driver = Strict(payments)
    process = driver.start("after-commit:0:executor")
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 5, said
    assert "the engine is gone" in said
    assert "Traceback" not in said
    assert "kafka-unreachable" not in said
    driver.nothing_is_left()
    killed_in_batch_0(payments)
    with pytest.raises(BatchTooLarge):
        payments.run()
    held = split(payments).exception
    assert isinstance(held, BatchTooLarge), held
    assert held.facts == {"batch": 0, "holders": ["sink 'out'"]}
    payments.run(accept=[BatchTooLarge.code])
    assert judge_topic(forward, sent) == []
