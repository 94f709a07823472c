"""Tables to which files are not just added: the engine's writer looks at the rows, or puts them elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from deltalake.table import TableFeatures
from pyspark.sql.types import IntegerType, StringType, StructType
from tests.handed import batch

from penstock.errors import SinkFailed
from penstock.sinks.contract import Incoming
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.files.writer import FileWriter

COLUMNS = pa.schema([("id", pa.int32()), ("day", pa.string())])
INCOMING = Incoming("v", StructType().add("id", IntegerType()).add("day", StringType()))
Change = Callable[[str], object]


def plain(path: str) -> DeltaTable:
    return DeltaTable.create(path, Schema.from_arrow(COLUMNS))


def not_null(path: str) -> DeltaTable:
    fields = [Field("id", PrimitiveType("integer"), nullable=False), Field("day", PrimitiveType("string"))]
    return DeltaTable.create(path, Schema(fields))


def invariant(path: str) -> DeltaTable:
    checked = {"delta.invariants": '{"expression": {"expression": "id > 1"}}'}
    fields = [Field("id", PrimitiveType("integer"), metadata=checked), Field("day", PrimitiveType("string"))]
    return DeltaTable.create(path, Schema(fields))


def length(path: str) -> DeltaTable:
    short = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    fields = [Field("id", PrimitiveType("integer")), Field("day", PrimitiveType("string"), metadata=short)]
    return DeltaTable.create(path, Schema(fields))


DEMANDING: dict[str, Change] = {
    "is partitioned by day": lambda path: DeltaTable.create(path, Schema.from_arrow(COLUMNS), partition_by=["day"]),
    "a condition on column id": not_null,
    " condition on column id": invariant,
    "a condition on column day": length,
    "the constraint large": lambda path: plain(path).alter.add_constraint({"large": "id > 100"}),
    "a writer that knows changeDataFeed": lambda path: plain(path).alter.add_feature(
        TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True
    ),
}


@pytest.mark.parametrize("why", DEMANDING)
def test_table_that_asks_more_of_a_writer_takes_no_files(tmp_path: Path, why: str) -> None:
    sink = DeltaSink("lake", tmp_path)
    assert sink.takes_files(INCOMING) == ""
    DEMANDING[why](str(tmp_path))
    assert why in sink.takes_files(INCOMING)


def test_table_that_takes_files_goes_on_taking_them(tmp_path: Path) -> None:
    sink = DeltaSink("lake", tmp_path)
    for number in range(2):
        assert sink.takes_files(INCOMING) == ""
        add(sink, number)
    assert sink.rows_by_batch(batch(0).query) == {0: 1, 1: 1}


def test_table_that_was_changed_while_the_pipeline_ran_is_not_added_to(tmp_path: Path) -> None:
    sink = DeltaSink("lake", tmp_path)
    add(sink, 0)
    DeltaTable(str(tmp_path)).alter.add_constraint({"small": "id < 10"})
    with pytest.raises(SinkFailed, match="does not add batch 1"):
        add(sink, 1)
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 1


def add(sink: DeltaSink, number: int) -> None:
    writer = FileWriter(sink.path, COLUMNS, "{}")
    writer.write(pa.RecordBatch.from_pylist([{"id": number, "day": "a"}], schema=COLUMNS))
    file = writer.close()
    assert file is not None
    sink.publish(batch(number), sink.path, [file], COLUMNS)
