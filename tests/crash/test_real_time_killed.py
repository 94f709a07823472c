"""Real-time mode killed with -9 in the middle of a batch: nothing is lost; how much comes twice is counted and said."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.checkpoint.log import SparkLog
from penstock.local.broker import Cluster
from tests.alerts import Alerts, killed, payment
from tests.crash.driver import ROUNDS
from tests.crash.score import Score

_BETWEEN_S = 0.01


def test_driver_killed_in_the_middle_of_a_batch_loses_nothing_and_repeats_some(
    kafka: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alerts = Alerts(kafka.bootstrap, tmp_path)
    over, sent = threading.Event(), []

    def produce() -> None:
        while not over.is_set():
            good = len(sent) % 10 != 9
            alerts.send(payment(len(sent)) if good else payment(len(sent), amount='"x"'))
            sent.append(good)
            time.sleep(_BETWEEN_S)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        for _ in range(ROUNDS):
            before = len(alerts.read(alerts.out))
            with alerts.running() as process:
                alerts.until(lambda seen=before: len(alerts.read(alerts.out)) > seen + 20)
                alerts.until(lambda: SparkLog(alerts.home / "spark").committed() is not None)
                time.sleep(1)
                killed(process)
            uncommitted(alerts)
    finally:
        over.set()
        producing.join()
    good, bad = ({i for i, each in enumerate(sent) if each is kind} for kind in (True, False))
    with alerts.running():
        alerts.until(lambda: good <= ids(alerts).keys() and bad <= dead(alerts).keys())
    rows, letters = ids(alerts), dead(alerts)
    assert rows.keys() == good and letters.keys() == bad
    twice = sum(rows.values()) - len(rows) + sum(letters.values()) - len(letters)
    with capsys.disabled():
        sys.stdout.write(f"real-time: {len(sent)} records, {ROUNDS} kills, 0 lost, {twice} twice\n")
    Score("kafka, real-time (at least once)", "driver", ROUNDS, ROUNDS, len(sent), 0, twice).keep()
    assert twice > 0  # what this mode says of itself is true: this is not exactly once


def uncommitted(alerts: Alerts) -> None:
    """As if it had been killed between the offsets of a batch and its commit."""
    spark = alerts.home / "spark"
    newest = SparkLog(spark).committed()
    for name in (f"{newest}", f".{newest}.crc"):
        (spark / "commits" / name).unlink(missing_ok=True)
    ledger = next((alerts.home / "ledger").glob("*.jsonl"))
    kept = [line for line in ledger.read_text().splitlines(True) if json.loads(line)["batch"] != newest]
    ledger.write_text("".join(kept))


def ids(alerts: Alerts) -> Counter[int]:
    return Counter(json.loads(message.value())["id"] for message in alerts.read(alerts.out))


def dead(alerts: Alerts) -> Counter[int]:
    return Counter(json.loads(letter.value or b"{}")["id"] for letter in alerts.letters())
