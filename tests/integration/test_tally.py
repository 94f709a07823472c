"""Counting rows on their way, where the engine computes some of them twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.batch.counts import Handed
from penstock.errors import ExecutorLost
from penstock.transform.sql import moved, read_once, row_for_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, TASKS = 100, 4


def test_tasks_that_run_again_because_what_they_had_made_is_lost_are_noticed(
    spark: SparkSession, tmp_path: Path
) -> None:
    handed = Handed(spark.range(0, ROWS, 1, TASKS))
    written(handed, fails_once(tmp_path / "failed", shuffled(spark)))
    with pytest.raises(ExecutorLost):
        handed.result()


def test_task_that_only_fails_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    handed = Handed(spark.range(0, ROWS, 1, TASKS))
    written(handed, fails_once(tmp_path / "failed", []))
    assert handed.result() == (ROWS, None)


@pytest.mark.parametrize(
    ("query", "once", "stays"),
    [
        ("select *, id * 2 as twice from rows where id > 1", True, True),
        ("select * from rows sort by id", True, False),
        ("select * from rows order by id", False, False),
        ("select * from (select * from rows order by id) where id > 1", False, False),
        ("select * from rows where id > (select avg(id) from rows)", False, True),
        ("select *, (select id from rows limit 1) as one from rows", False, True),
        ("select * from rows where exists (select 1 from rows where id > 5)", False, False),
        ("select * from rows where id in (select id from rows where id > 5)", False, False),
        ("select * from rows a where id >= (select max(id) from rows b where b.id = a.id)", False, False),
    ],
)
def test_plan_says_which_rows_the_engine_computes_once_and_which_stay_in_their_task(
    spark: SparkSession, query: str, *, once: bool, stays: bool
) -> None:
    source = spark.range(0, ROWS, 1, TASKS)
    source.createOrReplaceTempView("rows")
    made = spark.sql(query)
    assert row_for_row(made, source)
    assert (read_once(made, source), not moved(made, source)) == (once, stays)


def shuffled(spark: SparkSession) -> list[Path]:
    """Where the engine keeps what tasks have made for others."""
    environment = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    return [Path(str(each)) for each in environment.blockManager().diskBlockManager().localDirs()]


def fails_once(once: Path, loses: list[Path]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """One task that takes the rows of all, and fails the first time; with what the others had made."""
    before = {file for place in loses for file in place.rglob("shuffle_*")}

    def take(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not once.exists():
            once.touch()
            for file in {file for place in loses for file in place.rglob("shuffle_*")} - before:
                file.unlink()
            raise RuntimeError("as if its executor had died")
        yield from batches

    return take


def written(handed: Handed, take: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
    made = handed.rows.repartition(1).mapInArrow(take, "id bigint")
    made.write.format("noop").mode("overwrite").save()
