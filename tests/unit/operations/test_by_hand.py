"""What people do to a pipeline stands in its event log, and only what they did: a dry run is no deed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints import checkpoint, entry, plan_batch

from penstock.checkpoint.home import Home
from penstock.deadletters.replays import Replay
from penstock.errors import BatchUnbalanced
from penstock.lifecycle.replay import run as replay
from penstock.observe.events import EventLog
from penstock.observe.noted import note
from penstock.operations import restore, seek, split
from penstock.operations.fork import fork
from penstock.operations.seek_target import Wanted
from penstock.spec.model import Pipeline


def pipeline(directory: Path, name: str = "payments", *, events: bool = True) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": name,
            "kafka": {"bootstrap": "unused"},
            "checkpoint": str(directory / name),
            "source": {"topics": {"payments": {"value": {"format": "string"}}}},
            "sinks": {"lake": {"from": "payments", "delta": {"path": str(directory / f"{name}-lake")}}},
            "observe": {"events": events},
        }
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return checkpoint(tmp_path / "payments")


def noted(home: Home) -> list[tuple[str, dict[str, Any]]]:
    return [(event.kind, event.facts) for event in EventLog(home.events).read()]


def test_seek_there_and_back(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {("payments", p): (0, 47) for p in (0, 1)}
    monkeypatch.setattr(seek, "_there", lambda *_: seek._There({}, marks, dict.fromkeys(marks, 47)))
    to = Wanted("payments:0=47")
    monkeypatch.setattr(seek.target, "asked", lambda *_: {("payments", 0): 47})
    seek.rehearse(pipeline(tmp_path), to)
    assert noted(home) == []
    ahead = seek.seek(pipeline(tmp_path), to)
    monkeypatch.setattr(seek.target, "asked", lambda *_: {("payments", 0): 40})
    back = seek.seek(pipeline(tmp_path), to)
    plain = {"renewed": None}
    assert noted(home) == [
        ("seek", {"batch": 4, "skipped": 7, "again": 0, "unread": 0, "backup": ahead.backup, **plain}),
        ("seek", {"batch": 5, "skipped": 0, "again": 0, "unread": 7, "backup": back.backup, **plain}),
    ]


def test_split(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_batch(home, 4)
    monkeypatch.setattr(split, "_require_untouched", lambda *_: None)  # no sink is there to be asked
    split.split(pipeline(tmp_path))
    assert noted(home) == [("split", {"batch": 4, "before": 20, "after": 10})]


def test_restore_and_repair(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = pipeline(tmp_path)
    place, manifest = restore.back_up(made)
    monkeypatch.setattr(restore, "_require_sinks_to_agree", lambda *_: None)  # no sink is there to be asked
    restore.restore(made, place, dry_run=True)
    restore.repair(made, apply=True)  # there is nothing to repair
    assert noted(home) == []
    replaced = restore.restore(made, place).replaced
    (home.spark / "commits" / "1").write_bytes(b"")
    restore.repair(made)
    aside = restore.repair(made, apply=True).aside
    of = {"of": manifest.time, "committed": 3}
    assert noted(home) == [
        ("restore", {"backup": str(place), "replaced": replaced, **of}),
        ("repair", {"files": 1, "left": 0, "backup": str(place), "replaced": aside}),
    ]


def test_fork_stands_in_the_log_of_both(home: Home, tmp_path: Path) -> None:
    fork(pipeline(tmp_path), pipeline(tmp_path, "new"), dry_run=True)
    assert noted(home) == []
    fork(pipeline(tmp_path), pipeline(tmp_path, "new"))
    place = str(tmp_path / "new")
    event = ("fork", {"pipeline": "new", "of_pipeline": "payments", "of_batch": 3, "checkpoint": place})
    assert (noted(home), noted(Home(tmp_path / "new"))) == ([event], [event])


def test_replay_that_ends_and_one_that_fails(home: Home, tmp_path: Path) -> None:
    run = checkpoint(home.path / "replay" / "7", 2, dead=[1])
    (run.spark / "chosen").mkdir()
    for batch in (0, 1):
        (run.spark / "chosen" / str(batch)).write_text("")  # the list of its letters: no sink had any of them
    with replay._noted(pipeline(tmp_path), Replay("7", run), 0):
        pass  # it has ended before
    assert noted(home) == []
    (run.spark / "commits" / "1").unlink()
    with replay._noted(pipeline(tmp_path), Replay("7", run), 40):
        pass
    with (
        pytest.raises(BatchUnbalanced),
        replay._noted(pipeline(tmp_path), Replay("7", run), 40),
    ):
        raise BatchUnbalanced("it does not add up")
    began = ("replay", {"state": "began", "name": "7", "letters": 40})
    counts = {"letters": 40, "passed": 39, "dead_again": 1, "dropped": 0}
    written = {"lake": 2 * entry(0).read - 1}
    failed = {"code": "batch-unbalanced", "what": "it does not add up"}
    assert noted(home) == [
        began,
        (
            "replay",
            {
                "state": "done",
                "name": "7",
                **counts,
                "written": written,
                "superseded": {},
                "left_out_before": {},
                "there_before": {},
            },
        ),
        began,
        ("replay", {"state": "failed", "name": "7", **failed}),
    ]


def test_log_that_is_off_or_cannot_be_written_stands_in_nobody_s_way(home: Home, tmp_path: Path) -> None:
    note(pipeline(tmp_path, events=False), "split", batch=1)
    assert not home.events.exists()
    home.events.write_text("a file, not a directory")
    note(pipeline(tmp_path), "split", batch=1)
