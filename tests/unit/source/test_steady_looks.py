"""Looking at a checkpoint without its lock, while a run goes on and Spark removes old batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkpoints import checkpoint

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointForeign
from penstock.operations import seek as seeking
from penstock.operations.fork import fork
from penstock.operations.seek import rehearse, seek
from penstock.operations.seek_target import Wanted
from penstock.source.position import known_positions, lasting_damage
from penstock.spec.model import Pipeline


def pipeline(directory: Path, name: str = "payments") -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": name,
            "kafka": {"bootstrap": "unused"},
            "checkpoint": str(directory / name),
            "source": {"topics": {"payments": {"value": {"format": "string"}}}},
            "sinks": {"lake": {"from": "payments", "delta": {"path": str(directory / f"{name}-lake")}}},
        }
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """As a look finds it that listed the batches before the first two were removed, and read them after."""
    made = checkpoint(tmp_path / "payments")
    remove(made, "offsets", 1)
    marks = {("payments", p): (0, 100) for p in (0, 1)}
    said = seeking._There({}, marks, dict.fromkeys(marks, 100))
    monkeypatch.setattr(seeking, "_there", lambda *_: said)  # what Kafka would say
    return made


def remove(home: Home, kind: str, batch: int) -> None:
    (home.spark / kind / str(batch)).unlink(missing_ok=True)
    (home.spark / kind / f".{batch}.crc").unlink(missing_ok=True)


def forked(directory: Path) -> int | None:
    return fork(pipeline(directory), pipeline(directory, "new"), dry_run=True).of_batch


def rehearsed(directory: Path) -> int | None:
    return rehearse(pipeline(directory), Wanted(to_batch=2)).batch - 1


def instead_of_pauses(monkeypatch: pytest.MonkeyPatch, act: Callable[[float], object]) -> None:
    """Those of the test's own thread: the engine's client has one that sleeps for as long as the process lives."""
    mine, sleep = threading.current_thread(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: act(s) if threading.current_thread() is mine else sleep(s))


Look = Callable[[Path], int | None]
LOOKS = pytest.mark.parametrize("look", [forked, rehearsed])


@LOOKS
def test_what_is_wrong_for_a_moment_of_a_run_is_no_alarm(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    def go_on(_: float) -> None:
        for kind in ("offsets", "commits"):
            for batch in (0, 1):
                remove(home, kind, batch)

    instead_of_pauses(monkeypatch, go_on)
    with home.held():
        assert look(tmp_path) == 3


@LOOKS
def test_what_stays_wrong_is_said_also_of_a_run(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    pauses: list[float] = []
    instead_of_pauses(monkeypatch, pauses.append)
    with home.held(), pytest.raises(CheckpointForeign) as wrong:
        look(tmp_path)
    assert "offsets/1 is missing" in str(wrong.value.cause)
    assert 0 < sum(pauses) < 3


@LOOKS
def test_without_a_run_one_look_is_enough(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look
) -> None:
    pauses: list[float] = []
    instead_of_pauses(monkeypatch, pauses.append)
    with pytest.raises(CheckpointForeign):
        look(tmp_path)
    with pytest.raises(CheckpointForeign):  # it holds the lock itself
        seek(pipeline(tmp_path), Wanted(to_batch=2))
    assert (home.path.is_dir(), pauses) == (True, [])


def test_damage_of_a_run_is_what_stays_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = checkpoint(tmp_path / "payments")
    whole = {number: (home.spark / "offsets" / str(number)).read_bytes() for number in (2, 3)}
    for number in whole:
        (home.spark / "offsets" / str(number)).write_bytes(b"v1")
    instead_of_pauses(monkeypatch, lambda _: (home.spark / "offsets" / "3").write_bytes(whole[3]))
    assert [each.file for each in lasting_damage(home)] == ["spark/offsets/2", "spark/offsets/3"]
    with home.held():
        assert [each.file for each in lasting_damage(home)] == ["spark/offsets/2"]


def test_position_is_that_of_the_log_or_where_it_is_damaged_or_gone_that_of_the_ledger(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "payments")
    log, entries = SparkLog(home.spark), Ledger(home.ledger).recent(3)
    at = log.next_positions()
    assert at
    assert known_positions(log, []) == at
    (home.spark / "offsets" / "3").write_text("v1")
    assert (known_positions(log, []), known_positions(log, entries)) == (None, at)
    home.spark.rename(tmp_path / "elsewhere")
    assert (known_positions(log, []), known_positions(log, entries)) == (None, at)
