"""What follows a batch and a failure. Batches here read and write nothing: they end, or fail as they are told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.two_batches import ENTRIES, PIPELINE

from penstock.batch.run import Assembly
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry
from penstock.errors import EngineFailed, KafkaUnreachable, PenstockError, RegistryUnreachable
from penstock.lifecycle.restart import Perseverance, losses
from penstock.lifecycle.retry_policy import RETRIES, Patience
from penstock.record import OffsetRange
from penstock.watch import StopRequest, Watch


class Heard(Watch):
    def __init__(self) -> None:
        self.said: list[str] = []

    def batch_done(self, entry: Entry, _seconds: float) -> None:
        self.said.append(f"batch {entry.batch}")

    def retrying(self, error: PenstockError, _wait_s: float) -> None:
        self.said.append(error.code)

    def warn(self, text: str) -> None:
        self.said.append(text)


class Impatient(StopRequest):
    """Nobody waits; a stop is asked for at the waits that are counted here."""

    def __init__(self, stops_at: int = -1) -> None:
        super().__init__()
        self.waits, self._stops_at = 0, stops_at

    def asked_within(self, seconds: float) -> bool:
        self.waits += 1
        if self.waits == self._stops_at:
            self.ask()
        return self.asked


@dataclass
class Batches:
    """Stands for an assembly: each call does the next thing that is to happen."""

    to_happen: list[Exception | None]
    pipeline: Any = field(default_factory=lambda: PIPELINE)
    dead_letters: Any = None
    replay: bool = False
    readers: Any = field(default_factory=lambda: SimpleNamespace(given_up=False))
    ran: list[tuple[int, bool]] = field(default_factory=list)  # which batch, and whether it may have run before
    looked_up_anew: list[bool] = field(default_factory=list)

    def process(self, _raw: object, number: int) -> Entry:
        self.ran.append((number, self.replay))
        happens = self.to_happen.pop(0)
        if happens is not None:
            raise happens
        self.replay = False
        return replace(ENTRIES[0], batch=number)

    def blamed(self, error: Exception) -> Exception:
        return error

    def look_up_anew(self) -> None:
        self.looked_up_anew.append(self.readers.given_up)


@dataclass
class Run:
    heard: Heard
    committed: list[int]


def run(batches: Batches, tmp_path: Path, stop: StopRequest | None = None, patience: Patience | None = None) -> Run:
    done = Run(Heard(), [])
    bear = Perseverance(Home(tmp_path), done.heard, stop or Impatient(), patience or Patience(None), Disks({}))
    bear.run_each(range(2), cast(Assembly, batches), lambda *_: cast(Any, None), done.committed.append)
    return done


def test_batch_that_fails_is_run_again_as_one_that_may_have_been_written_and_then_the_next(tmp_path: Path) -> None:
    batches = Batches([KafkaUnreachable("away"), None, None])
    done = run(batches, tmp_path)
    assert batches.ran == [(0, False), (0, True), (1, False)]
    assert done.committed == [0, 1]
    assert done.heard.said == ["kafka-unreachable", "batch 0", "batch 1"]


def test_what_nobody_can_wait_for_ends_the_run_in_our_words(tmp_path: Path) -> None:
    batches = Batches([None, ValueError("a step divides by zero")])
    with pytest.raises(EngineFailed):
        run(batches, tmp_path)
    assert batches.ran == [(0, False), (1, False)]


def test_a_batch_that_ends_gives_the_next_one_all_the_patience(tmp_path: Path) -> None:
    away: list[Exception | None] = [KafkaUnreachable("away") for _ in range(RETRIES)]
    assert run(Batches([*away, None, *away, None]), tmp_path).committed == [0, 1]
    with pytest.raises(KafkaUnreachable):
        run(Batches([*away, KafkaUnreachable("away")]), tmp_path)


def test_stop_that_is_asked_for_during_a_wait_ends_the_run_and_commits_nothing(tmp_path: Path) -> None:
    batches = Batches([KafkaUnreachable("away"), None])
    assert run(batches, tmp_path, stop=Impatient(stops_at=1)).committed == []
    assert batches.ran == [(0, False)]


def test_registry_that_stays_away_is_given_up_and_the_batch_goes_on_without_it(tmp_path: Path) -> None:
    batches = Batches([RegistryUnreachable("away"), None, None])
    done = run(batches, tmp_path, patience=Patience(0))
    assert batches.looked_up_anew == [True]
    assert "`unreadable` now decides" in done.heard.said[1]  # once it is said that it cannot be reached
    assert done.committed == [0, 1]


def test_what_was_lost_and_what_may_be_is_told_with_its_place() -> None:
    lost, doubtful = [OffsetRange("t", 0, 0, 1000)], [OffsetRange("t", 1, 5, 8)]
    assert losses(ENTRIES[0]) == []
    said = losses(replace(ENTRIES[0], ranges=[*lost, OffsetRange("t", 1, 5, 20)], lost=lost, doubtful=doubtful))
    assert said == [
        "1,000 offsets expired unread: t-0 [0, 1000)",
        "up to 2 records lost to expiry during the read: t-1 [5, 8)",
    ]
