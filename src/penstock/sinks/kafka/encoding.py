"""Between a view and Kafka: the columns of a record that is ready to be sent, and who makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.errors import PenstockError, SinkFailed, SpecInvalid
from penstock.kafka import admin
from penstock.record import OUTGOING, Failure
from penstock.sinks.contract import Rejected
from penstock.spec.types import Struct
from penstock.workers import forget_archives

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

SCHEMA = ", ".join(
    [
        *(f"{name} {type_}" for name, type_ in OUTGOING.items()),
        "at_topic string, at_partition int, at_offset bigint, error struct<class:string,reason:string>",
    ]
)


_LARGEST = "max.message.bytes"


class Encoding(Protocol):
    """How rows of a view become records. `runtime` gives one, made of the encode stage."""

    # Set by the sink, which knows the topic:
    largest: int | None  # bytes of a record; a larger one is not encoded
    keyed: bool  # a record without a key is not encoded
    there: dict[str, int] | None  # topics and how many partitions each has; a record for another one is not encoded

    def prepare(self, view: str, columns: StructType) -> None:
        """Called once per start, before anything else. Raises SpecInvalid for columns that cannot be encoded."""

    def rows(self, rows: DataFrame) -> DataFrame:
        """In the engine: what can be done there. The result is for `encode`."""

    def whole(self, rows: DataFrame) -> DataFrame | None:
        """In the engine: all of it, with the columns of `SCHEMA`; None where that takes a Python worker."""

    @property
    def encode(self) -> Encode:
        """In a Python worker: the rest. Pickles."""

    def picked(self, struct: Struct) -> Picked | str:
        """In a Python worker that has decoded these fields: what `rows` does in the engine; or why it cannot."""

    @property
    def encode_picked(self) -> Encode:
        """`encode` for what was picked there."""

    @property
    def has_key(self) -> bool:
        """Whether the records get a key at all."""

    @property
    def has_partition(self) -> bool:
        """Whether rows say which partition they are for."""

    @property
    def topics(self) -> list[str]:
        """Those that can be named beforehand."""

    @property
    def partitions(self) -> int | None:
        """Of the one topic there is, where that is known."""


class Picked(Protocol):
    def __call__(self, batch: pa.RecordBatch, origins: Any) -> pa.RecordBatch:
        """Decoded columns as a batch for `Encode`. `origins` says where records came from."""


class Encode(Protocol):
    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of `Encoding.rows` with the columns of `SCHEMA`. Never raises."""


def look_at_topics(config: dict[str, str], encoding: Encoding) -> None:
    """The topics that are known beforehand must be there; what records they take is told to `encoding`."""
    there = admin.require_topics(config, encoding.topics)
    if not encoding.topics and not admin.creates_topics(config):
        there = admin.topics(config)
    encoding.there = {name: facts.partitions for name, facts in there.items()} or None
    try:
        found = list(admin.topic_configs(config, encoding.topics).values())
    except PenstockError:  # a right of its own, which a producer need not have
        found = []
    encoding.keyed = any("compact" in each.get("cleanup.policy", "") for each in found)
    if encoding.keyed and not encoding.has_key:
        raise SpecInvalid(
            f"topic '{encoding.topics[0]}' is compacted, and the sink gives its records no key",
            cause="Kafka refuses a record without a key there",
            next_command="say which column is the key: `key: {format: string, column: ...}`",
        )
    encoding.largest = min((int(each[_LARGEST]) for each in found if _LARGEST in each), default=None)


def look_where_records_go(config: dict[str, str], encoding: Encoding) -> None:
    """Before each batch, where rows name topics or partitions: there may be others since the last one."""
    if encoding.there is not None and (encoding.has_partition or not encoding.topics):
        there = admin.require_topics(config, encoding.topics) if encoding.topics else admin.topics(config)
        encoding.there = {name: facts.partitions for name, facts in there.items()}


@dataclass(frozen=True)
class EncodeBatches:
    """`mapInArrow` around an Encode, for a sink that sends in the engine."""

    encode: Encode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        for batch in batches:
            yield self.encode(batch)


def rejected(sink: str, rows: Iterable[Sequence[object]]) -> list[Rejected]:
    """Rejections from (topic, partition, offset, class, reason). A row that does not say where it came from cannot
    become a dead letter, so the batch must fail."""
    found = []
    for topic, partition, offset, error_class, reason in rows:
        if topic is None:
            raise SinkFailed(
                f"sink '{sink}' cannot write a row, and it does not say which record it was made of",
                cause=str(reason),
                next_command="keep `_kafka` in the view (select *), so that the record can become a dead letter",
            )
        found.append(
            Rejected(
                str(topic),
                int(str(partition)),
                int(str(offset)),
                Failure(str(error_class), f"sink '{sink}': {reason}"),
            )
        )
    return found
