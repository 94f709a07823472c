"""Kafka, exactly once: what Spark's own sink lacks.

By partition: the rows of one input partition are sent by one task, in one transaction with the partition's offset. The
group's offsets are the ledger, and what lag tools read. Needs rows that stay in the task of their input partition and
say where they came from.

By batch: all rows are sent by one task, in one transaction with the number of the batch. For everything else.

After a crash the same batch comes again. A task takes its transactional id, which fences a former attempt and ends its
transaction, reads its mark, and sends only what lies above it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from penstock import failpoint
from penstock.errors import SpecInvalid, TableDiffers, TableOfAnotherQuery, TransactionOpen
from penstock.kafka import admin, transaction
from penstock.kafka.consume import headers_of, visible
from penstock.kafka.transaction import Owner, Place
from penstock.record import KAFKA, ORIGIN_HEADER, Batch, Known, ends_of
from penstock.sinks.contract import Incoming, Written
from penstock.sinks.kafka.encoding import Encoding, look_at_topics, look_where_records_go, rejected
from penstock.sinks.kafka.one_pass import OnePassKafka
from penstock.sinks.kafka.packets import PACKET, PackBatch, SendPackets
from penstock.sinks.kafka.worker import RESULT, Behind, Letters, Sending, SendPartition, Work
from penstock.spec.types import Struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_ONCE = 8  # transactional ids that are taken beside each other
_NAMED = 5
_BATCHES = ".batches"  # ends the name of a group whose offsets are numbers of batches, and of its transactions
Mode = Literal["exactly-once-by-partition", "exactly-once-by-batch"]
_SAID = {
    "exactly-once-by-partition": "exactly-once by partition: one transaction per input partition and batch, with its "
    "offsets in it",
    "exactly-once-by-batch": "exactly-once by batch: one transaction per batch, with the batch's number in it",
}


@dataclass
class KafkaSink:
    name: str
    config: dict[str, str]
    encoding: Encoding
    asked: str  # the spec's `guarantee`
    sources: tuple[str, ...] = ()  # topics that are read; none where a pattern names them
    origin: bool = False  # records say in a header which one they were made of
    open_for: timedelta = transaction.OPEN_FOR
    mode: Mode | None = None  # settled when the view is known
    why: str = ""  # not the other mode
    _known: Known = field(default_factory=Known, repr=False)
    _begun: int | None = field(default=None, repr=False)  # the last batch that this run tried
    _posts: bool = field(default=False, repr=False)  # dead letters are part of its transactions

    @property
    def guarantee(self) -> str:
        return _SAID[self.mode] if self.mode else "exactly-once"

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        look_at_topics(self.config, self.encoding)
        if known.planned is None and TableOfAnotherQuery.code not in accepted:
            self._check_alone(batch)
        self._known = Known() if TableDiffers.code in accepted else known
        self._check_ahead(batch)

    def suits(self, incoming: Incoming) -> None:
        self.encoding.prepare(incoming.view, incoming.columns)
        apart = incoming.apart or (
            "" if KAFKA in incoming.columns.names else f"view '{incoming.view}' does not carry `{KAFKA}`"
        )
        if apart and self.asked == "exactly-once-by-partition":
            raise SpecInvalid(
                f"sink '{self.name}' cannot write by partition",
                cause=apart,
                next_command="set `guarantee: exactly-once-by-batch`, or `exactly-once` for the best that holds",
            )
        by_batch = bool(apart) or self.asked == "exactly-once-by-batch"
        self.mode = "exactly-once-by-batch" if by_batch else "exactly-once-by-partition"
        self.why = apart or ("the spec asks for it" if by_batch else "")

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool, behind: Behind | None = None) -> Written:
        """`behind`, by partition: the dead letters go into the transactions of the rows."""
        self.begin(batch, replay=replay, posts=behind is not None)
        crash = failpoint.crash(batch.id, rows)
        encoded = self.encoding.rows(rows)
        if self.mode == "exactly-once-by-partition":
            send: Any = SendPartition(self.works(batch, crash), self.encoding.encode, behind)
        else:
            send = SendPackets(self.batch_work(batch, crash))
            # The records are made by all cores at once, and then sent by one.
            encoded = encoded.mapInArrow(PackBatch(self.encoding.encode), PACKET).repartition(1)
        found = [row.asDict(recursive=True) for row in encoded.mapInArrow(send, RESULT).collect()]
        return self.ended(batch, found)

    def one_pass(self, struct: Struct, letters: Callable[[Batch], Letters] | None) -> OnePassKafka | str:
        """This sink's part of a batch that never goes back to the engine, or why it cannot have one."""
        picked = self.encoding.picked(struct)
        return picked if isinstance(picked, str) else OnePassKafka(self, picked, letters)

    def begin(self, batch: Batch, *, replay: bool, posts: bool) -> None:
        """`posts`: dead letters will be part of the transactions."""
        self._posts = posts
        if replay:
            self._check_marks(batch)
            self._check_same_way(batch)
        if self._begun != batch.id:  # what is tried again must come to the same
            look_where_records_go(self.config, self.encoding)
        self._begun = batch.id

    def ended(self, batch: Batch, found: Iterable[Mapping[str, Any]]) -> Written:
        """After the tasks of a batch that was begun: marks for those that had nothing to send, and what became of all
        rows."""
        found = list(found)
        if self.mode == "exactly-once-by-partition":
            works = self.works(batch, None)
            for place in sorted(works.keys() - {(row["topic"], row["partition"]) for row in found}):
                Sending.begin(works[place]).end(0, 0)  # every row of it was filtered; the mark moves on all the same
        self._known = Known(batch.id, batch.id, ends_of(batch.ranges))
        return Written(
            sum(row["rows"] for row in found),
            rejected=rejected(self.name, (tuple(each.values()) for row in found for each in row["rejected"])),
            letters=sum(row["letters"] for row in found) if self._posts else None,
        )

    def works(self, batch: Batch, crash: failpoint.Crash | None) -> dict[Place, Work]:
        group, ends = self._group(batch), self._known.ends
        return {
            (r.topic, r.partition): self._work(
                batch,
                _transactional_id(group, (r.topic, r.partition)),
                ((r.topic, r.partition),),
                start=r.start,
                end=r.end,
                floor=ends.get((r.topic, r.partition)),
                crash=crash,
            )
            for r in batch.ranges
            if len(r)
        }

    def positions(self, _column: str) -> dict[tuple[str, int], list[int]] | None:
        if not self.origin or not self.encoding.topics:
            return None
        there = admin.topics(self.config)
        found: dict[tuple[str, int], list[int]] = {}
        for topic in self.encoding.topics:
            for message in visible(self.config, topic, there[topic].partitions) if topic in there else ():
                said = dict(headers_of(message)).get(ORIGIN_HEADER)
                if said is not None:
                    source, partition, offset = said.decode().rsplit("/", 2)
                    found.setdefault((source, int(partition)), []).append(int(offset))
        return found

    def rows_by_batch(self, _query: str) -> dict[int, int] | None:
        return None

    def holds(self, batch: Batch) -> bool:
        """Which way it was written is not known before the view is: both are looked at. Whoever still has one of the
        names is fenced first, or it could commit after we looked."""
        parts = replace(self, mode="exactly-once-by-partition")
        works = [
            *parts.works(batch, None).values(),
            replace(self, mode="exactly-once-by-batch").batch_work(batch, None),
        ]
        for work in works:
            found = Owner.take(work.config, work.name, work.group, work.open_for).marks(work.places).values()
            if any(mark.offset > work.start for mark in found):
                return True
        return False

    def batch_work(self, batch: Batch, crash: failpoint.Crash | None) -> Work:
        return self._work(
            batch,
            self._group(batch),
            self._batch_places(batch),
            start=batch.id,
            end=batch.id + 1,
            floor=self._known.written,
            crash=crash,
            covers=_covers(batch),
        )

    def _work(self, batch: Batch, name: str, places: tuple[Place, ...], **limits: Any) -> Work:
        return Work(
            config=self.config,
            name=name,
            group=self._group(batch),
            places=places,
            batch=batch.id,
            open_for=self.open_for,
            largest=self.encoding.largest,
            along=self._posts,
            **limits,
        )

    def _check_marks(self, batch: Batch) -> None:
        """The group must know what the ledger says was written, and in by-batch mode no more than was planned."""
        if self._known.written is None:
            return
        again = self._begun == batch.id  # in this run: it was planned since the start, and may have been written
        planned = batch.id if again else self._known.planned or 0
        pending = planned != self._known.written
        if pending:
            self._end_open(batch)
        if self.mode == "exactly-once-by-partition":
            expected = dict(self._known.ends)
            most: int | None = None  # being ahead is harmless: what lies below a mark is trimmed
        else:
            expected = dict.fromkeys(self._batch_places(batch)[:1], self._known.written + 1)
            most = planned + 1
        marks = transaction.marks(self.config, self._group(batch), self._places(batch))
        found = {place: mark.offset for place, mark in marks.items()}
        if most is not None and found:
            found = dict.fromkeys(expected, max(found.values()))
        for place, offset in expected.items():
            if place not in found and not pending:
                continue  # Kafka forgets the offsets of a group that is idle for a week; nothing was under way
            if found.get(place, -1) < offset:
                raise TableDiffers(
                    f"sink '{self.name}' has lost its ledger",
                    cause=f"group '{self._group(batch)}' says {found.get(place, 'nothing')} for {place[0]}-{place[1]}, "
                    f"the ledger {offset}: whether batch {batch.id} was written cannot be told",
                    next_command="restore the group's offsets; or, to write that batch, possibly a second time: "
                    f"penstock run FILE --accept {TableDiffers.code}",
                )
            if most is not None:
                self._require_not_ahead(found[place], most)

    def _check_same_way(self, batch: Batch) -> None:
        """A batch that was begun must be ended in the same way, or letters would be there twice or not at all."""
        if self._begun != batch.id and self._known.planned in (None, self._known.written):
            return  # nothing is under way
        if self._known.written is None:  # else it was done by `_check_marks`
            self._end_open(batch)
        for mark in transaction.marks(self.config, self._group(batch), self._places(batch)).values():
            said = json.loads(mark.said) if mark.said else {}
            if said.get("batch") == batch.id and said.get("along", bool(said.get("letters"))) != self._posts:
                ways = ("apart from", "together with")
                raise TableDiffers(
                    f"sink '{self.name}' has begun batch {batch.id} with dead letters "
                    f"{ways[not self._posts]} its records",
                    cause="the spec was changed in the middle of that batch: now they would be sent "
                    f"{ways[self._posts]} them",
                    next_command="bring the spec back to what it was until the batch is done",
                )

    def _check_ahead(self, batch: Batch) -> None:
        """By batch, where nothing is under way, an older checkpoint is seen before the view is. (With a batch under way
        it is seen when that one is begun: what was committed before an open transaction does not say it.)"""
        known = self._known
        if known.written is None or known.planned != known.written:
            return
        group = replace(self, mode="exactly-once-by-batch")._group(batch)
        marks = transaction.marks(self.config, group, [(topic, 0) for topic in self.sources], stable=False)
        if marks:
            self._require_not_ahead(max(mark.offset for mark in marks.values()), known.written + 1)

    def _require_not_ahead(self, found: int, most: int) -> None:
        if found > most:
            raise TableDiffers(
                f"sink '{self.name}' is ahead of the checkpoint",
                cause=f"Kafka has batch {found - 1} of it, the checkpoint knows batches up to {most - 1}: "
                "an older checkpoint was restored, and its next batches would be taken for written",
                next_command="restore the checkpoint directory that belongs to this topic",
            )

    def _end_open(self, batch: Batch) -> None:
        """A driver that was killed may have left transactions open: until they are ended, marks cannot be read, and the
        broker ends them only when their time is over."""
        by_partition = self.mode == "exactly-once-by-partition"
        works = list(self.works(batch, None).values()) if by_partition else [self.batch_work(batch, None)]
        with ThreadPoolExecutor(min(_AT_ONCE, len(works) or 1)) as pool:
            list(pool.map(lambda work: Owner.take(work.config, work.name, work.group, work.open_for), works))

    def _check_alone(self, batch: Batch) -> None:
        """A new checkpoint would write everything a second time if an older one has written it already."""
        prefix, suffix = f"penstock.{batch.pipeline}.", f".{self.name}"
        facts = admin.topics(self.config)
        places = [(t, p) for t in self.sources if t in facts for p in range(facts[t].partitions)]
        groups = [
            group
            for group in admin.groups(self.config)
            if group.startswith(prefix) and group.removesuffix(_BATCHES).endswith(suffix)
        ]
        # What an open transaction would add to a group is not waited for: what it has committed says enough.
        others = [
            group for group in groups if not self.sources or transaction.marks(self.config, group, places, stable=False)
        ]
        open_ = sorted(
            {_transactional_id(g, at) for g in groups for at in transaction.undecided(self.config, g, places)}
        )
        named = f"transaction {', '.join(open_[:_NAMED])}"
        if others:
            hides = f"; an open {named} hides what comes after it; {transaction.left_open(self.open_for)}"
            raise TableOfAnotherQuery(
                f"sink '{self.name}' was written by '{batch.pipeline}' under another checkpoint",
                cause=f"the checkpoint is new, but there is group {', '.join(sorted(others))}: reading from the start "
                "again would write those records a second time" + hides * bool(open_),
                next_command="restore the old checkpoint directory; or, to keep the records and add to them: "
                f"penstock run FILE --accept {TableOfAnotherQuery.code}",
                facts={"transactions": open_} if open_ else None,
            )
        if open_:
            raise TransactionOpen(
                f"whether sink '{self.name}' was written under another checkpoint is not decided yet",
                cause=f"nothing is committed, but there is an open {named}; {transaction.left_open(self.open_for)}",
                next_command="stop the process that writes, if there is one; once the transaction has ended: "
                "penstock run FILE; or restore the old checkpoint directory, whose next start ends it at once",
                facts={"transactions": open_},
            )

    def _group(self, batch: Batch) -> str:
        plain = f"penstock.{batch.pipeline}.{batch.query}.{self.name}"
        return plain if self.mode == "exactly-once-by-partition" else f"{plain}{_BATCHES}"

    def _places(self, batch: Batch) -> Iterable[Place]:
        if self.mode == "exactly-once-by-batch":
            return self._batch_places(batch)
        return [(r.topic, r.partition) for r in batch.ranges]

    def _batch_places(self, batch: Batch) -> tuple[Place, ...]:
        # On every source topic: which of them there are can change between two starts.
        return tuple((topic, 0) for topic in sorted({r.topic for r in batch.ranges}))


def _transactional_id(group: str, place: Place) -> str:
    return group if group.endswith(_BATCHES) else f"{group}.{place[0]}.{place[1]}"


def _covers(batch: Batch) -> str:
    """The offsets of a batch in a few letters: Kafka keeps little beside a mark."""
    return hashlib.sha256(" ".join(sorted(map(str, batch.ranges))).encode()).hexdigest()[:16]
