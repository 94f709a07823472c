"""What a Delta sink is to be partitioned by, against the table that is there. No engine is asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import SinkFailed
from penstock.sinks.contract import Incoming
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.upsert import DeltaUpsertSink

ROWS = Incoming("v", StructType([StructField("id", StringType()), StructField("day", StringType())]))


def sinks(path: Path, *by: str) -> list[DeltaSink | DeltaUpsertSink]:
    return [DeltaSink("lake", path, partition_by=by), DeltaUpsertSink("lake", path, ("id",), "day", by)]


@pytest.mark.parametrize(("there", "asked"), [([], ("day",)), (["day"], ("id", "day")), (["id", "day"], ("day", "id"))])
def test_other_partitions_than_the_table_has_are_refused(
    there: list[str], asked: tuple[str, ...], tmp_path: Path
) -> None:
    table = pa.table({"id": ["a"], "day": ["1"], "n": [1]})
    write_deltalake(str(tmp_path), table, partition_by=there or None)
    for sink in sinks(tmp_path, *asked):
        with pytest.raises(SinkFailed) as raised:
            sink.suits(ROWS)
        assert f"is partitioned by {', '.join(there) or 'nothing'}," in (raised.value.cause or "")
        assert "correct `partition_by` of sink 'lake'" in (raised.value.next_command or "")


def test_those_of_the_table_none_and_a_table_that_is_not_there_yet_are_fine(tmp_path: Path) -> None:
    for sink in sinks(tmp_path / "new", "day"):
        sink.suits(ROWS)
    write_deltalake(str(tmp_path / "lake"), pa.table({"id": ["a"], "day": ["1"]}), partition_by=["day"])
    for sink in [*sinks(tmp_path / "lake", "day"), *sinks(tmp_path / "lake")]:
        sink.suits(ROWS)
