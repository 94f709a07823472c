"""Dead letters read back from a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.deadletters.table import DeadLetterTable
from penstock.sinks.delta.append import DeltaSink


@pytest.mark.parametrize("milliseconds", [1_793_527_200_001, -1, 1_700_000_000_000_000])
def test_any_time_that_a_producer_wrote_is_read(tmp_path: Path, milliseconds: int) -> None:
    time = pa.array([milliseconds * 1000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    text = ("topic", "stage", "error_class", "reason", "pipeline", "query")
    columns = {
        "key": pa.array([b"k"]),
        "value": pa.array([None], pa.binary()),
        "headers": pa.array([None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "timestamp": time,
        **{name: pa.array([name]) for name in text},
        **{name: pa.array([0], pa.int64()) for name in ("partition", "offset", "timestamp_type", "schema_id", "batch")},
    }
    write_deltalake(tmp_path / "dead", pa.table(columns))
    (letter,) = DeadLetterTable(DeltaSink("dead-letters", tmp_path / "dead"), "pipeline").read()
    assert (letter.timestamp_ms, letter.key, letter.reason) == (milliseconds, b"k", "reason")
