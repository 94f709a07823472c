"""The broker goes away in the middle of a run and comes back: the run goes on by itself and nothing is lost."""

from __future__ import annotations

import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.payments import Payments, judge
from tests.processes import Run

from penstock.checkpoint.ledger import Ledger
from penstock.kafka import admin, transaction
from penstock.kafka.connection import connect_to
from penstock.kafka.transaction import Mark, Owner
from penstock.local.broker import Cluster
from penstock.spec.model import TopicSettings

BROKER = 1
AWAY_S = 12.0  # longer than a wait that is not told
START_S = 90.0  # within which a broker starts, however much there is to do


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


class Books:
    """What a run has done so far, by its ledger and its table."""

    def __init__(self, payments: Payments) -> None:
        self.ledger = Ledger(payments.home / "ledger")
        self.log = payments.directory / "lake" / "_delta_log"

    def read(self) -> int:
        return sum(entry.read for entry in self.ledger.entries())

    def in_the_middle_of(self, batch: int) -> bool:
        """The table has the batch, the ledger not yet: its dead letters are still to be written to Kafka."""
        return (self.log / f"{batch:020}.json").exists() and self.read() > 0


def test_a_broker_killed_or_silent_while_dead_letters_are_due_comes_back_and_the_run_goes_on(
    cluster: Cluster, payments: Payments, start: Callable[..., Run]
) -> None:
    sent = [payments.produce(450, poison=0.05)]
    books, run = Books(payments), start("run", str(payments.file))
    run.until(lambda: books.in_the_middle_of(1))
    cluster.kill(BROKER)
    away_for(AWAY_S, run)
    cluster.start(BROKER)
    run.until(lambda: books.read() == 450)
    assert re.search(r"^batch \d+, \d+ s so far: ", run.said(), re.MULTILINE), run.said()

    sent.append(payments.produce(450, poison=0.05, seed=8))  # the source follows the broker that came back
    run.until(lambda: books.in_the_middle_of(4))
    cluster.pause(BROKER)
    away_for(AWAY_S, run)
    assert books.read() < 900  # it was in the middle, and waited
    cluster.resume(BROKER)
    run.until(lambda: books.read() == 900)

    run.process.send_signal(signal.SIGTERM)
    assert run.ended() == 0, run.said()
    assert "Traceback" not in run.said()
    assert judge(payments, sent) == []
    report = payments.verify()
    assert report.complete, report.findings


def test_transaction_whose_broker_went_away_goes_on_once_it_is_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client used to wait for the coordinator it had closed: until its time was up, and in vain."""
    cluster.up()
    config, name = connect_to(cluster.bootstrap), f"marks-{uuid.uuid4().hex[:8]}"
    admin.create_missing(config, {name: TopicSettings(partitions=1, replication=1)})
    owner = Owner.take(config, name, name)
    owner.begin()
    owner.mark({(name, 0): Mark(1)})  # it knows the group's coordinator now
    owner.commit()
    monkeypatch.setattr(transaction, "_TIMEOUT_S", START_S)
    cluster.kill(BROKER)
    owner.begin()
    with ThreadPoolExecutor(1) as beside:
        marked = beside.submit(owner.mark, {(name, 0): Mark(2)})
        cluster.start(BROKER)
        marked.result()
    owner.commit()
    assert transaction.marks(config, name, [(name, 0)]) == {(name, 0): Mark(2)}


def away_for(seconds: float, run: Run) -> None:
    """The outage itself: time is what it is made of. The run must outlive it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run.goes_on()
        time.sleep(0.1)
