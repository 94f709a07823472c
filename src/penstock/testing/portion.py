"""The rows of one batch: as they are handed to a sink, and as a reader must find them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from penstock.record import KAFKA, OffsetRange
from penstock.testing.subject import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGIN = f"{KAFKA} struct<topic:string,partition:int,offset:bigint,timestamp:timestamp>"
PLAIN = "id bigint, text string, n int"
_THEN = datetime(2026, 1, 1, tzinfo=UTC)
_APART = 10_000_000  # ids of one batch; so that ids of two batches differ


class Portion(Protocol):
    """Pure data: it is also sent to a process that is killed while it writes it."""

    @property
    def number(self) -> int: ...

    @property
    def ranges(self) -> tuple[OffsetRange, ...]: ...

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """As handed, without `_kafka`."""

    def frame(self, spark: SparkSession) -> DataFrame: ...


@dataclass(frozen=True)
class Numbered:
    """Rows that differ in every column, as many in each input partition; the rows of a partition are in one task."""

    number: int
    ranges: tuple[OffsetRange, ...]

    @property
    def each(self) -> int:
        return len(self.ranges[0])

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        first = self.number * _APART
        return [{"id": i, "text": f"row {i}", "n": i % 7} for i in range(first, first + self.each * PARTITIONS)]

    def frame(self, spark: SparkSession) -> DataFrame:
        first, begin = self.number * _APART, [r.start for r in self.ranges]
        starts = f"element_at(array({', '.join(f'{b}L' for b in begin)}), int(id div {self.each}) + 1)"
        return spark.range(0, self.each * PARTITIONS, 1, PARTITIONS).selectExpr(
            f"id + {first} as id",
            f"concat('row ', id + {first}) as text",
            f"int((id + {first}) % 7) as n",
            f"named_struct('topic', '{TOPIC}', 'partition', int(id div {self.each}), "
            f"'offset', {starts} + id % {self.each}, "
            f"'timestamp', timestamp'2026-01-01 00:00:00Z' + make_dt_interval(0, 0, 0, id)) as {KAFKA}",
        )


@dataclass(frozen=True)
class Listed:
    """Rows of our choice, all of them from input partition 0. `columns` are those of `rows`, without `_kafka`."""

    number: int
    ranges: tuple[OffsetRange, ...]
    columns: str
    rows: Sequence[Mapping[str, Any]]

    def offset_of(self, place: int) -> int:
        return self.ranges[0].start + place

    def frame(self, spark: SparkSession) -> DataFrame:
        made = [
            (*row.values(), (TOPIC, 0, self.offset_of(i), _THEN + timedelta(seconds=i)))
            for i, row in enumerate(self.rows)
        ]
        return spark.createDataFrame(made, f"{self.columns}, {ORIGIN}").coalesce(1)


@dataclass(frozen=True)
class Filtered:
    """Offsets of which every record was left out on the way: the sink gets no rows."""

    number: int
    ranges: tuple[OffsetRange, ...]
    rows: Sequence[Mapping[str, Any]] = ()

    def frame(self, spark: SparkSession) -> DataFrame:
        # In a worker: the engine would see through a condition, and plan as if there were no records at all.
        whole = Numbered(self.number, self.ranges).frame(spark)
        return whole.mapInArrow(_none, whole.schema)


def _none(batches: Iterable[Any]) -> Iterable[Any]:
    for batch in batches:
        yield batch.slice(0, 0)


# Every type, nullable: one usual row, one of nothing but nulls, one of what is odd.
TYPES: dict[str, tuple[str, Any, Any]] = {
    "id": ("bigint", 1, 3),
    "a_boolean": ("boolean", True, False),
    "a_tinyint": ("tinyint", 7, -128),
    "a_smallint": ("smallint", 7, -32768),
    "an_int": ("int", 7, -(2**31)),
    "a_bigint": ("bigint", 7, -(2**63)),
    "a_float": ("float", 1.5, -math.inf),
    "a_double": ("double", 1e300, math.nan),
    "a_decimal": (
        "decimal(38,10)",
        Decimal("1234567890123456789012345678.0123456789"),
        Decimal("-0.0000000001"),
    ),
    "a_date": ("date", date(2026, 2, 28), date(1, 1, 1)),
    "a_timestamp": (
        "timestamp",
        datetime(2026, 2, 28, 23, 59, 59, 123456, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    ),
    "a_local_time": ("timestamp_ntz", datetime(2026, 3, 29, 2, 30), datetime(1969, 12, 31, 23, 59, 59, 1)),
    "a_binary": ("binary", b"\x00\xff\\x", b""),
    "a_string": ("string", "grün", "q'\"uo,te`\\.\n\r\n\t;{}$%\u2028🚰"),
    "an_array": ("array<int>", [1, None, 3], []),
    "words": ("array<string>", ['a"b', "c\\d", "{x,y}", "NULL", "", None], [None]),
    "a_map": ("map<string,array<int>>", {"a": [1, None], "b c": None}, {}),
    "a_struct": ("struct<x:int,y:struct<z:string>>", {"x": 1, "y": {"z": "deep"}}, {"x": None, "y": None}),
    "structs": ("array<struct<x:int,z:string>>", [{"x": 1, "z": "a"}, None], [{"x": None, "z": None}]),
}


def rows_of_every_type() -> tuple[str, list[dict[str, Any]]]:
    """Columns and rows."""
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in TYPES.items())
    nothing: dict[str, Any] = {**dict.fromkeys(TYPES), "id": 2}
    usual, odd = ({name: both[i] for name, (_, *both) in TYPES.items()} for i in (0, 1))
    return columns, [usual, nothing, odd]


def same(found: Any, expected: Any) -> bool:
    """Whether a reader found the value: whichever way it says map, struct, moment or not-a-number."""
    if isinstance(expected, dict):
        pairs = isinstance(found, list) and all(isinstance(item, tuple) for item in found)
        got = dict(found) if pairs else found
        if not isinstance(got, Mapping) or not got.keys() <= expected.keys():
            return False
        return all(same(got.get(name), value) for name, value in expected.items())
    if isinstance(expected, list):
        return (
            isinstance(found, Sequence)
            and len(found) == len(expected)
            and all(same(f, e) for f, e in zip(found, expected, strict=True))
        )
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    if isinstance(expected, datetime) and isinstance(found, datetime):
        return (expected.tzinfo is None) == (found.tzinfo is None) and found == expected
    return isinstance(found, bool) == isinstance(expected, bool) and bool(found == expected)
