"""What every stage agrees on: the columns of a record on its way, the batch it is in, and how a dead letter speaks."""

from __future__ import annotations

from dataclasses import dataclass

# The column a view has beside its decoded fields: where the record came from.
KAFKA = "_kafka"
KEY = "_key"  # the decoded key, where the spec says how to decode it
DELETED = "_deleted"  # true for a tombstone, where the spec says that it means a delete
# Columns that exist only between decode and the sinks, never in a view.
ERROR = "_error"  # struct<class, reason>, null when the record decoded
RULE = "_rule"  # name of the first contract rule the record broke, null when it kept all

ORIGIN = ("topic", "partition", "offset", "timestamp")  # what `_kafka` always holds
ON_REQUEST = ("key", "value", "headers", "timestamp_type")  # what `_kafka` holds when `kafka_columns` asks for it

# Where a record can die. A dead letter names one of these.
DECODE = "decode"
CONTRACT = "contract"

# Error classes of dead letters. Stable: replay and statistics group by them.
NULL_VALUE = "null-value"
EMPTY_VALUE = "empty-value"
MALFORMED = "malformed"
WRONG_TYPE = "wrong-type"
OUT_OF_RANGE = "out-of-range"
MISSING_FIELD = "missing-field"
BROKEN_RULE = "broken-rule"
UNKNOWN_SCHEMA = "unknown-schema"  # the record names a schema id that the registry does not have
INCOMPATIBLE_SCHEMA = "incompatible-schema"  # its writer schema cannot be read as the reader schema

REASON_LIMIT = 500  # characters; a reason is for reading, and a record of 1 MB must not become a reason of 1 MB


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a stage cannot take a record: a class that statistics group by, and a reason for people."""

    error_class: str
    reason: str


def shortened(text: str, limit: int = REASON_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# Kafka headers of a dead letter. The record's own headers come first and unchanged.
HEADER_PREFIX = "penstock."


@dataclass(frozen=True)
class Known:
    """What checkpoint and ledger know about earlier batches, when a pipeline starts. A sink that knows less has lost
    batches; one that knows more has seen a checkpoint that was replaced since."""

    written: int | None = None  # the newest batch that the ledger says the sink holds
    planned: int | None = None  # the newest batch there can be


@dataclass(frozen=True)
class Batch:
    """A batch as sinks and dead letters see it.

    The query's own id is part of it: a deleted checkpoint starts again at batch 0 under a new id, so old batch ids
    cannot make new batches look done.
    """

    pipeline: str
    query: str
    id: int
