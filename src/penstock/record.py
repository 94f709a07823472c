"""What every stage agrees on: the columns of a record on its way, the batch it is in, and how a dead letter speaks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# The column a view has beside its decoded fields: where the record came from.
KAFKA = "_kafka"
KEY = "_key"  # the decoded key, where the spec says how to decode it
DELETED = "_deleted"  # true for a tombstone, where the spec says that it means a delete
# Columns that exist only between decode and the sinks, never in a view.
ERROR = "_error"  # struct<class, reason>, null when the record decoded
RULE = "_rule"  # name of the first contract rule the record broke, null when it kept all

RESERVED = (KAFKA, KEY, DELETED, ERROR, RULE)  # no field of a record may be called so
_ON_THE_WAY = f"{KAFKA}_"  # what becomes `_kafka` travels in columns that begin so

PLACE = ("topic", "partition", "offset")  # which record it was
ORIGIN = (*PLACE, "timestamp")  # what `_kafka` always holds
ON_REQUEST = ("key", "value", "headers", "timestamp_type")  # what `_kafka` holds when `kafka_columns` asks for it

# The years 1 to 9999, counted from 1970. Arrow and Spark could hold more, Python and most databases could not read it.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_SECOND, LAST_SECOND = FIRST_DAY * 86_400, (LAST_DAY + 1) * 86_400 - 1
FIRST_MICROSECOND, LAST_MICROSECOND = FIRST_SECOND * 1_000_000, (LAST_SECOND + 1) * 1_000_000 - 1

# Where a record can die. A dead letter names one of these.
DECODE = "decode"
CONTRACT = "contract"
TRANSFORM = "transform"
SINK = "sink"
STAGES = (DECODE, CONTRACT, TRANSFORM, SINK)

# Error classes of dead letters. Stable: replay and statistics group by them.
NULL_VALUE = "null-value"
EMPTY_VALUE = "empty-value"
MALFORMED = "malformed"
WRONG_TYPE = "wrong-type"
OUT_OF_RANGE = "out-of-range"
MISSING_FIELD = "missing-field"
TOO_LARGE = "too-large"  # the sink takes no record of this size
BROKEN_RULE = "broken-rule"
MISSING_KEY = "missing-key"  # a reference table has no row for the record
FAILED_STEP = "failed-step"  # a step, or the condition of a sink, cannot be computed for the record
UNKNOWN_SCHEMA = "unknown-schema"  # the record names a schema id that the registry does not have
INCOMPATIBLE_SCHEMA = "incompatible-schema"  # its writer schema cannot be read as the reader schema

CLASSES = (
    *(NULL_VALUE, EMPTY_VALUE, MALFORMED, WRONG_TYPE, OUT_OF_RANGE, MISSING_FIELD, TOO_LARGE, BROKEN_RULE),
    *(MISSING_KEY, FAILED_STEP, UNKNOWN_SCHEMA, INCOMPATIBLE_SCHEMA),
)

# A byte that is no text as `repr` shows it, behind an even number of backslashes: those stand for themselves.
_NO_TEXT = re.compile(r"(?<!\\)((?:\\\\)*)\\udc([89a-f][0-9a-f])")
OF_KEY = "key: "  # begins the reason of a record whose key cannot be decoded
REASON_LIMIT = 500  # characters; a reason is for reading, and a record of 1 MB must not become a reason of 1 MB


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a stage cannot take a record: a class that statistics group by, and a reason for people."""

    error_class: str
    reason: str


def reserved(name: str) -> str:
    """Why no field of a record may have this name, and what to do about it; empty when one may."""
    lowered = name.lower()  # SQL does not tell upper from lower case
    if lowered not in RESERVED and not lowered.startswith(_ON_THE_WAY):
        return ""
    kind = f"'{name}' is Penstock's own column"
    if lowered not in RESERVED:
        kind = f"'{name}' begins with '{_ON_THE_WAY}', as only Penstock's own columns do"
    return f"{kind}: rename the field, or read with a schema that does not have it"


def no_column(name: str) -> str:
    """Why no field of this name can be a column of a view, and what to do about it; empty when one can."""
    if not name or any(c < " " or c in '"\\' for c in name):  # what JSON would have to escape
        return f"{name!r} cannot be the name of a column: all but control characters, '\"' and '\\' is allowed in one"
    return reserved(name)


def quoted(text: str) -> str:
    """For a reason. Bytes of it that are no text (as `surrogateescape` has them) are escaped as characters are that
    cannot be printed, and once: `'\\xff\\x00'`."""
    return _NO_TEXT.sub(r"\1\\x\2", repr(text))


def shortened(text: str, limit: int = REASON_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# Kafka headers of a dead letter. The record's own headers come first and unchanged.
HEADER_PREFIX = "penstock."
# Header of a record in a Kafka sink: topic/partition/offset of the one it was made of.
ORIGIN_HEADER = "penstock.origin"

# A record that is ready to be sent to Kafka, with its types in Spark: what it is,
OUTGOING = {
    "topic": "string",
    "partition": "int",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
}
# the record it was made of (null where the view does not say), and why it cannot be sent, or null.
OUTGOING_AT = ("at_topic", "at_partition", "at_offset")
OUTGOING_ERROR = "error"


Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets `start` up to, not including, `end` of one partition; none where the end lies before the start."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ends_of(ranges: Iterable[OffsetRange]) -> dict[tuple[str, int], int]:
    """Where reading goes on after these, by topic and partition."""
    return {(r.topic, r.partition): r.end for r in ranges}


@dataclass(frozen=True)
class Known:
    """What checkpoint and ledger know about earlier batches, when a pipeline starts. A sink that knows less has lost
    batches; one that knows more has seen a checkpoint that was replaced since."""

    written: int | None = None  # the newest batch that the ledger says the sink holds
    planned: int | None = None  # the newest batch there can be
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)  # where batch `written` ended, per partition


BACKFILL, REPLAY = "backfill-", "replay-"  # begin the id of one, where a stream has that of its query


@dataclass(frozen=True)
class Batch:
    """A batch as sinks and dead letters see it.

    The query's own id is part of it: a deleted checkpoint starts again at batch 0 under a new id, so old batch ids
    cannot make new batches look done.
    """

    pipeline: str
    query: str
    id: int
    ranges: tuple[OffsetRange, ...] = ()  # what it covers; none where it is not known yet
