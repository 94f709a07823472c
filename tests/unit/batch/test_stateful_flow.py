"""What a pipeline with stateful steps says of itself, without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.batch.stateful.flow import Flow, flow
from penstock.checkpoint.log import SparkLog
from penstock.spec.model import Pipeline
from penstock.transform.steps import Transform

FIELDS = {"fields": {"key": "string", "at": "timestamp"}}
PIPELINE = Pipeline.model_validate(
    {
        "name": "stateful",
        "kafka": {"bootstrap": "unused"},
        "source": {"topics": {"events": {"value": {"format": "json", "schema": FIELDS}}}},
        "transform": [
            {"view": "timed", "sql": "select * from events where at is not null"},
            {"view": "Once", "deduplicate": {"from": "timed", "time": "at", "within": "1m", "key": ["key"]}},
            {"view": "some", "sql": "select * from once where key <> 'x'"},
            {"view": "beside", "sql": "select * from timed"},
        ],
        "sinks": {"lake": {"from": "some", "delta": {"path": "lake"}}},
    }
)


@pytest.fixture
def once(tmp_path: Path) -> Flow:
    made = flow(PIPELINE, Transform(tuple(PIPELINE.transform), tmp_path), SparkLog(tmp_path), tmp_path)
    assert made is not None
    return made


@pytest.mark.parametrize("view", ["Once", "once", "some"])
def test_rows_behind_a_stateful_step_are_not_where_their_records_were_read(once: Flow, view: str) -> None:
    """A Kafka sink must not write them by partition: each task would take them for all there is of its partition."""
    assert once.moves(view) == "its rows come out of 'Once', which keeps state by key"


@pytest.mark.parametrize("view", ["events", "timed", "beside", "Once_late"])
def test_rows_that_are_read_again_for_a_batch_stay_where_they_are(once: Flow, view: str) -> None:
    assert once.moves(view) == ""
