"""Which checkpoints a pipeline with stateful steps goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.errors import CheckpointForeign
from penstock.spec.model import Pipeline
from penstock.transform.state_limits import require_same_steps

ONCE = {"view": "once", "deduplicate": {"from": "t", "time": "at", "within": "1m", "key": ["key"]}}
PLAIN = {"view": "once", "sql": "select * from t"}


def pipeline(step: dict[str, Any]) -> Pipeline:
    fields = {"fields": {"key": "string", "at": "timestamp"}}
    return Pipeline.model_validate(
        {
            "name": "p",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"t": {"value": {"format": "json", "schema": fields}}}},
            "transform": [step],
            "sinks": {"lake": {"from": "once", "delta": {"path": "lake"}}},
        }
    )


def left(home: Path, step: dict[str, Any], *files: str) -> Home:
    """What a run of this step has left."""
    remembered.write(Home(home), pipeline(step))
    for name in files:
        (home / "spark" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "spark" / name).touch()
    return Home(home)


def test_first_batch_that_was_cut_off_before_there_was_state_runs_again(tmp_path: Path) -> None:
    require_same_steps(pipeline(ONCE), left(tmp_path, ONCE, "offsets/0"))


@pytest.mark.parametrize("before", [ONCE, PLAIN])
def test_state_that_is_missing_behind_a_committed_batch_is_refused(tmp_path: Path, before: dict[str, Any]) -> None:
    home = left(tmp_path, before, "offsets/0", "commits/0")
    with pytest.raises(CheckpointForeign, match="holds no state"):
        require_same_steps(pipeline(ONCE), home)


def test_first_batch_of_other_steps_is_not_run_again_by_stateful_ones(tmp_path: Path) -> None:
    """Sinks may hold it already."""
    with pytest.raises(CheckpointForeign, match="holds no state"):
        require_same_steps(pipeline(ONCE), left(tmp_path, PLAIN, "offsets/0"))


def test_state_of_other_steps_is_refused(tmp_path: Path) -> None:
    home = left(tmp_path, ONCE, "offsets/0", "state/0/0/1.delta")
    require_same_steps(pipeline(ONCE), home)
    with pytest.raises(CheckpointForeign, match="are gone"):
        require_same_steps(pipeline(PLAIN), home)
