"""K2, upkeep beside a pipeline's own writes: batches go on, and none is lost, repeated or held up."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.handed import QUERY, batch, changes, hand

from penstock.record import Known
from penstock.sinks.contract import Written
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.maintenance import Maintenance, Schedule
from penstock.sinks.delta.upsert import DeltaUpsertSink

ALWAYS, AT_MOST = timedelta(milliseconds=1), timedelta(seconds=5)


@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_batches_go_on_while_the_table_is_kept_in_order(spark: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "lake"
    upkeep = Maintenance(path, Schedule(ALWAYS, ALWAYS, at_most=AT_MOST))
    sink: Any = (
        DeltaSink("lake", path, maintenance=upkeep)
        if kind == "append"
        else DeltaUpsertSink("lake", path, ("id",), maintenance=upkeep)
    )
    waited = []
    give_way = upkeep.give_way

    def timed() -> None:
        began = time.monotonic()
        give_way()
        waited.append(time.monotonic() - began)

    upkeep.give_way = timed  # type: ignore[method-assign]
    for number in range(3):
        hand(sink, number, changes(spark, (f"key {number}", number, None, False, number)))  # a file of its own
    upkeep.give_way = give_way  # type: ignore[method-assign]
    upkeep.give_way()
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["v"]) for row in rows) == [(f"key {number}", number) for number in range(3)]
    assert sink.rows_by_batch(QUERY) == dict.fromkeys(range(3), 1)
    assert "OPTIMIZE" in {commit["operation"] for commit in DeltaTable(str(path)).history()}
    assert len(waited) == (0 if kind == "append" else 3)
    assert all(seconds < AT_MOST.total_seconds() + 1 for seconds in waited)
    sink.prepare(batch(0), Known(2, 2), frozenset())
    assert hand(sink, 2, changes(spark, ("key 2", 2, None, False, 2)), replay=True) == Written(1)
