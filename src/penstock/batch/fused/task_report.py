"""What the tasks of a batch tell the driver in the short way: one row each, with what was counted and what was done.

Where one task must take what all tasks made (a Kafka transaction has one producer), they hand it on in packets: a row
of the engine that holds many records costs it hardly anything, where a row for each costs as much as to send it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from penstock.batch.fused.letters import Origins
from penstock.sinks.files.writer import Judged
from penstock.workers import forget_archives

RESULT = (
    "read bigint, passed bigint, handed bigint, verdicts map<string,bigint>, fingerprint bigint, outcome string, "
    "dead array<struct<topic:string,partition:int,offset:bigint>>, packet binary"
)
_TYPE = pa.schema(
    [
        ("read", pa.int64()),
        ("passed", pa.int64()),
        ("handed", pa.int64()),  # of these, those that the sink's `where` lets through
        ("verdicts", pa.map_(pa.string(), pa.int64())),
        ("fingerprint", pa.int64()),
        ("outcome", pa.string()),  # JSON: what the sink's part of the worker says
        (
            "dead",
            pa.list_(pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])),
        ),
        ("packet", pa.binary()),  # in a row of its own, which never comes to the driver
    ]
)
_NOTHING: dict[str, Any] = {"read": 0, "passed": 0, "handed": 0, "verdicts": {}, "fingerprint": 0, "dead": []}


@runtime_checkable
class Packs(Protocol):
    """A sink's part of the worker that makes packets, and what one task does with those of all. Pickles."""

    def packets(self, parts: Iterator[Judged], origins: Origins, /) -> Iterator[bytes]:
        """Take every batch, to its end."""

    def take(self, packets: Iterator[bytes], /) -> dict[str, Any]:
        """Called once, in one task, with the packets of all; says what became of the records, in JSON's types."""


def row(**told: Any) -> pa.RecordBatch:
    made = {**_NOTHING, **told}
    return pa.RecordBatch.from_pylist([{**made, "verdicts": list(made["verdicts"].items())}], schema=_TYPE)


@dataclass(frozen=True)
class Gathered:
    """Called by Spark, in one task, with the rows of all. Yields those without a packet, and what became of packets."""

    take: Callable[[Iterator[bytes]], dict[str, Any]]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        counted: list[dict[str, Any]] = []

        def packets() -> Iterator[bytes]:
            for batch in batches:
                packet = batch.column("packet")
                counted.extend(batch.filter(packet.is_null()).to_pylist())
                yield from (each.as_buffer() for each in packet.drop_null())

        outcome = self.take(packets())
        yield pa.RecordBatch.from_pylist(counted, schema=_TYPE)
        yield row(outcome=json.dumps(outcome))
