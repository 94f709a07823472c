"""Which ends of a run count as the death of its driver, told by files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.checkpoints import entry

from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.errors import BatchTooLarge, EngineFailed, OutOfMemory, PenstockError, RuleStopped

NONE: frozenset[str] = frozenset()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Batch 3 is planned, batch 2 committed."""
    for kind, batches in (("offsets", 4), ("commits", 3)):
        (tmp_path / "spark" / kind).mkdir(parents=True)
        for number in range(batches):
            text = json.dumps({"t": {"0": number * 100 + 100}})
            (tmp_path / "spark" / kind / str(number)).write_text(f"v1\n{{}}\n{text}")
    return Home(tmp_path)


def commit(home: Home, batch: int) -> None:
    (home.spark / "commits" / str(batch)).write_text("v1\n{}")


def test_second_death_stops_before_the_third_attempt(home: Home) -> None:
    first = Attempts(home)  # whoever planned the batch left no word
    first.check(NONE)
    first.begin(3)  # and dies
    with pytest.raises(BatchTooLarge) as stopped:
        Attempts(home).check(NONE)
    assert stopped.value.facts == {"batch": 3, "offsets": 100, "deaths": 2}
    with pytest.raises(BatchTooLarge):  # it stays so
        Attempts(home).check(NONE)


def test_batch_without_records_is_never_too_large(home: Home) -> None:
    (home.spark / "offsets" / "3").write_text((home.spark / "offsets" / "2").read_text())
    for _ in range(5):
        run = Attempts(home)
        run.check(NONE)
        run.begin(3)  # and dies


@pytest.mark.parametrize(
    "error", [None, RuleStopped("no"), EngineFailed("no", cause="'OutOfMemoryError'"), KeyboardInterrupt()]
)
def test_run_that_ends_by_itself_is_no_death(home: Home, error: BaseException | None) -> None:
    for _ in range(5):
        run = Attempts(home)
        run.check(NONE)
        run.begin(3)
        run.ended(error)


def test_clean_end_does_not_wipe_out_the_death_before_it(home: Home) -> None:
    run = Attempts(home)
    run.begin(3)
    run.ended(RuleStopped("no"))
    run = Attempts(home)
    run.check(NONE)
    run.begin(3)  # and dies
    with pytest.raises(BatchTooLarge):
        Attempts(home).check(NONE)


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemory("the engine ran out of memory"),
        EngineFailed("the engine is gone", facts={"died": "engine"}),
        EngineFailed("a Python worker of the engine died", facts={"died": "worker"}),
    ],
    ids=lambda e: e.what,
)
def test_death_that_the_driver_survives_counts(home: Home, error: PenstockError) -> None:
    run = Attempts(home)
    run.begin(3)
    run.ended(error)
    with pytest.raises(BatchTooLarge):
        Attempts(home).check(NONE)


def test_batch_that_is_done_is_forgotten(home: Home) -> None:
    run = Attempts(home)
    run.begin(3)
    run.done(3)
    assert not (home.path / "attempts.json").exists()
    commit(home, 3)
    (home.spark / "offsets" / "4").write_text((home.spark / "offsets" / "3").read_text())
    Attempts(home).check(NONE)  # another batch, another count


def test_retry_inside_of_one_run_is_no_death(home: Home) -> None:
    run = Attempts(home)
    run.forgive()
    for _ in range(3):
        run.begin(3)
    run.ended(None)
    Attempts(home).check(NONE)


def test_accepted_it_begins_anew(home: Home) -> None:
    Attempts(home).begin(3)
    Attempts(home).check(frozenset({"batch-too-large"}))
    Attempts(home).check(NONE)


def test_note_that_was_cut_off_counts_as_none(home: Home) -> None:
    (home.path / "attempts.json").write_text('{"batch": 3, "dea')
    Attempts(home).check(NONE)


def test_batch_that_is_in_the_ledger_counts_no_deaths(home: Home) -> None:
    run = Attempts(home)
    run.begin(3)  # and dies; the second time between its ledger entry and Spark's commit
    home.ledger.mkdir()
    Ledger(home.ledger).append(entry(3))
    for _ in range(3):
        again = Attempts(home)
        assert (again.batch, again.deaths) == (None, 0)
        again.check(NONE)
        again.begin(3)  # and dies


def test_lack_of_memory_after_the_ledger_entry_is_no_death_of_the_next_batch(home: Home) -> None:
    run = Attempts(home)
    home.ledger.mkdir()
    Ledger(home.ledger).append(entry(3))
    run.ended(EngineFailed("the engine failed", cause="java.lang.OutOfMemoryError: Java heap space"))
    assert not (home.path / "attempts.json").exists()
