"""Dead letters that are sent along in one pass."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.batch.fused.letters import Origins, Posted
from penstock.record import Batch

ERROR_TYPE = pa.struct([("class", pa.string()), ("reason", pa.string())])


def rows(timestamp_us: int) -> pa.RecordBatch:
    columns = {
        "amount": pa.array([-1], pa.int64()),
        "_error": pa.nulls(1, ERROR_TYPE),
        "_kafka_schema_id": pa.nulls(1, pa.int32()),
        "_kafka_partition": pa.array([0], pa.int32()),
        "_kafka_offset": pa.array([7], pa.int64()),
        "_kafka_timestamp": pa.array([timestamp_us], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "_kafka_key": pa.array([b"k"], pa.binary()),
        "_kafka_value": pa.array([b"v"], pa.binary()),
        "_kafka_headers": pa.array([[]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "_kafka_timestamp_type": pa.array([0], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


POSTED = Posted(Batch("p", "q", 1, ()), "{topic}.DLT", (("positive", "amount > 0", ("amount",)),), Origins("orders"))


@pytest.mark.parametrize("milliseconds", [1_700_000_000_000, 1_700_000_000_000_000, -1, 0])
def test_letter_keeps_the_time_that_kafka_has_even_where_no_calendar_does(milliseconds: int) -> None:
    """A producer that gives microseconds for milliseconds writes records of the year 55,840."""
    batch = rows(milliseconds * 1000)
    [died] = POSTED.died(batch, pa.array(["positive"]))
    assert (died.topic, died.key, died.value, died.timestamp_ms) == ("orders.DLT", b"k", b"v", milliseconds)
    [refused] = POSTED.refused(batch, "out", [{"class": "too-large", "reason": "1 byte"}])
    assert refused.timestamp_ms == milliseconds
