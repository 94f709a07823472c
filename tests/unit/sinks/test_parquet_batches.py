"""Which batches a directory holds, by its names alone; no engine needed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType
from tests.handed import OTHER_QUERY, PIPELINE, QUERY, batch

from penstock.errors import NotWritable, SpecInvalid, TableDiffers, TableOfAnotherQuery
from penstock.record import Batch, Known
from penstock.sinks.contract import Incoming
from penstock.sinks.parquet.sink import ParquetSink, _name


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink("files", tmp_path / "files")


def put(sink: ParquetSink, of: Batch, rows: int = 3) -> None:
    place = sink.path / _name(of)
    place.mkdir(parents=True)
    pq.write_table(pa.table({"a": list(range(rows))}), place / "part-0.parquet")


def test_directory_is_named_after_its_batch() -> None:
    assert _name(Batch("pay-ments", QUERY, 12)) == "batch=000012-pay-ments-1f2e3d4c5b6a"


def test_start_compares_the_directory_with_what_is_known(sink: ParquetSink) -> None:
    sink.prepare(batch(0), Known(), frozenset())
    for number in range(2):
        put(sink, batch(number))
    put(sink, Batch("other", OTHER_QUERY, 9))  # another pipeline may write here too
    (sink.path / "batch=mine").mkdir()
    sink.prepare(batch(0), Known(1, 2), frozenset())
    assert sink.rows_by_batch(QUERY) == {0: 3, 1: 3}
    for lost_or_ahead in (Known(2, 2), Known(0, 0), Known(None, None)):
        with pytest.raises(TableDiffers):
            sink.prepare(batch(0), lost_or_ahead, frozenset())
        sink.prepare(batch(0), lost_or_ahead, frozenset({TableDiffers.code}))
    for new in (OTHER_QUERY, ""):
        with pytest.raises(TableOfAnotherQuery):
            sink.prepare(batch(0, new), Known(), frozenset())
    sink.prepare(batch(0, OTHER_QUERY), Known(), frozenset({TableOfAnotherQuery.code}))


def test_start_removes_what_its_own_dead_attempts_and_long_dead_ones_left(sink: ParquetSink) -> None:
    staging = sink.path.with_name(".files.penstock")
    own, running, old = (staging / f"{PIPELINE}-{name}" for name in ("1f2e3d4c5b6a", "6a5b4c3d2e1f", "000000000000"))
    for left in (own, running, old):
        (left / "3-dead").mkdir(parents=True)
    os.utime(old, (time.time() - 30 * 86400,) * 2)
    sink.prepare(batch(0), Known(), frozenset())
    assert [path.exists() for path in (own, running, old)] == [False, True, False]


def test_place_that_is_no_directory_is_refused(sink: ParquetSink) -> None:
    sink.path.write_text("a file")
    with pytest.raises(NotWritable):
        sink.prepare(batch(0), Known(), frozenset())


@pytest.mark.parametrize(
    ("columns", "partition_by"),
    [
        ("a int, batch int", ()),
        ("a int, Batch int", ()),
        ("a int", ("b",)),
        ("a int", ("a",)),
        ("a int, _day int", ("_day",)),
    ],
)
def test_columns_that_readers_could_not_tell_apart_are_refused(
    tmp_path: Path, columns: str, partition_by: tuple[str, ...]
) -> None:
    fields = [dict(zip(("name", "type"), c.split(), strict=True)) for c in columns.split(", ")]
    kind = {"nullable": True, "metadata": {}}
    made = StructType.fromJson({"fields": [{**f, "type": "integer", **kind} for f in fields]})
    with pytest.raises(SpecInvalid):
        ParquetSink("files", tmp_path / "files", partition_by).suits(Incoming("v", made))
