"""Sending in a Python worker: the rows of one task, in one transaction.

A worker keeps its owners from one batch to the next: to take a transactional id again costs up to half a second, and a
kept one that was fenced in the meantime is told so before it has sent anything (see `kafka.transaction`).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from penstock import failpoint
from penstock.errors import Fenced, KafkaUnreachable, SinkFailed, TableDiffers
from penstock.kafka import connection
from penstock.kafka.transaction import Mark, Owner, Place, said_by_kafka
from penstock.record import OUTGOING, OUTGOING_AT, OUTGOING_ERROR
from penstock.sinks.kafka.encoding import Encode
from penstock.workers import forget_archives

RESULT = (
    "topic string, partition int, rows bigint, letters bigint, "
    "rejected array<struct<topic:string,partition:int,offset:bigint,class:string,reason:string>>"
)
_RESULT_TYPE = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("letters", pa.int64()),
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
_CRASH_FLUSH_S = 10.0
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
    open_for: timedelta
    largest: int | None  # bytes that the topic takes at once, where that is known
    crash: failpoint.Crash | None = None
    covers: str = ""  # which offsets, where the mark is but a number; nothing: it is an offset itself
    along: bool = False  # dead letters are part of the transaction

    @property
    def watched(self) -> dict[str, str]:
        return self.crash.settings if self.crash is not None else {}

    def reach(self, place: str) -> None:
        if self.crash is not None:
            self.crash.reach(place)


@dataclass(frozen=True)
class Letter:
    """A record that goes into the same transaction beside the rows: a dead letter."""

    origin: tuple[str, int, int]  # topic, partition, offset of the record that died
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


class Letters(Protocol):
    """How dead records become letters. Pickles."""

    def died(self, rows: pa.RecordBatch, verdicts: pa.Array) -> list[Letter]:
        """Decoded rows that failed or broke a rule."""

    def refused(self, rows: pa.RecordBatch, sink: str, failures: list[dict[str, Any]]) -> list[Letter]:
        """Decoded rows that the sink could not encode; `class` and `reason` of each."""


class Behind(Protocol):
    """Letters that follow the rows of an input partition into their transaction. Asked in the task that sends, when its
    rows have ended. Pickles."""

    def place(self) -> Place | None:
        """The input partition of this task; None where it has read no record."""

    def letters(self, place: Place, refused: list[dict[str, Any]]) -> Iterator[list[Letter]]:
        """Of every record of the partition that died. `refused`: the rows that could not be encoded."""

    def count(self, place: Place, refused: list[dict[str, Any]]) -> int:
        """How many letters there are, where all of them are in Kafka already."""


@dataclass
class Parcel:
    """What one batch came to: records to send, rows that cannot be sent, letters that go along."""

    records: pa.RecordBatch
    refused: list[dict[str, Any]]
    letters: list[Letter] = field(default_factory=list)

    @property
    def place(self) -> Place | None:
        """The input partition it came from."""
        if self.letters:
            return self.letters[0].origin[:2]
        if self.refused:
            return self.refused[0]["topic"], self.refused[0]["partition"]
        if self.records.num_rows:
            return self.records.column("at_topic")[0].as_py(), self.records.column("at_partition")[0].as_py()
        return None


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
        if owner is not None and at == work.start and not work.watched:
            try:
                owner.begin()
                owner.mark({place: Mark(work.end) for place in work.places})
            except (Fenced, KafkaUnreachable):
                pass  # somebody else had the name since: start over
            else:
                return cls(work, owner, work.start)
        work.reach("before-init")
        owner = Owner.take({**work.config, **work.watched}, work.name, work.group, work.open_for, work.largest)
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
        self._reach("mid-produce")

    def post(self, letters: Iterable[Letter]) -> None:
        with said_by_kafka(f"dead letters of '{self.work.group}' could not be sent"):
            for letter in letters:
                self.owner.forward(letter.topic, letter.key, letter.value, letter.headers, letter.timestamp_ms)

    def end(self, rows: int, letters: int) -> tuple[int, int]:
        """Commit, unless all of it was there already. Returns how many rows and letters Kafka holds of this batch."""
        work = self.work
        if self.complete:
            if self.said.get("batch") != work.batch:
                return rows, letters
            if self.said.get("covers", work.covers) != work.covers:
                raise TableDiffers(
                    f"group '{work.group}' has another batch {work.batch} than the checkpoint",
                    cause="an older checkpoint was restored, which then planned that batch over other offsets; or the "
                    "spec was changed in the middle of it, and the sink gets other topics now",
                    next_command="restore the checkpoint directory that belongs to the topics of the sink, or bring "
                    "the spec back to what it was until the batch is done",
                )
            return int(self.said["rows"]), int(self.said.get("letters", 0))
        said = {"batch": work.batch, "rows": rows, "letters": letters, "covers": work.covers, "along": work.along}
        self.owner.mark({place: Mark(work.end, json.dumps(said)) for place in work.places})
        self._reach("after-offsets")
        if work.crash is not None:
            work.crash.watch(self.owner.producer, connection.LOG)
        self.owner.commit()
        work.reach("after-commit")
        _keep(self.owner, work.end)
        return rows, letters

    def _reach(self, place: str) -> None:
        """A failpoint in an open transaction: whatever dies there leaves records in Kafka that nobody committed."""
        if self.work.crash is not None:
            self.owner.producer.flush(_CRASH_FLUSH_S)
            self.work.reach(place)


def sent(
    work: Work, parcels: Iterable[Parcel], *, trim: bool, behind: Behind | None = None
) -> Iterator[pa.RecordBatch]:
    """Send everything, in one transaction. With `trim` what lies below the mark is left out: it is in Kafka already.
    Yields one row: how many rows and letters there are, and rows that cannot be sent."""
    sending = Sending.begin(work)
    place = work.places[0]
    rows, letters, refused = 0, 0, []
    try:
        for parcel in parcels:
            records, along = parcel.records, parcel.letters
            refused += parcel.refused
            rows, letters = rows + records.num_rows, letters + len(along)
            if sending.complete:
                continue
            if trim and sending.done > work.start:
                records = records.filter(pc.greater_equal(records.column("at_offset"), sending.done))
                along = [letter for letter in along if letter.origin[2] >= sending.done]
            sending.send(records)
            sending.post(along)
        if behind is not None and sending.complete:
            letters += behind.count(place, refused)
        elif behind is not None:
            for some in behind.letters(place, refused):
                letters += len(some)
                sending.post(letter for letter in some if letter.origin[2] >= sending.done)
        rows, letters = sending.end(rows, letters)
    except BaseException:
        sending.owner.abort()
        raise
    topic, partition = place
    yield pa.RecordBatch.from_pylist(
        [{"topic": topic, "partition": partition, "rows": rows, "letters": letters, "rejected": refused}],
        schema=_RESULT_TYPE,
    )


def packed(encode: Encode, batch: pa.RecordBatch) -> tuple[Parcel, pa.Array]:
    """The batch, encoded, and which of its rows could not be."""
    records = encode(batch)
    failed = records.column(OUTGOING_ERROR).is_valid()
    if not pc.any(failed).as_py():
        return Parcel(records, []), failed
    return Parcel(records.filter(pc.invert(failed)), _refused(records.filter(failed))), failed


@dataclass(frozen=True)
class SendPartition:
    """The rows of one task come from one input partition; its offsets are the marks."""

    works: dict[Place, Work]
    encode: Encode
    behind: Behind | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        yield from self.sent(packed(self.encode, batch)[0] for batch in batches)

    def sent(self, parcels: Iterator[Parcel]) -> Iterator[pa.RecordBatch]:
        first = next((parcel for parcel in parcels if parcel.place is not None), None)
        if first is not None:
            place, parcels = first.place, chain([first], parcels)
        else:
            place = self.behind.place() if self.behind is not None else None
        if place is not None:
            checked = (_checked(place, each) for each in parcels)
            yield from sent(self.works[place], checked, trim=True, behind=self.behind)


def _checked(place: Place, parcel: Parcel) -> Parcel:
    for name, expected in zip(OUTGOING_AT, place, strict=False):
        if not pc.all(pc.equal(parcel.records.column(name), expected), min_count=0).as_py():
            raise SinkFailed(
                "rows of several input partitions came to one task",
                cause="a step moves rows between partitions",
                next_command="set `guarantee: exactly-once-by-batch`",
            )
    return parcel


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
