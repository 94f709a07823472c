"""The cap of a real query follows the target while it runs.

How fast this machine is must not matter much: every record sleeps in the engine, in two tasks at a time.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.payments import Heard, Payments, good, until

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry
from penstock.control.rate import Decision
from penstock.lifecycle import stream
from penstock.lifecycle.rate import Regulator
from penstock.observe.events import EventLog
from penstock.record import OffsetRange
from penstock.spark.read_limit import NotChangeable, Throttle
from penstock.spec.model import Rate

pytestmark = pytest.mark.usefixtures("spark")


class Decided(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.decisions: list[Decision] = []

    def decided(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def reached(self, target: float, sizes: range) -> int:
        """How many batches it took until one was within 25 % of the target; or of what is aimed at instead, where this
        machine is so busy that the overhead fills the target. `sizes`: that it is so by its size, and not because the
        machine was busy with something else."""
        goals = [d.goal or target for d in self.decisions]
        near = [
            abs(d.seconds - goal) <= 0.25 * goal and d.offsets in sizes
            for d, goal in zip(self.decisions, goals, strict=True)
        ]
        return near.index(True) + 1 if True in near else 99

    def turns(self) -> int:
        moves = [d.cap > d.before for d in self.decisions if d.changed]
        return sum(a != b for a, b in itertools.pairwise(moves))

    def sizes(self) -> list[int]:
        return [sum(map(len, entry.ranges)) for entry in self.entries]

    def said(self) -> str:
        return "\n".join(f"{d.before:>7} {d.offsets:>7} {d.seconds:>7} {d.reason}" for d in self.decisions)


@pytest.fixture
def slow(kafka: Any, tmp_path: Path) -> Payments:
    return Payments(kafka.bootstrap, tmp_path, partitions=2)


def limited(payments: Payments, sleep_ms: int, **rate: Any) -> None:
    sql = f"select payment_id, _kafka, java_method('java.lang.Thread', 'sleep', {sleep_ms}L) as slept from payments"
    payments.spec["transform"] = [{"view": "slow", "sql": sql}]
    payments.spec["sinks"] = {"lake": {"from": "slow", "parquet": {"path": "lake"}}}
    payments.spec["rate"] = rate


@pytest.mark.parametrize(
    ("target", "sleep_ms", "cap", "count", "sizes"),
    [(1.2, 1, 26_000, 58_000, range(1, 5200)), (3.0, 3, 16, 6500, range(320, 10_000))],
    ids=["from twenty times too high", "from a hundred times too low"],
)
def test_cap_reaches_the_target_within_eight_batches_and_does_not_oscillate(
    slow: Payments, target: float, sleep_ms: int, cap: int, count: int, sizes: range
) -> None:
    """About 1,300 and 1,600 offsets a batch take the target. A first batch does not lower the cap, so of those that are
    too large there are two."""
    limited(slow, sleep_ms, max_offsets=cap, target_batch=f"{target:g}s")
    slow.produce(count)
    heard = Decided()
    slow.run(watch=heard)
    assert heard.warnings == []  # the running query was changed, not started again
    assert heard.reached(target, sizes) <= 8, heard.said()
    assert heard.turns() <= 2, heard.said()
    assert slow.verify().complete
    logged = [event.facts for event in EventLog(Home(slow.home).events).read(["rate"])]
    assert [(e["batch"], e["cap"], e["reason"]) for e in logged] == [
        (d.batch, d.cap, d.reason) for d in heard.decisions
    ]
    assert len(logged) == len(heard.entries)


def test_where_the_running_query_is_not_changed_it_is_started_again(slow: Payments) -> None:
    limited(slow, 1, max_offsets=100, target_batch="3s", by_restart=True)
    slow.produce(3000)
    heard = Decided()
    slow.run(watch=heard)
    assert max(heard.sizes()) >= 300, heard.said()
    assert "replay" in {d.reason for d in heard.decisions}, heard.said()  # planned before the stop, with the old cap
    assert all(d.changed == (d.reason == "restarted") for d in heard.decisions), heard.said()
    batches = [event.facts for event in EventLog(Home(slow.home).events).read(["batch"])]
    assert all(batch["offsets"] <= batch["cap"] for batch in batches), batches  # the cap that was in force
    assert sum(batch["offsets"] >= batch["cap"] - 2 for batch in batches) >= len(batches) - 1, batches
    assert [entry.batch for entry in heard.entries] == list(range(len(heard.entries)))
    assert sum(heard.sizes()) == 3000
    assert slow.verify().complete


def test_probe_finds_a_source_whose_cap_cannot_be_changed_and_the_query_is_to_be_started_again(spark: Any) -> None:
    """A real query on a source that has no such limit, in the place of a Spark that keeps it elsewhere."""
    warnings: list[str] = []
    regulator = Regulator(Rate(max_offsets=10, target_batch="10s"), lambda _: None, warnings.append)
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    try:
        until(lambda: query.lastProgress, 60)
        regulator.started(query)
        with pytest.raises(NotChangeable):
            Throttle(query).probe(10)
        regulator.batch_begins()
    finally:
        query.stop()
    assert "does not let the cap of a running query be changed" in warnings[0]
    entry = Entry("p", "q", 0, "", "earliest", [OffsetRange("t", 0, 0, 10)], {}, {}, {})
    regulator.batch_done(entry, 0.5)
    assert (regulator.restart, regulator.state.cap) == (True, 40)


def test_batch_waits_for_min_offsets_also_after_the_cap_has_moved(payments: Payments) -> None:
    payments.spec["rate"] = {"max_offsets": 50, "min_offsets": 50, "max_delay": "1h", "target_batch": "30s"}
    payments.produce(500)
    heard, stop = Decided(), stream.StopRequest()
    run = threading.Thread(target=lambda: stream.run(payments.pipeline, watch=heard, stop=stop))
    run.start()
    try:
        until(lambda: sum(heard.sizes()) == 500, 60)
        assert max(heard.sizes()) > 50, heard.said()
        batches = len(heard.entries)
        payments.send(*(good(n) for n in range(30)))
        time.sleep(2)
        assert len(heard.entries) == batches
        payments.send(*(good(n) for n in range(30)))
        until(lambda: sum(heard.sizes()) == 560, 60)
        assert heard.sizes()[-1] == 60
    finally:
        stop.ask()
        run.join(60)


def test_run_that_ends_when_it_has_caught_up_does_not_wait_for_min_offsets(payments: Payments) -> None:
    payments.spec["rate"] = {"max_offsets": 300, "min_offsets": 300, "max_delay": "1h"}
    payments.produce(310)
    heard = Decided()
    payments.run(watch=heard)
    assert sum(heard.sizes()) == 310
    assert len(heard.entries) > 1
