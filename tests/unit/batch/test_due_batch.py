"""Which batch without records a start plans, told by files alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints import checkpoint, contents, plan_batch, spark_file

from penstock.batch.stateful import due
from penstock.checkpoint import damage
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog
from penstock.spec.steps import Step

WINDOW = {"from": "events", "time": "at", "late_after": "1m", "size": "1m", "columns": {"n": "count(*)"}}
STATE = {"from": "events", "key": ["key"], "processor": "quiet:Quiet", "fields": {"key": "string"}}


def step(**kind: Any) -> list[Step]:
    return [Step.model_validate({"view": "made", **kind})]


def committed(path: Path, watermark: int) -> Home:
    """Two batches, the last of which has moved the watermark from 0 to this."""
    home = checkpoint(path, 2)
    spark_file(home.spark / "commits" / "1", f'v1\n{{"nextBatchWatermarkMs":{watermark}}}')
    return home


@pytest.mark.parametrize(
    "made", [step(window=WINDOW), step(state={**STATE, "timers": "event", "time": "at"})], ids=["window", "timers"]
)
def test_batch_is_planned_that_closes_what_the_watermark_has_passed(tmp_path: Path, made: list[Step]) -> None:
    home = committed(tmp_path, 5000)
    log, before = SparkLog(home.spark), (home.spark / "offsets" / "1").read_text().splitlines()
    due.plan(log, made)
    assert log.pending() == 2
    assert [len(r) for r in log.ranges(2)] == [0, 0]
    version, metadata, offsets = (home.spark / "offsets" / "2").read_text().splitlines()
    assert (version, offsets) == (before[0], before[2])
    said = json.loads(metadata)
    assert abs(said["batchTimestampMs"] - time.time() * 1000) < 60_000
    times = {"batchWatermarkMs": 5000, "batchTimestampMs": said["batchTimestampMs"]}
    assert said == {**json.loads(before[1]), **times}
    assert damage.find(home) == []
    once = contents(home)
    due.plan(log, made)
    assert contents(home) == once


@pytest.mark.parametrize(
    ("watermark", "made"),
    [
        (0, step(window=WINDOW)),
        (5000, step(window={**WINDOW, "emit": "complete"})),
        (5000, step(state=STATE)),
    ],
    ids=["watermark stands still", "nothing is ever closed", "no timers"],
)
def test_nothing_is_planned_where_nothing_is_due(tmp_path: Path, watermark: int, made: list[Step]) -> None:
    home = committed(tmp_path, watermark)
    before = contents(home)
    due.plan(SparkLog(home.spark), made)
    assert contents(home) == before


def test_timers_of_the_clock_may_be_due_with_every_start(tmp_path: Path) -> None:
    home = committed(tmp_path, 0)
    due.plan(SparkLog(home.spark), step(state={**STATE, "timers": "processing"}))
    assert SparkLog(home.spark).pending() == 2


@pytest.mark.parametrize("batches", [0, 2])
def test_batch_that_is_planned_already_is_left_as_it_is(tmp_path: Path, batches: int) -> None:
    home = committed(tmp_path, 5000) if batches else checkpoint(tmp_path, 0)
    plan_batch(home, batches)
    before = contents(home)
    due.plan(SparkLog(home.spark), step(state={**STATE, "timers": "processing"}))
    assert contents(home) == before
