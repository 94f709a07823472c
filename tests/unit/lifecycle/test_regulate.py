"""A cap is told to be in force when it is, and not before: of a query that has to be started again for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.two_batches import ENTRIES, PIPELINE

from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.cli.live import JsonLines, Lines
from penstock.control.rate import Decision
from penstock.lifecycle.rate import Regulator
from penstock.observe.events import EventLog
from penstock.observe.listeners import Everyone, Measuring, Recorder
from penstock.observe.metrics import Meters
from penstock.record import OffsetRange
from penstock.spec.model import Rate


class Run:
    """A pipeline that is started and runs batches, with everyone who looks on; only the engine is left out."""

    def __init__(self, path: Path, first: Lines | JsonLines, **rate: object) -> None:
        self.home, self.first, self.batch = Home(path), first, 0
        self.log = EventLog(self.home.events)
        self.meters = Meters("p")
        self.everyone = Everyone(first, [Recorder(self.log.append), Measuring(self.meters)])
        asked = Rate.model_validate(rate)
        self.regulator = Regulator(asked, self.everyone.decided, self.everyone.warn)
        self.everyone.started(PIPELINE.model_copy(update={"rate": asked}), self.home)
        self.start()

    def start(self) -> int:
        return self.regulator.starting(SparkLog(self.home.spark))

    def planned(self, batch: int) -> None:
        (self.home.spark / "offsets").mkdir(parents=True, exist_ok=True)
        (self.home.spark / "offsets" / str(batch)).write_text("v1\n{}\n{}")

    def done(self, offsets: int, seconds: float) -> None:
        self.planned(self.batch)
        entry = replace(ENTRIES[0], batch=self.batch, ranges=[OffsetRange("t", 0, 0, offsets)])
        self.everyone.batch_done(entry, seconds)
        self.regulator.batch_done(entry, seconds)
        self.batch += 1

    @property
    def metric(self) -> float | None:
        return self.meters.registry.get_sample_value("penstock_rate_max_offsets", {"pipeline": "p"})

    def events(self, kind: str, *names: str) -> list[tuple[object, ...]]:
        return [tuple(event.facts[name] for name in names) for event in self.log.read([kind])]


RANGE = {("t", 0): 0}, {("t", 0): 9}  # a display that knows where it ends does not ask Kafka


@pytest.fixture
def shown() -> Lines:
    lines = Lines()
    lines.bounded(*RANGE)
    return lines


def test_cap_that_needs_a_restart_is_wanted_until_the_query_was_started_again(
    tmp_path: Path, shown: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, shown, max_offsets=1000, target_batch="10s", by_restart=True)
    run.done(1000, 20.0)
    run.done(1000, 4.0)
    assert run.regulator.restart
    assert run.events("rate", "before", "cap", "wanted", "reason") == [
        (1000, 1000, 1000, "warm-up"),
        (1000, 1000, 4000, "far-below-target"),
    ]
    run.planned(2)  # Spark was faster than the stop
    assert run.metric == 1000
    assert (run.start(), run.metric) == (4000, 4000)
    run.done(1000, 4.0)
    run.done(4000, 8.7)
    assert run.events("rate", "before", "cap", "wanted", "reason", "since")[2:] == [
        (1000, 4000, 4000, "restarted", 3),
        (4000, 4000, 4000, "replay", 3),
        (4000, 4000, 4000, "on-target", 4),
    ]
    assert run.events("batch", "batch", "offsets", "cap") == [
        (0, 1000, 1000),
        (1, 1000, 1000),
        (2, 1000, 1000),
        (3, 4000, 4000),
    ]
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rate: ")]
    assert said == [
        "rate: 4,000 offsets a batch wanted instead of 1,000: 4.0 s, target 10 s; the query is started again",
        "rate: 1,000 -> 4,000 offsets a batch: the query was started again; it counts from batch 3 on",
    ]


def test_gap_that_is_not_worth_a_restart_is_only_in_the_event(
    tmp_path: Path, shown: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, shown, max_offsets=1000, target_batch="10s", by_restart=True)
    run.done(1000, 9.0)
    for _ in range(6):
        run.done(1000, 8.2)
    events = run.events("rate", "cap", "wanted", "reason")
    assert {cap for cap, _, _ in events} == {1000}
    assert (events[-1][2], 1000 < int(str(events[-1][1])) < 1500) == ("not-worth-a-restart", True)
    assert not run.regulator.restart
    assert "rate:" not in capsys.readouterr().err


def test_batch_that_an_earlier_run_planned_has_no_known_cap(tmp_path: Path, shown: Lines) -> None:
    home = Home(tmp_path)
    (home.spark / "offsets").mkdir(parents=True)
    (home.spark / "offsets" / "0").write_text("v1\n{}\n{}")
    run = Run(tmp_path, shown, max_offsets=1000, target_batch="10s", by_restart=True)
    run.done(37, 2.0)
    run.done(1000, 10.0)
    assert run.events("batch", "batch", "cap") == [(0, None), (1, 1000)]
    assert run.events("rate", "reason") == [("replay",), ("on-target",)]


def test_target_below_the_overhead_is_said_once(shown: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    said = "7.0 s, target 3 s; 3.5 s are there at any size, so 7.0 s are aimed at"
    for batch in range(3):
        decision = Decision(batch, 70_000, 70_000, "target-below-overhead", said, 7.0, 70_000, 70_000, batch + 1)
        shown.decided(decision)
    assert capsys.readouterr().err.splitlines() == [
        f"rate: the target is below what a batch of any size takes: raise `rate.target_batch` ({said})"
    ]


def test_json_lines_of_a_run_are_the_events_of_the_event_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = JsonLines()
    lines.bounded(*RANGE)
    run = Run(tmp_path, lines, max_offsets=1000, target_batch="10s", by_restart=True)
    run.done(1000, 3.0)
    run.everyone.warn("full")
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    logged = [event.as_dict() for event in run.log.read()]
    assert [event["event"] for event in said] == ["started", "batch", "rate", "warning"]
    assert all(event.pop("time") for event in (*said, *logged))
    assert (said[1].pop("entry")["batch"], said[1].pop("left")) == (0, 0)
    assert said == logged
