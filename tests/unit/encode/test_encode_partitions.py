"""A row for a topic or a partition that is not there would fail all rows of its transaction: it is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import record
from penstock.encode.stage import EncodeRecords

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch(*partitions: int | None, topics: list[str] | None = None) -> pa.RecordBatch:
    size = len(partitions)
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(topics or ["orders"] * size),
            "partition": pa.array(partitions, pa.int32()),
            "key": pa.nulls(size, pa.binary()),
            "value": pa.array([b"{}"] * size, pa.binary()),
            "headers": pa.nulls(size, _HEADERS),
            "at_topic": pa.array(["raw"] * size),
            "at_partition": pa.array([0] * size, pa.int32()),
            "at_offset": pa.array(range(size), pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("known", "refused"),
    [
        (3, {2: "its partition is -1, the topic has 0 to 2", 3: "its partition is 3, the topic has 0 to 2"}),
        (None, {2: "its partition is -1, which no topic has"}),
    ],
)
def test_partition_that_the_topic_does_not_have_fails_its_row_alone(known: int | None, refused: dict[int, str]) -> None:
    there = None if known is None else {"orders": known}
    done = EncodeRecords(None, None, there=there)(batch(0, None, -1, 3, 2))
    errors = done.column("error").to_pylist()
    assert {i: error["reason"] for i, error in enumerate(errors) if error} == refused
    assert {error["class"] for error in errors if error} == {record.OUT_OF_RANGE}


def test_rows_without_a_partition_or_with_one_that_is_there_pass() -> None:
    done = EncodeRecords(None, None, there={"orders": 1})(batch(None, 0, None))
    assert done.column("error").null_count == 3


def test_each_row_is_held_against_the_topic_that_it_names() -> None:
    rows = batch(0, 1, None, 0, 1, topics=["one", "one", "one", "none", "two"])
    done = EncodeRecords(None, None, there={"one": 1, "two": 2})(rows)
    errors = done.column("error").to_pylist()
    assert {i: error["reason"] for i, error in enumerate(errors) if error} == {
        1: "its partition is 1, the topic has 0 to 0",
        3: "there is no topic 'none'",
    }


def test_where_topics_are_made_by_whoever_writes_to_them_none_is_missing() -> None:
    assert EncodeRecords(None, None)(batch(None, None, topics=["one", "none"])).column("error").null_count == 2
