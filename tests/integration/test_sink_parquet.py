"""K3: whoever lists the directory sees every batch whole and once, or not at all."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.handed import PIPELINE, QUERY, batch, every_type, hand, hand_counting_reads, two_at_once

from penstock.errors import SpecInvalid
from penstock.record import Known
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.parquet.sink import ParquetSink

ROWS = 600


def numbered(spark: Any, number: int, rows: int = ROWS) -> Any:
    """Rows of a batch, in several files and partitions; each says which batch it is of."""
    return spark.range(0, rows, 1, 3).selectExpr(
        "id",
        f"{number} as b",
        "if(id % 7 = 0, null, concat('c', id % 7)) as country",
        f"named_struct('topic', 't', 'partition', 0, 'offset', id + {number * ROWS}) as _kafka",
    )


class Reader(threading.Thread):
    """Lists and reads the directory all the time, with a reader that knows nothing of us."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path, self.wrong, self.looked, self.ended = path, [], 0, threading.Event()

    def look(self) -> None:
        found = ds.dataset(self.path, partitioning="hive").to_table(columns=["b", "id"])
        by_batch = Counter(found["b"].to_pylist())
        distinct = len(set(zip(found["b"].to_pylist(), found["id"].to_pylist(), strict=True)))
        if any(rows != ROWS for rows in by_batch.values()) or distinct != len(found):
            self.wrong.append(dict(by_batch))

    def run(self) -> None:
        while not self.ended.is_set():
            if self.path.exists() and any(self.path.iterdir()):
                try:
                    self.look()
                except Exception as error:  # a file that was listed and is gone
                    self.wrong.append(repr(error))
                self.looked += 1

    def stop(self) -> None:
        self.ended.set()
        self.join()


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink("files", tmp_path / "files", ("country",))


def test_reader_that_lists_all_the_time_sees_whole_batches_once(spark: Any, sink: ParquetSink) -> None:
    left = sink.path.with_name(".files.penstock") / f"{PIPELINE}-1f2e3d4c5b6a" / "0-dead"
    numbered(spark, 0, 50).write.parquet(str(left))  # what a driver left that was killed while it wrote
    sink.prepare(batch(0), Known(), frozenset())
    assert not left.exists()
    reader = Reader(sink.path)
    reader.start()
    for number in range(4):
        assert hand(sink, number, numbered(spark, number)) == Written(ROWS)
        assert hand(sink, number, numbered(spark, number), replay=True) == Written(ROWS)
        assert spark.read.parquet(str(sink.path)).groupBy("b", "batch").count().count() == number + 1
    reader.stop()
    reader.look()
    assert reader.looked > 4
    assert reader.wrong == []
    assert sink.rows_by_batch(QUERY) == dict.fromkeys(range(4), ROWS)
    positions = sink.positions("_kafka")
    assert positions is not None
    assert sorted(positions["t", 0]) == list(range(4 * ROWS))
    # Only data files: any other would be an error for some readers, and a row too many for others.
    assert {file.suffix for file in sink.path.rglob("*") if file.is_file()} == {".parquet"}
    assert not any(sink.path.with_name(".files.penstock").rglob("*.parquet"))


def test_same_reader_catches_a_plain_append(spark: Any, tmp_path: Path) -> None:
    """The negative control: Spark's own append, and the replay of a batch after a crash."""
    path = tmp_path / "files"
    reader = Reader(path)
    for _ in range(2):
        numbered(spark, 0).write.mode("append").partitionBy("country").parquet(str(path))
    reader.look()
    assert reader.wrong == [{0: 2 * ROWS}]


def test_partial_batch_is_caught(spark: Any, tmp_path: Path) -> None:
    """The negative control: files that come one after another."""
    numbered(spark, 0).write.partitionBy("country").parquet(str(tmp_path / "files"))
    next((tmp_path / "files").rglob("*.parquet")).unlink()
    reader = Reader(tmp_path / "files")
    reader.look()
    assert len(reader.wrong) == 1


def test_two_attempts_at_once_appear_once(spark: Any, sink: ParquetSink) -> None:
    outcomes = two_at_once(lambda: sink.write(batch(0), numbered(spark, 0), replay=False))
    assert outcomes == ["SinkBusy", "Written"]
    assert sink.rows_by_batch(QUERY) == {0: ROWS}


def test_every_type_and_batches_without_rows(spark: Any, tmp_path: Path) -> None:
    sink = ParquetSink("files", tmp_path / "files")
    rows = every_type(spark)
    sink.suits(Incoming("v", rows.schema))
    assert hand(sink, 0, rows.limit(0)) == Written(0)
    assert hand(sink, 0, rows.limit(0), replay=True) == Written(0)
    assert hand_counting_reads(sink, 1, rows) == Written(2)
    assert hand_counting_reads(sink, 1, rows, replay=True) == Written(2)
    back = spark.read.parquet(str(sink.path)).select(*rows.columns)
    assert sorted(back.collect(), key=lambda r: r.id) == rows.collect()
    assert sink.rows_by_batch(QUERY) == {0: 0, 1: 2}
    sink.prepare(batch(0), Known(1, 1), frozenset())
    sink.suits(Incoming("v", rows.schema))
    wider, retyped = rows.withColumn("n", rows.an_int), rows.withColumn("an_int", rows.a_string)
    ParquetSink("files", sink.path, evolve=True).suits(Incoming("v", wider.schema))
    for other in (wider, retyped):
        with pytest.raises(SpecInvalid):
            sink.suits(Incoming("v", other.schema))
    with pytest.raises(SpecInvalid):  # readers cannot make one table of two layouts
        ParquetSink("files", sink.path, ("an_int",)).suits(Incoming("v", rows.schema))
