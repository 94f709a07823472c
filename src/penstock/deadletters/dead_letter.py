"""A dead letter: the record as it came, byte for byte, and what went wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock import record
from penstock.record import Batch, Known

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class DeadLetter:
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    stage: str
    error_class: str
    reason: str
    pipeline: str
    query: str
    batch: int
    schema_id: int | None = None
    sinks: str | None = None  # names of those that do not have the record, with commas; None: no sink has it

    @property
    def position(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


# Fields that travel as headers `penstock.<name>`, and how each is read back.
AS_HEADERS = {
    "pipeline": str,
    "query": str,
    "batch": int,
    "topic": str,
    "partition": int,
    "offset": int,
    "timestamp_ms": int,
    "timestamp_type": int,
    "stage": str,
    "error_class": str,
    "reason": str,
    "schema_id": int,
    "sinks": str,
}
_OPTIONAL = {"schema_id", "sinks"}
_FIRST = "pipeline"


class DeadLetters(Protocol):
    """Where dead letters go. Called after the sinks of a batch, only when it has dead letters or may be a replay.

    After a crash the same batch comes again; what was written once is not written again.
    """

    @property
    def guarantee(self) -> str:
        """In the user's words; shown before a run."""

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        """Raise now what would otherwise stop the first batch that has a dead letter."""

    def written(self, batch: Batch) -> int | None:
        """Dead letters already written for this batch, or None when none were."""

    def write(self, batch: Batch, rows: DataFrame) -> int:
        """Write all of them or none; return how many there now are for this batch."""

    def read(self, query: str | None = None) -> Iterator[DeadLetter]:
        """Everything written so far, for `dlq` and `verify`."""


def as_rows(judged: DataFrame, verdict: tuple[Column, Column, Column], sinks: Column | None = None) -> DataFrame:
    """Dead rows in the shape every writer takes. `judged` must carry the raw columns in `_kafka`. `sinks`: those that
    do not get the record; not given: none of them does."""
    from pyspark.sql import functions as F

    at = F.col(record.KAFKA)
    stage, error_class, reason = verdict
    return judged.select(
        at["key"].alias("key"),
        at["value"].alias("value"),
        at["headers"].alias("headers"),
        at["topic"].alias("topic"),
        at["partition"].alias("partition"),
        at["offset"].alias("offset"),
        at["timestamp"].alias("timestamp"),
        at["timestamp_type"].alias("timestamp_type"),
        stage.alias("stage"),
        error_class.alias("error_class"),
        reason.alias("reason"),
        at["schema_id"].alias("schema_id"),
        (F.lit(None).cast("string") if sinks is None else sinks).alias("sinks"),
    )


def from_row(row: Any, batch: Batch) -> DeadLetter:
    """A dead letter from a row of `as_rows`, its timestamp as `timestamp_ms`."""
    return DeadLetter(
        key=_bytes(row["key"]),
        value=_bytes(row["value"]),
        headers=[(h["key"], _bytes(h["value"])) for h in row["headers"] or []],
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=row["timestamp_ms"],
        timestamp_type=row["timestamp_type"],
        stage=row["stage"],
        error_class=row["error_class"],
        reason=row["reason"],
        schema_id=row["schema_id"],
        sinks=row["sinks"],
        pipeline=batch.pipeline,
        query=batch.query,
        batch=batch.id,
    )


def to_headers(letter: DeadLetter) -> Headers:
    """The record's own headers first and unchanged, then ours."""
    ours: Headers = []
    for name in AS_HEADERS:
        value = getattr(letter, name)
        if value is not None:
            ours.append((record.HEADER_PREFIX + name, str(value).encode()))
    return [*letter.headers, *ours]


def from_headers(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> DeadLetter | None:
    """A dead letter read back from Kafka; None for a record that is not one of ours."""
    headers = list(headers)
    # Ours are the last ones, back to the first that `to_headers` writes: a dead letter of a dead letter carries an
    # older set inside its own headers, and a record may have headers that only look like ours.
    first = len(headers)
    fields: dict[str, Any] = {}
    for name, raw in reversed(headers):
        field = name.removeprefix(record.HEADER_PREFIX)
        if field == name or field not in AS_HEADERS or field in fields or raw is None or _FIRST in fields:
            break
        try:
            fields[field] = AS_HEADERS[field](raw.decode("utf-8", "replace"))
        except ValueError:
            return None
        first -= 1
    if not AS_HEADERS.keys() - _OPTIONAL <= fields.keys():
        return None
    return DeadLetter(key=key, value=value, headers=headers[:first], **fields)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
