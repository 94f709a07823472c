"""Sending in a Python worker: the rows of one task, in one transaction.

A worker keeps its owners from one batch to the next: to take a transactional id again costs up to half a second, and a
kept one that was fenced in the meantime is told so before it has sent anything (see `kafka.transaction`).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import failpoint
from penstock.errors import Fenced, KafkaUnreachable, SinkFailed, TableDiffers
from penstock.kafka.transaction import Mark, Owner, Place, said_by_kafka
from penstock.record import OUTGOING, OUTGOING_AT, OUTGOING_ERROR
from penstock.sink.kafka.encoding import Encode, Picked

RESULT = (
    "topic string, partition int, rows bigint, "
    "rejected array<struct<topic:string,partition:int,offset:bigint,class:string,reason:string>>"
)
_RESULT_TYPE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        (
            "rejected",
            pa.list_(
                pa.struct(
                    [
                        ("topic", pa.string()),
                        ("partition", pa.int32()),
                        ("offset", pa.int64()),
                        ("class", pa.string()),
                        ("reason", pa.string()),
                    ]
                )
            ),
        ),
    ]
)
_MOST_KEPT = 16  # owners per worker; each has threads and buffers of its own
_KEPT: OrderedDict[str, tuple[Owner, int]] = OrderedDict()  # by transactional id: the owner, and where it stands


@dataclass(frozen=True)
class Work:
    """What one transaction is for: the mark that ends it, and the records below it."""

    config: dict[str, str]
    name: str  # transactional id
    group: str
    places: tuple[Place, ...]  # where the mark stands
    start: int  # the mark that the batch before left
    end: int  # the mark that this batch leaves
    batch: int
    floor: int | None  # a mark below it cannot be; None: nothing is known
    crash: failpoint.Crash | None = None

    def reach(self, place: str) -> None:
        if self.crash is not None:
            self.crash.reach(place)


@dataclass
class Sending:
    """One attempt at a Work. `done` is the mark found: what lies below it is in Kafka already."""

    work: Work
    owner: Owner
    done: int
    said: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, work: Work) -> Sending:
        owner, at = _KEPT.pop(work.name, (None, None))
        if owner is not None and at == work.start:
            try:
                owner.begin()
                owner.mark({place: Mark(work.end) for place in work.places})
            except (Fenced, KafkaUnreachable):
                pass  # somebody else had the name since: start over
            else:
                return cls(work, owner, work.start)
        work.reach("before-init")
        owner = Owner.take(work.config, work.name, work.group)
        work.reach("after-init")
        found = max(owner.marks(work.places).values(), key=lambda mark: mark.offset, default=None)
        if found is not None and work.floor is not None and found.offset < work.floor:
            raise TableDiffers(f"group '{work.group}' was set back to {found.offset}, and {work.floor} is written")
        done = found.offset if found else work.start
        if done < work.end:
            owner.begin()
        return cls(work, owner, done, json.loads(found.said) if found and found.said else {})

    @property
    def complete(self) -> bool:
        return self.done >= self.work.end

    def send(self, records: pa.RecordBatch) -> None:
        self.work.reach("mid-produce")
        columns = (records.column(name).to_pylist() for name in OUTGOING)
        produce, poll = self.owner.producer.produce, self.owner.producer.poll
        with said_by_kafka(f"records for '{self.work.group}' could not be sent"):
            for topic, partition, key, value, headers in zip(*columns, strict=True):
                more: dict[str, Any] = {"headers": [(h["key"], h["value"]) for h in headers]} if headers else {}
                if partition is not None:
                    more["partition"] = partition
                while True:
                    try:
                        produce(topic, value, key, **more)
                        break
                    except BufferError:
                        poll(0.1)
            poll(0)

    def end(self, rows: int) -> int:
        """Commit, unless all of it was there already. Returns how many rows Kafka holds of this batch."""
        work = self.work
        if self.complete:
            return int(self.said["rows"]) if self.said.get("batch") == work.batch else rows
        said = json.dumps({"batch": work.batch, "rows": rows})
        self.owner.mark({place: Mark(work.end, said) for place in work.places})
        work.reach("after-offsets")
        self.owner.commit()
        work.reach("after-commit")
        _keep(self.owner, work.end)
        return rows


def sent(work: Work, encode: Encode, batches: Iterable[pa.RecordBatch], *, trim: bool) -> Iterator[pa.RecordBatch]:
    """Encode and send everything, in one transaction. With `trim` records below the mark are left out: they are in
    Kafka already. Yields one row: how many rows there are, and those that cannot be sent."""
    sending = Sending.begin(work)
    rows, refused = 0, []
    try:
        for batch in batches:
            records = encode(batch)
            failed = records.column(OUTGOING_ERROR).is_valid()
            if pc.any(failed).as_py():
                refused += _refused(records.filter(failed))
                records = records.filter(pc.invert(failed))
            rows += records.num_rows
            if sending.complete:
                continue
            if trim and sending.done > work.start:
                records = records.filter(pc.greater_equal(records.column("at_offset"), sending.done))
            sending.send(records)
        held = sending.end(rows)
    except BaseException:
        sending.owner.abort()
        raise
    topic, partition = work.places[0]
    yield pa.RecordBatch.from_pylist(
        [{"topic": topic, "partition": partition, "rows": held, "rejected": refused}], schema=_RESULT_TYPE
    )


@dataclass(frozen=True)
class SendPartition:
    """The rows of one task come from one input partition; its offsets are the marks."""

    works: dict[Place, Work]
    encode: Encode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        incoming = iter(batches)
        first = next((batch for batch in incoming if batch.num_rows), None)
        if first is None:
            return
        place = (first.column("at_topic")[0].as_py(), first.column("at_partition")[0].as_py())
        own = (_checked(place, batch) for batch in chain([first], incoming))
        yield from sent(self.works[place], self.encode, own, trim=True)


@dataclass(frozen=True)
class SendPicked:
    """For `runtime.one_pass`: what was decoded in this worker, sent by it."""

    send: SendPartition
    picked: Picked

    def __call__(self, batches: Iterator[pa.RecordBatch], origins: Any) -> dict[str, Any] | None:
        found = list(self.send(self.picked(batch, origins) for batch in batches))
        for _ in batches:  # none are left, unless nothing passed
            pass
        return found[0].to_pylist()[0] if found else None


@dataclass(frozen=True)
class SendBatch:
    """All rows of a batch, in one task; the batch's number is the mark."""

    work: Work
    encode: Encode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from sent(self.work, self.encode, batches, trim=False)


def _checked(place: Place, batch: pa.RecordBatch) -> pa.RecordBatch:
    for name, expected in zip(OUTGOING_AT, place, strict=False):
        if not pc.all(pc.equal(batch.column(name), expected)).as_py():
            raise SinkFailed(
                "rows of several input partitions came to one task",
                cause="a step moves rows between partitions",
                next_command="set `guarantee: exactly-once-by-batch`",
            )
    return batch


def _refused(records: pa.RecordBatch) -> list[dict[str, Any]]:
    topics, partitions, offsets, errors = (records.column(name).to_pylist() for name in (*OUTGOING_AT, OUTGOING_ERROR))
    return [
        {"topic": topic, "partition": partition, "offset": offset, **error}
        for topic, partition, offset, error in zip(topics, partitions, offsets, errors, strict=True)
    ]


def _keep(owner: Owner, at: int) -> None:
    _KEPT[owner.name] = (owner, at)
    while len(_KEPT) > _MOST_KEPT:
        _KEPT.popitem(last=False)
