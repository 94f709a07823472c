"""What the short way leaves in a table's directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from penstock.batch.counts import Counted
from penstock.batch.fused.files import Files
from penstock.batch.fused.way import Shortcut
from penstock.batch.fused.worker import Judge
from penstock.errors import DeadLetterBudget, SinkBusy
from penstock.plan import build
from penstock.record import Batch
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.files.writer import FileWriter
from penstock.sinks.parquet.sink import ParquetSink
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


@pytest.mark.parametrize("died", ["before it had closed its file", "before it could report its file"])
@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_file_of_a_task_that_died_is_not_published(
    tmp_path: Path, kind: type[DeltaSink] | type[ParquetSink], died: str
) -> None:
    sink = kind("lake", tmp_path / "lake")
    files, batch = Files(sink, COLUMNS, "{}"), Batch("p", "q-1", 0)
    out = files.begin(batch, None, replay=False)
    attempts = [FileWriter(out.directory, out.columns, out.layout) for _ in range(2)]
    for attempt in attempts:
        attempt.write(pa.RecordBatch.from_pydict({"a": [1, 2]}, schema=COLUMNS))
    attempts[0]._flush() if "closed" in died else attempts[0].close()
    assert files.end(batch, [vars(attempts[1].close())], 2).rows == 2
    assert sink.held(batch) == 2
    rows = DeltaTable(str(sink.path)).to_pyarrow_table() if kind is DeltaSink else ds.dataset(sink.path).to_table()
    assert rows["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", [DeltaSink, ParquetSink])
def test_second_attempt_at_a_batch_that_was_published_meanwhile_is_refused(
    tmp_path: Path, kind: type[DeltaSink] | type[ParquetSink]
) -> None:
    sink, batch = kind("lake", tmp_path / "lake"), Batch("p", "q-1", 0)
    attempts = []
    for _ in range(2):
        files = Files(sink, COLUMNS, "{}")
        out = files.begin(batch, None, replay=True)  # neither finds the other's
        writer = FileWriter(out.directory, out.columns, out.layout)
        writer.write(pa.RecordBatch.from_pydict({"a": [1]}, schema=COLUMNS))
        attempts.append((files, vars(writer.close())))
    (first, file), (second, other) = attempts
    assert first.end(batch, [file], 1).rows == 1
    with pytest.raises(SinkBusy):
        second.end(batch, [other], 1)
    assert sum(sink.rows_by_batch("q-1").values()) == 1
