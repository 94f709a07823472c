"""What the short way leaves in a table's directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import DeadLetterBudget
from penstock.record import Batch
from penstock.runtime import build
from penstock.runtime.one_pass import Files, Judge, Shortcut
from penstock.runtime.tally import Counted
from penstock.sink.delta import DeltaSink
from penstock.sink.native import FileWriter
from penstock.spec.model import Pipeline

PIPELINE = Pipeline.model_validate(
    {
        "name": "p",
        "kafka": {"bootstrap": "unused"},
        "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": {"a": "long"}}}}}},
        "sinks": {"lake": {"from": "t", "delta": {"path": "lake"}}},
    }
)
COLUMNS = pa.schema([("a", pa.int64())])


class WrittenHere(Shortcut):
    """Two tasks in this process, instead of two in the engine's workers."""

    def _passed(self, _raw: Any, out: Any, **_: Any) -> list[Any]:
        rows = pa.RecordBatch.from_pydict({"a": [1, 2]}, schema=COLUMNS)
        found = []
        for _task in range(2):
            writer = FileWriter(out.directory, out.columns, out.layout)
            writer.write(rows)
            outcome = json.dumps(vars(writer.close()))
            found.append({"read": 2, "passed": 2, "verdicts": {}, "fingerprint": 0, "outcome": outcome, "dead": []})
        return found


def test_batch_over_the_budget_leaves_no_files_behind(tmp_path: Path) -> None:
    (tmp_path / "of-an-earlier-batch.parquet").touch()
    inlet = build.inlets(PIPELINE)[0]
    way = WrittenHere(inlet, Judge((), False), Files(DeltaSink("lake", tmp_path), COLUMNS, "{}"))
    there: list[int] = []

    def afford(_counted: Counted) -> None:
        there.append(len(list(tmp_path.iterdir())))
        raise DeadLetterBudget("too many")

    with pytest.raises(DeadLetterBudget):
        way.run(None, Batch("p", "q", 0), replay=False, locate=True, afford=afford)
    assert there == [3]
    assert [file.name for file in tmp_path.iterdir()] == ["of-an-earlier-batch.parquet"]
