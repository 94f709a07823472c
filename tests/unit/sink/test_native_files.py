"""Files that workers write: what their statistics say."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from penstock.sink.native import FileWriter


def test_time_that_is_no_date_in_python_leaves_a_file_without_bounds_of_it(tmp_path: Path) -> None:
    time = pa.timestamp("us", tz="UTC")
    columns = pa.schema([("a", pa.int64()), ("at", time)])
    writer = FileWriter(tmp_path, columns, "{}")
    microseconds = pa.array([0, 1_700_000_000_000_000_000], pa.int64())  # of a producer that took them for milliseconds
    writer.write(pa.RecordBatch.from_arrays([pa.array([1, 2]), microseconds.cast(time)], schema=columns))
    file = writer.close()
    assert file is not None
    stats = json.loads(file.stats)
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"a": 1}, {"a": 2}, {"a": 0, "at": 0})
