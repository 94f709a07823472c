"""Rows handed to a sink as a pipeline hands them: counted on their way, and every one accounted for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import SinkBusy
from penstock.record import Batch
from penstock.sinks.contract import Sink, Written

PIPELINE = "payments"
QUERY = "8f14e45f-ceea-467f-a0e6-1f2e3d4c5b6a"
OTHER_QUERY = "8f14e45f-ceea-467f-a0e6-6a5b4c3d2e1f"
_BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
_CHANGES = (
    "id string, v int, o int, _deleted boolean, "
    "_kafka struct<topic:string,partition:int,offset:bigint,timestamp:timestamp>"
)

# id, v, o, deleted, offset, partition, minute: every way in which one row can be newer than another, by key
FIRST = [
    ("kept", 1, 10, False, 0),
    ("changed", 1, 10, False, 1),
    ("changed", 2, 10, False, 2),
    ("deleted", 1, 10, None, 3),
    ("older timestamp", 1, 10, False, 4, 0, 9),
    ("older timestamp", 2, 10, False, 5, 0, 0),
    ("two partitions", 1, 10, False, 6, 0, 9),
    ("two partitions", 2, 10, False, 900, 1, 0),
]
AFTER_FIRST = {"kept": 1, "changed": 2, "deleted": 1, "older timestamp": 2, "two partitions": 1}
SECOND = [
    ("changed", 3, 9, False, 10),
    ("deleted", None, 10, True, 11),
    ("never there", None, 10, True, 12),
    ("back again", None, None, True, 13),
    ("back again", 1, 1, False, 14),
    (None, 9, 1, False, 15),
]
AFTER_SECOND = {"kept": 1, "changed": 3, "older timestamp": 2, "two partitions": 1, "back again": 1}
# Upon FIRST, where `o` is the order.
OLDER = [
    ("kept", 5, 9, False, 20),  # an older row,
    ("changed", None, 9, True, 21),  # an older delete,
    ("deleted", 2, 11, False, 22),  # the newer one of two that stands before the other
    ("deleted", 3, 10, False, 23),
    ("older timestamp", None, 99, False, 24),  # tombstones say nothing of their age: they count by their place
    ("older timestamp", None, None, True, 25),
    ("two partitions", None, None, True, 26),
    ("two partitions", 7, 1, False, 27),  # came after the delete: what was there before does not count
]
AFTER_OLDER = {"kept": 1, "changed": 2, "deleted": 2, "two partitions": 7}


def batch(number: int, query: str = QUERY) -> Batch:
    return Batch(PIPELINE, query, number)


def hand(sink: Sink, number: int, rows: Any, *, replay: bool = False) -> Written:
    """Write a batch; fails when not every row is accounted for."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    done = sink.write(batch(number), rows.observe(seen, F.count(F.lit(1)).alias("rows")), replay=replay)
    assert done.all == seen.get["rows"]
    return done


def hand_counting_reads(sink: Sink, number: int, rows: Any, *, replay: bool = False) -> Written:
    """Write a batch; fails when a row is read more or less than once."""
    read = rows.sparkSession.sparkContext.accumulator(0)

    def counted(parts: Any) -> Any:
        for part in parts:
            read.add(part.num_rows)
            yield part

    done = hand(sink, number, rows.mapInArrow(counted, rows.schema), replay=replay)
    assert read.value == done.all
    return done


def changes(spark: Any, *rows: tuple[Any, ...]) -> Any:
    """Changes of keys: id, v, o, whether it is a delete, offset; and where they differ partition and minute."""
    made = [
        (id_, v, o, deleted, ("t", *([*at, 0][:1]), offset, _BEGIN + timedelta(minutes=([*at, 0, 0][1]))))
        for id_, v, o, deleted, offset, *at in rows
    ]
    return spark.createDataFrame(made, _CHANGES)


def every_type(spark: Any) -> Any:
    """Two rows: a value of each type, and nothing but nulls."""
    return spark.sql(
        """
        select * from values
        ('k1', true, 7Y, 7S, 7, 7L, cast(1.5 as float), 1.5D, cast(12.34 as decimal(38, 10)), 'text ü', X'00FF',
         date'2026-02-28', timestamp'2026-02-28 23:59:59.123456', timestamp_ntz'0001-01-01 00:00:00',
         array(1, null), map('a', array(1)), named_struct('x', 1, 'y', named_struct('z', 'deep')),
         named_struct('topic', 't', 'partition', 0, 'offset', 0L, 'timestamp', timestamp'2026-01-01')),
        ('k2', null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
         named_struct('topic', 't', 'partition', 0, 'offset', 1L, 'timestamp', timestamp'2026-01-01'))
        as t(id, a_bool, a_byte, a_short, an_int, a_long, a_float, a_double, a_decimal, a_string, a_binary, a_date,
             a_timestamp, a_local_time, an_array, a_map, a_struct, _kafka)
        """
    )


def two_at_once(write: Callable[[], Written]) -> list[str]:
    """What came of two attempts that run at the same time: `Written`, or that the sink was busy."""

    def attempt(_: int) -> str:
        try:
            return type(write()).__name__
        except SinkBusy as busy:
            return type(busy).__name__

    with ThreadPoolExecutor(2) as both:
        return sorted(both.map(attempt, range(2)))
