"""Encode as a step of the plan: rows of a view in, records for Kafka out, or the reason why one cannot be.

What the engine can do itself is done there: picking columns, JSON, text. Formats with a schema of their own are written
by their encoders, in the same Python worker that sends the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.encode.arrow.encoded import Encoder
from penstock.encode.formats import Prepared, prepare
from penstock.errors import SpecInvalid, counted, first_line
from penstock.record import (
    DELETED,
    KAFKA,
    KEY,
    MISSING_FIELD,
    ORIGIN_HEADER,
    OUT_OF_RANGE,
    OUTGOING,
    OUTGOING_AT,
    OUTGOING_ERROR,
    PLACE,
    TOO_LARGE,
    WRONG_TYPE,
    Failure,
)
from penstock.registry.client.registry import SchemaRegistry
from penstock.spec.sinks import AnyEncode, EncodeString, KafkaTopic
from penstock.spec.types import Scalar, Struct
from penstock.spec.words import TOPIC_NAME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

OWN = (KAFKA, KEY, DELETED)  # Penstock's columns: part of a view, not of a record that is made of it
_ERROR = "struct<class:string,reason:string>"
_ERROR_TYPE = pa.struct([("class", pa.string()), ("reason", pa.string())])
_HEADERS = OUTGOING["headers"]
OVERHEAD, OVERHEAD_OF_HEADER = 100, 10  # bytes that Kafka adds, at most: of a batch with one record, of a header
NO_KEY = "its key is null, and the topic is compacted"
_HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True)
class EncodeRecords:
    """In a Python worker: structs become bytes by their encoders; what the engine made passes through."""

    key: Encoder | None
    value: Encoder | None
    largest: int | None = None  # bytes of a record that the topic takes
    keyed: bool = False  # the topic takes no record without a key
    there: Mapping[str, int] | None = None  # topics, where they are known, and how many partitions each has

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        failures: dict[int, Failure] = {}
        columns = {name: batch.column(name) for name in (*OUTGOING, *OUTGOING_AT)}
        for name, encoder in (("value", self.value), ("key", self.key)):
            if encoder is not None:
                columns[name] = _encoded(encoder, columns[name], failures)
        for i, size in self._too_large(columns):
            why = f"the record has {counted(size, 'byte')}, the topic takes {self.largest:,} (`max.message.bytes`)"
            failures.setdefault(i, Failure(TOO_LARGE, why))
        if self.keyed:
            for i in pc.indices_nonzero(columns["key"].is_null()).to_pylist():
                failures.setdefault(i, Failure(MISSING_FIELD, NO_KEY))
        topics = columns["topic"]
        if not pc.all(_named(pc.unique(topics)), min_count=0).as_py():  # mostly there is one
            for i in pc.indices_nonzero(pc.invert(_named(topics))).to_pylist():
                name = "null" if (found := topics[i].as_py()) is None else repr(found)
                failures.setdefault(i, Failure(WRONG_TYPE, f"{name} is no name of a topic"))
        for i, why in self._nowhere(topics, columns["partition"]):
            failures.setdefault(i, Failure(OUT_OF_RANGE, why))
        errors: list[dict[str, str] | None] = [None] * batch.num_rows
        for i, failure in failures.items():
            errors[i] = {"class": failure.error_class, "reason": failure.reason}
        columns[OUTGOING_ERROR] = pa.array(errors, _ERROR_TYPE) if failures else pa.nulls(batch.num_rows, _ERROR_TYPE)
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _too_large(self, columns: dict[str, pa.Array]) -> Iterator[tuple[int, int]]:
        """Rows that Kafka would refuse, and with them all of their transaction; and how large they are."""
        if self.largest is None:
            return
        sizes = sum(_lengths(columns[name]) for name in ("key", "value")) + _sizes_of(columns["headers"]) + OVERHEAD
        for i in np.flatnonzero(sizes > self.largest):
            yield int(i), int(sizes[i])

    def _nowhere(self, topics: pa.Array, partitions: pa.Array) -> Iterator[tuple[int, str]]:
        """Rows for a topic or a partition that is not there, and why. They would fail with all of their transaction."""
        named = partitions.null_count < len(partitions)
        for topic in pc.unique(topics).to_pylist() if self.there is not None or named else ():
            if topic is None:
                continue
            count = (self.there or {}).get(topic)
            if self.there is not None and count is None:
                rows = pc.indices_nonzero(pc.equal(topics, topic)).to_pylist()
                yield from ((i, f"there is no topic '{topic}'") for i in rows)
            elif named:
                outside = pc.less(partitions, 0)
                if count is not None:
                    outside = pc.or_(outside, pc.greater_equal(partitions, count))
                here = pc.and_(pc.equal(topics, topic), outside)
                for i in pc.indices_nonzero(here.fill_null(False)).to_pylist():
                    yield i, f"its partition is {partitions[i].as_py()}, {numbered(count)}"


def numbered(partitions: int | None) -> str:
    return "which no topic has" if partitions is None else f"the topic has 0 to {partitions - 1}"


def _named(topics: pa.Array) -> pa.Array:
    return pc.fill_null(pc.match_substring_regex(topics, TOPIC_NAME), False)


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    """Bytes of each value, none for null."""
    found: NDArray[np.int64] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _sizes_of(headers: pa.Array) -> NDArray[np.int64]:
    """Bytes of the headers of each record."""
    if headers.null_count == len(headers):
        return np.zeros(len(headers), np.int64)
    flat = headers.flatten()
    sizes = _lengths(flat.field("key")) + _lengths(flat.field("value")) + OVERHEAD_OF_HEADER
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    so_far, ends = np.concatenate([[0], np.cumsum(sizes)]), np.cumsum(counts)
    found: NDArray[np.int64] = so_far[ends] - so_far[ends - counts]
    return found


@dataclass(frozen=True)
class PickRecords:
    """In a Python worker: decoded columns as a batch for EncodeRecords; what `Encoding.rows` does in the engine."""

    topic: str
    key: str | tuple[str, ...] | None  # a column of text, or those of a struct
    value: tuple[str, ...]
    origin: bool

    def __call__(self, batch: pa.RecordBatch, origins: Any) -> pa.RecordBatch:
        size = batch.num_rows
        at = [origins.column(batch, name) for name in PLACE]
        deleted = batch.column(DELETED) if DELETED in batch.schema.names else None
        key = batch.column(self.key).cast(pa.binary()) if isinstance(self.key, str) else pa.nulls(size, pa.binary())
        columns = {
            "topic": pa.repeat(pa.scalar(self.topic), size),
            "partition": pa.nulls(size, pa.int32()),
            "key": _struct(batch, self.key) if isinstance(self.key, tuple) else key,
            "value": _struct(batch, self.value, deleted),
            "headers": self._headers(at, size),
            **dict(zip(OUTGOING_AT, at, strict=True)),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _headers(self, at: list[pa.Array], size: int) -> pa.Array:
        if not self.origin:
            return pa.nulls(size, _HEADERS_TYPE)
        said = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in at), "/").cast(pa.binary())
        names = pa.repeat(pa.scalar(ORIGIN_HEADER), size)
        entries = pa.StructArray.from_arrays([names, said], ["key", "value"])
        return pa.ListArray.from_arrays(pa.array(range(size + 1), pa.int32()), entries)


def _struct(batch: pa.RecordBatch, names: tuple[str, ...], absent: pa.Array | None = None) -> pa.StructArray:
    return pa.StructArray.from_arrays([batch.column(name) for name in names], list(names), mask=absent)


def _encoded(encoder: Encoder, structs: pa.StructArray, failures: dict[int, Failure]) -> pa.Array:
    """The bytes of each struct, null where there is none."""
    if not structs.null_count:
        done = encoder(pa.RecordBatch.from_struct_array(structs))
        failures.update(done.failures)
        return done.values.cast(pa.binary())
    there = structs.is_valid()
    rows = pc.indices_nonzero(there)
    done = encoder(pa.RecordBatch.from_struct_array(structs.filter(there)))
    failures.update({rows[i].as_py(): failure for i, failure in done.failures.items()})
    places = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
    return done.values.cast(pa.binary()).take(places)


def _length(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.octet_length(column), F.lit(0))


def _size(headers: Column) -> Column:
    from pyspark.sql import functions as F

    sizes = F.transform(headers, lambda each: _length(each["key"]) + _length(each["value"]) + OVERHEAD_OF_HEADER)
    return F.coalesce(F.aggregate(sizes, F.lit(0), lambda so_far, size: so_far + size), F.lit(0))


def _failure(error_class: str, reason: Column) -> Column:
    from pyspark.sql import functions as F

    return F.struct(F.lit(error_class).alias("class"), reason.alias("reason")).cast(_ERROR)


class Encoding:
    """How the rows of one view become records: see `sinks.kafka.encoding`."""

    def __init__(self, sink: str, to: KafkaTopic, base: Path, registry: Callable[[], SchemaRegistry]) -> None:
        self._sink, self._to, self._base, self._registry = sink, to, base, registry
        self._parts: dict[str, Prepared] = {}
        self.largest: int | None = None
        self.keyed = False
        self.there: dict[str, int] | None = None

    @property
    def topics(self) -> list[str]:
        return [self._to.topic] if self._to.topic else []

    @property
    def partitions(self) -> int | None:
        """Of the one topic there is, where that is known."""
        return (self.there or {}).get(self._to.topic or "")

    @property
    def has_key(self) -> bool:
        return self._to.key is not None

    @property
    def has_partition(self) -> bool:
        return self._to.partition is not None

    @property
    def encode(self) -> EncodeRecords:
        key = self._parts.get("key")
        encoders = key.encoder if key else None, self._parts["value"].encoder
        return EncodeRecords(*encoders, self.largest, self.keyed, self.there)

    def prepare(self, view: str, columns: StructType) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        if self._to.origin and KAFKA not in columns.names:
            raise SpecInvalid(
                f"sink '{self._sink}' has `origin: true`, and view '{view}' has no column `{KAFKA}`",
                cause=f"which record a row was made of is in `{KAFKA}`",
                next_command=f"add `{KAFKA}` to the select of view '{view}', or leave `origin` out",
                facts={"sink": self._sink},
            )
        for part, how in (("key", self._to.key), ("value", self._to.value)):
            if how is not None:
                self._parts[part] = self._prepared(part, how, columns)
        spark = SparkSession.getActiveSession()
        assert spark is not None
        try:
            self.rows(spark.createDataFrame([], columns))
        except PySparkException as error:
            raise SpecInvalid(
                f"sink '{self._sink}' names a column that view '{view}' does not have, or not with that type",
                cause=first_line(error),
                next_command=f"correct the columns of sink '{self._sink}'",
                facts={"sink": self._sink},
            ) from None

    def rows(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = rows.columns
        topic = F.lit(self._to.topic) if self._to.topic else F.col(str(self._to.topic_column)).cast("string")
        partition = F.lit(None).cast("int")
        if self._to.partition:  # what is no number of 32 bits is no partition, but must not go by the key instead
            found = F.col(self._to.partition)
            partition = F.when(found.isNotNull(), F.coalesce(found.try_cast("int"), F.lit(-1)))
        at = [F.col(f"{KAFKA}.{name}") if KAFKA in names else F.lit(None) for name in PLACE]
        value = self._parts["value"].column(rows)
        if DELETED in names:
            value = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), value)
        return rows.select(
            topic.alias("topic"),
            partition.alias("partition"),
            (self._parts["key"].column(rows) if "key" in self._parts else F.lit(None).cast("binary")).alias("key"),
            value.alias("value"),
            self._headers(rows).alias("headers"),
            at[0].cast("string").alias("at_topic"),
            at[1].cast("int").alias("at_partition"),
            at[2].cast("bigint").alias("at_offset"),
        )

    def whole(self, rows: DataFrame) -> DataFrame | None:
        """What EncodeRecords would make of it, where neither a schema nor the name of a topic must be looked at."""
        from pyspark.sql import functions as F

        if self._to.topic is None or any(part.encoder for part in self._parts.values()):
            return None
        checks: list[tuple[Column, Column]] = []
        if self.largest is not None:
            size = sum((_length(F.col(name)) for name in ("key", "value")), _size(F.col("headers")) + OVERHEAD)
            why = f"%s bytes, the topic takes {self.largest:,} (`max.message.bytes`)"
            said = F.format_string(f"the record has {why}", F.format_number(size, 0))
            checks.append((size > self.largest, _failure(TOO_LARGE, said)))
        if self.keyed:
            checks.append((F.col("key").isNull(), _failure(MISSING_FIELD, F.lit(NO_KEY))))
        if self._to.partition:
            at = F.col("partition")
            count = self.partitions
            outside = at < 0 if count is None else (at < 0) | (at >= count)
            said = F.format_string(f"its partition is %d, {numbered(count)}", at)
            checks.append((outside, _failure(OUT_OF_RANGE, said)))
        error = F.lit(None).cast(_ERROR)
        for found, failure in reversed(checks):
            error = F.when(found, failure).otherwise(error)
        return self.rows(rows).withColumn(OUTGOING_ERROR, error)

    def picked(self, struct: Struct) -> PickRecords | str:
        to, fields = self._to, {member.name: member.type for member in struct.members}
        if to.topic is None or to.partition or to.headers:
            return "topic, partition or headers come from columns"
        value, key = self._parts["value"], self._parts.get("key")
        names = value.columns
        if value.in_worker is None or not set(names) <= fields.keys():
            return "its value is made of other columns than the decoded fields"
        if key is None:
            picked: str | tuple[str, ...] | None = None
        elif isinstance(to.key, EncodeString) and fields.get(to.key.column) == Scalar("string"):
            picked = to.key.column
        elif key.columns and set(key.columns) <= fields.keys():
            picked = tuple(key.columns)
        else:
            return "its key is made of other columns than the decoded fields"
        return PickRecords(to.topic, picked, tuple(names), to.origin)

    @property
    def encode_picked(self) -> EncodeRecords:
        key = self._parts.get("key")
        return EncodeRecords(key.in_worker if key else None, self._parts["value"].in_worker, self.largest, self.keyed)

    def _headers(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.types import MapType

        headers = F.lit(None)
        if self._to.headers:
            column: Any = F.col(self._to.headers)
            if isinstance(rows.select(column).schema[0].dataType, MapType):
                column = F.map_entries(column)
            headers = column
        headers = headers.cast(_HEADERS)
        if not self._to.origin:
            return headers
        at = F.col(KAFKA)
        said = F.concat_ws("/", at["topic"], at["partition"].cast("string"), at["offset"].cast("string"))
        own = F.array(F.struct(F.lit(ORIGIN_HEADER).alias("key"), said.cast("binary").alias("value"))).cast(_HEADERS)
        return F.concat(F.coalesce(headers, F.array().cast(_HEADERS)), own)

    def _prepared(self, part: str, how: AnyEncode, columns: StructType) -> Prepared:
        named = getattr(how, "columns", None)
        own = {*OWN, self._to.topic_column, self._to.headers, self._to.partition}
        fields = named if named is not None else [name for name in columns.names if name not in own]
        absent = [name for name in fields if name not in columns.names]
        if absent:
            raise SpecInvalid(
                f"sink '{self._sink}' writes column '{absent[0]}', which its view does not have",
                cause=f"it has: {', '.join(columns.names)}",
                next_command=f"correct `columns` of sink '{self._sink}'",
                facts={"sink": self._sink},
            )
        subject = getattr(how, "subject", None) or (f"{self._to.topic}-{part}" if self._to.topic else None)
        return prepare(how, self._sink, [columns[name] for name in fields], subject, self._base, self._registry)
