"""Dead letters to Kafka, exactly once: one transaction per batch (see `kafka.transaction`).

The mark is batch + 1 as the offset of the pipeline's own group: a replay that finds it writes nothing again. Its
metadata says how many there were, so that a replay can check the balance without reading the topic. From the first
batch of a start on this producer owns the transactional id, and a newer owner would fence it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.deadletters import dead_letter
from penstock.deadletters.dead_letter import DeadLetter
from penstock.errors import TableDiffers
from penstock.kafka import admin, transaction
from penstock.kafka.consume import headers_of, visible
from penstock.kafka.transaction import Mark, Owner, said_by_kafka
from penstock.record import Batch, Known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class DeadLetterTopics:
    """One topic for all dead letters, or one per source topic when the name holds `{topic}`."""

    config: dict[str, str]
    pipeline: str
    topic: str
    sources: tuple[str, ...]  # none where topics are read by a pattern; then the name holds no `{topic}`
    _owner: Owner | None = field(default=None, init=False, repr=False)

    @property
    def guarantee(self) -> str:
        return "exactly-once: one Kafka transaction per batch, with the batch's number in it"

    @property
    def topics(self) -> list[str]:
        return sorted({self.topic_for(source) for source in self.sources or ("",)})

    def topic_for(self, source: str) -> str:
        return self.topic.replace("{topic}", source)

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        admin.require_topics(self.config, self.topics)
        # A driver that was killed may have left a transaction open: `written` ends it, and it counts for nothing.
        looks = known.planned is not None and TableDiffers.code not in accepted
        mark = self._mark(batch, stable=False) if looks else None
        if mark is not None and known.planned is not None and mark.offset > known.planned + 1:
            raise TableDiffers(
                "the dead letters are ahead of the checkpoint",
                cause=f"Kafka has those of batch {mark.offset - 1}, the checkpoint ends with batch {known.planned}: "
                "an older checkpoint was restored, and dead letters of its next batches would be taken for written",
                next_command="restore the checkpoint directory that belongs to this pipeline",
            )

    def written(self, batch: Batch) -> int | None:
        # First become the owner: until the old attempt is fenced, its transaction could still commit after we looked.
        self._owner = Owner.take(self.config, _name(batch), _name(batch))
        return self._done(batch)

    def write(self, batch: Batch, rows: DataFrame) -> int:
        if self._owner is None:
            done = self.written(batch)
            if done is not None:
                return done
        owner, self._owner = self._owner, None  # ours again only when all went well
        assert owner is not None
        try:
            count = self._send(owner, batch, rows)
        except BaseException:
            owner.abort()
            raise
        self._owner = owner
        return count

    def read(self, query: str | None = None) -> Iterator[DeadLetter]:
        existing = admin.topics(self.config)
        for topic in self.topics:
            for message in visible(self.config, topic, existing[topic].partitions) if topic in existing else ():
                letter = dead_letter.from_headers(message.key(), message.value(), headers_of(message))
                if letter and letter.pipeline == self.pipeline and query in (None, letter.query):
                    yield letter

    def _send(self, owner: Owner, batch: Batch, rows: DataFrame) -> int:
        from pyspark.sql import functions as F

        owner.begin()
        count = 0
        in_ms = rows.withColumn("timestamp_ms", F.unix_millis("timestamp")).drop("timestamp")
        with said_by_kafka(f"the dead letters of batch {batch.id} could not be written to Kafka"):
            # One partition: the rows are made by all cores at once, and then streamed instead of held in the driver.
            for row in in_ms.repartition(1).toLocalIterator():
                letter = dead_letter.from_row(row, batch)
                to, headers = self.topic_for(letter.topic), dead_letter.to_headers(letter)
                owner.forward(to, letter.key, letter.value, headers, letter.timestamp_ms)
                count += 1
        said = json.dumps({"batch": batch.id, "dead": count})
        # On every topic: which of them there are can change between two starts.
        owner.mark({(topic, 0): Mark(batch.id + 1, said) for topic in self.topics})
        owner.commit()
        return count

    def _mark(self, batch: Batch, *, stable: bool = True) -> Mark | None:
        marks = transaction.marks(self.config, _name(batch), [(topic, 0) for topic in self.topics], stable=stable)
        return max(marks.values(), key=lambda each: each.offset, default=None)

    def _done(self, batch: Batch) -> int | None:
        mark = self._mark(batch)
        if mark is None and batch.id > 0:
            # Never written, or forgotten: Kafka forgets the offsets of a group that is idle for a week.
            found = sum(1 for letter in self.read(batch.query) if letter.batch == batch.id)
            return found or None
        if mark is None or mark.offset <= batch.id:
            return None
        return int(json.loads(mark.said)["dead"]) if mark.offset == batch.id + 1 else 0


def _name(batch: Batch) -> str:
    return f"penstock.{batch.pipeline}.{batch.query}.dead-letters"
