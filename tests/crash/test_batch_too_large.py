"""A batch that every driver dies of: recognised after the second death, split, and nothing is lost.

The deaths are real: driver and engine are killed in the middle of the batch, as the kernel does when memory runs out.
"""

from __future__ import annotations

import json

from penstock.checkpoint.log import SparkLog
from tests.crash.driver import Driver
from tests.crash.forward import Forward
from tests.crash.forward import judge as judge_topic
from tests.payments import Payments, judge


class Strict(Driver):
    """Accepts nothing."""

    def __init__(self, payments: Payments) -> None:
        super().__init__(payments)
        self.command = self.command[:-2]


def refused(payments: Payments, *words: str) -> dict[str, object]:
    said = payments.cli(*words, "--json", expect=4).stdout.splitlines()[-1]
    error: dict[str, object] = json.loads(said)["error"]
    assert error["code"] == "batch-too-large", error
    return error


def test_batch_that_kills_its_driver_twice_is_split_and_everything_arrives(payments: Payments) -> None:
    payments.spec["rate"]["max_offsets"] = 900
    sent = payments.produce(1500, poison=0.05)
    driver = Strict(payments)
    driver.dies_at("before-sinks:0")
    driver.dies_at("before-sinks:0")
    file = str(payments.file)
    error = refused(payments, "run", file, "--until-caught-up")
    facts = {"batch": 0, "offsets": sum(map(len, SparkLog(payments.home / "spark").ranges(0))), "deaths": 2}
    assert error["facts"] == facts
    assert f"penstock split {file}" in str(error["next"])
    done = json.loads(payments.cli("split", file, "--json").stdout)
    assert 0 < done["after"] <= facts["offsets"] / 2 == done["before"] / 2
    assert driver.finishes()
    assert judge(payments, [sent]) == []
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == 1500
    log = SparkLog(payments.home / "spark")
    assert sum(map(len, log.ranges(0))) == done["after"]
    assert not (payments.home / "attempts.json").exists()


def test_engine_that_dies_counts_and_what_a_sink_holds_is_not_split(payments: Payments) -> None:
    """One partition is in Kafka when the driver dies; before that only the engine did, and the driver could say so."""
    forward = Forward(payments, "exactly-once-by-partition")
    sent = [payments.produce(400)]
    driver, file = Strict(payments), str(payments.file)
    process = driver.start("mid-produce:0:executor")
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 5, said
    assert "the engine is gone" in said
    driver.nothing_is_left()
    driver.dies_at("after-commit:0:driver")
    refused(payments, "run", file, "--until-caught-up")
    held = refused(payments, "split", file)
    assert held["facts"] == {"batch": 0, "holders": ["sink 'out'"]}
    payments.cli("run", file, "--until-caught-up", "--accept", "batch-too-large")
    assert judge_topic(forward, sent) == []
