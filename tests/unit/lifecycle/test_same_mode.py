"""A checkpoint stays in the mode it was made in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.errors import CheckpointForeign, NotInRealTime
from penstock.lifecycle.realtime import same_mode
from penstock.spec.model import Pipeline


def pipeline(trigger: str) -> Pipeline:
    kafka = {"topic": "out", "guarantee": "at-least-once"}
    return Pipeline.model_validate(
        {
            "name": "p",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"t": {"value": {"format": "string"}}}},
            "sinks": {"out": {"from": "t", "kafka": kafka}},
            "trigger": trigger,
        }
    )


def begun(home: Home, trigger: str, *, batches: int) -> None:
    """A checkpoint as a start leaves it, and as it is after some batches."""
    for directory in (home.ledger, home.spark / "commits"):
        directory.mkdir(parents=True)
    (home.spark / "metadata").write_text(json.dumps({"id": "q"}))
    remembered.write(home, pipeline(trigger))
    for batch in range(batches):
        (home.spark / "commits" / str(batch)).write_text("v1\n{}")
        entry = Entry("p", "q", batch, "", "earliest", [], {}, {}, {}, real_time=trigger == "real-time")
        Ledger(home.ledger).append(entry)


@pytest.mark.parametrize("batches", [0, 2])
@pytest.mark.parametrize(("before", "now"), [("real-time", "continuous"), ("continuous", "real-time")])
def test_another_mode_is_refused_before_and_after_the_first_batch(
    tmp_path: Path, before: str, now: str, batches: int
) -> None:
    begun(Home(tmp_path), before, batches=batches)
    same_mode.check(Home(tmp_path), pipeline(before))
    with pytest.raises(CheckpointForeign, match="was made in"):
        same_mode.check(Home(tmp_path), pipeline(now))


def test_without_a_checkpoint_any_mode_can_begin(tmp_path: Path) -> None:
    for trigger in ("real-time", "continuous"):
        same_mode.check(Home(tmp_path), pipeline(trigger))


def test_just_the_newest_batch_can_have_lost_its_entry_to_a_crash(tmp_path: Path) -> None:
    home = Home(tmp_path)
    begun(home, "real-time", batches=2)
    assert not same_mode.mendable(home)
    (home.spark / "commits" / "2").write_text("v1\n{}")
    assert same_mode.mendable(home)
    (home.spark / "commits" / "3").write_text("v1\n{}")
    assert not same_mode.mendable(home)


def test_an_ordinary_ledger_is_never_mended(tmp_path: Path) -> None:
    home = Home(tmp_path)
    begun(home, "continuous", batches=2)
    (home.spark / "commits" / "2").write_text("v1\n{}")
    assert not same_mode.mendable(home)


def test_a_proof_is_refused_and_not_given(tmp_path: Path) -> None:
    with pytest.raises(NotInRealTime):
        same_mode.require_ledger(pipeline("real-time"), "verify")
    same_mode.require_ledger(pipeline("continuous"), "verify")
