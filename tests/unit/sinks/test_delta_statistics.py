"""What files that workers write say of themselves, as delta-rs takes it: by no condition is a row missed."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from tests.samples import bounds

from penstock.sinks.files.writer import FileWriter


def test_readers_find_by_every_condition_what_they_find_without_statistics(tmp_path: Path) -> None:
    rows = bounds.made(tmp_path)
    table = DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    every = table.to_table()
    assert len(every) == len(rows)
    for name, value, expected in bounds.conditions(rows):
        if isinstance(value, float) and math.isnan(value):
            continue  # to Arrow NaN is equal to nothing
        wanted = pa.scalar(value, bounds.COLUMNS.field(name).type)
        for condition in (ds.field(name) >= wanted, ds.field(name) == wanted, ds.field(name) <= wanted):
            filtered = table.to_table(filter=condition)["row"].to_pylist()
            assert sorted(filtered) == sorted(every.filter(condition)["row"].to_pylist()), (name, value)
        found = table.to_table(filter=ds.field(name) >= wanted)["row"].to_pylist()
        not_a_number = {row["row"] for row in rows if isinstance(row[name], float) and math.isnan(row[name])}
        assert sorted(found) == [row for row in expected if row not in not_a_number], (name, value)
        assert table.to_table(filter=ds.field(name).is_null()).num_rows == sum(row[name] is None for row in rows)


def test_files_are_left_out_by_their_bounds(tmp_path: Path) -> None:
    bounds.made(tmp_path)
    said = [json.loads(line)["add"]["stats"] for line in _log(tmp_path)]
    nan, long_text, edges, plain, _, nulls = (json.loads(stats) for stats in said)
    assert "minValues" not in nan and nan["nullCount"]["a_struct"] == {"x.y": 2, "f": 2}
    assert (long_text["minValues"]["with.dot"], long_text["maxValues"]["with.dot"]) == (3, 7)
    assert (plain["minValues"]["a_text"], plain["maxValues"]["a_text"]) == ("", "a" * 32 + "\U0010ffff")
    assert edges["minValues"]["a_local_time"] == "1969-12-31T23:59:59.999"
    assert edges["minValues"]["a_date"] == "1970-01-01"
    assert nulls["minValues"] == {"row": 16} and nulls["nullCount"]["after"] == 1
    assert '"a_decimal":-12345678901234567890.1234567890123456' in said[2]


def test_time_without_a_zone_does_not_follow_the_zone_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        bounds.made(tmp_path)
    time.tzset()
    *_, plain, _, _ = (json.loads(json.loads(line)["add"]["stats"]) for line in _log(tmp_path))
    assert plain["maxValues"]["a_local_time"] == "2024-06-01T00:00:00.000"
    assert plain["maxValues"]["a_time"] == "2024-06-01T00:00:00.000Z"


def test_time_that_is_no_date_in_python_leaves_a_file_without_bounds(tmp_path: Path) -> None:
    kind = pa.timestamp("us", tz="UTC")
    columns = pa.schema([("a", pa.int64()), ("at", kind)])
    writer = FileWriter(tmp_path, columns, "{}")
    microseconds = pa.array([0, 1_700_000_000_000_000_000], pa.int64())  # of a producer that took them for milliseconds
    writer.write(pa.RecordBatch.from_arrays([pa.array([1, 2]), microseconds.cast(kind)], schema=columns))
    file = writer.close()
    assert file is not None
    assert json.loads(file.stats) == {"numRecords": 2, "nullCount": {"a": 0, "at": 0}}


def _log(path: Path) -> list[str]:
    """What the table's log says of its files."""
    lines = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return [line for line in lines if "add" in json.loads(line)]
