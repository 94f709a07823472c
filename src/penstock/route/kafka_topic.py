"""Dead letters to Kafka, exactly once: one transaction per batch.

    1. init_transactions with the transactional id of this query: fences an older attempt that is still alive.
    2. Read the committed offset c of the ledger group, with stable reads: c = last batch written + 1.
    3. c > batch: this batch is done, nothing is written again.
    4. begin; produce every dead letter; send batch + 1 as the group's offset to the transaction; commit.

Dead letters and ledger offset become visible together or not at all. The group's offset metadata says how many
there were, so that a replay can check the balance without reading the topic. On an error the producer is
discarded: the batch fails, is run again, and starts at 1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import KafkaUnreachable, SinkFailed
from penstock.kafka import admin, connection
from penstock.kafka.consume import headers_of, visible
from penstock.record import Batch
from penstock.route import dead_letter
from penstock.route.dead_letter import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMEOUT_S = 60.0
_ASK_AGAIN_S = 0.2
# The broker aborts a transaction that is open for longer. Its own limit (transaction.max.timeout.ms) is 15 minutes.
_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000


@dataclass(frozen=True)
class DeadLetterTopics:
    """One topic for all dead letters, or one per source topic when the name holds `{topic}`."""

    config: dict[str, str]
    pipeline: str
    topic: str
    sources: tuple[str, ...]

    @property
    def topics(self) -> list[str]:
        return sorted({self.topic_for(source) for source in self.sources})

    def topic_for(self, source: str) -> str:
        return self.topic.replace("{topic}", source)

    def prepare(self, _batch: Batch, _accepted: frozenset[str]) -> None:
        admin.require_topics(self.config, self.topics)

    def written(self, batch: Batch) -> int | None:
        from confluent_kafka import KafkaException

        try:
            # Step 1 here too: until the old attempt is fenced, its transaction could still commit after we looked.
            self._producer(batch)
            return self._done(batch)
        except KafkaException as error:
            raise _failed(error, batch.id) from None

    def write(self, batch: Batch, rows: DataFrame) -> int:
        from confluent_kafka import KafkaException

        try:
            producer = self._producer(batch)
            done = self._done(batch)
            if done is not None:
                return done
            return self._transaction(producer, batch, rows)
        except KafkaException as error:
            raise _failed(error, batch.id) from None

    def read(self, query: str | None = None) -> Iterator[DeadLetter]:
        existing = admin.topics(self.config)
        for topic in self.topics:
            for message in visible(self.config, topic, existing[topic].partitions) if topic in existing else ():
                letter = dead_letter.from_headers(message.key(), message.value(), headers_of(message))
                if letter and letter.pipeline == self.pipeline and query in (None, letter.query):
                    yield letter

    def _transaction(self, producer: Any, batch: Batch, rows: DataFrame) -> int:
        from pyspark.sql import functions as F

        refused: list[str] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                refused.append(str(error))

        producer.begin_transaction()
        count = 0
        in_ms = rows.withColumn("timestamp_ms", F.unix_millis("timestamp")).drop("timestamp")
        # One partition: the rows are made by all cores at once, and then streamed instead of held in the driver.
        for row in in_ms.repartition(1).toLocalIterator():
            letter = dead_letter.from_row(row, batch)
            _produce(producer, self.topic_for(letter.topic), letter, delivered)
            count += 1
        producer.flush(_TIMEOUT_S)
        if refused:
            producer.abort_transaction(_TIMEOUT_S)
            raise SinkFailed(f"Kafka refused {len(refused)} dead letters of batch {batch.id}", cause=refused[0])
        self._commit(producer, batch, count)
        return count

    def _commit(self, producer: Any, batch: Batch, count: int) -> None:
        from confluent_kafka import TopicPartition

        ledger = self._ledger_partition()
        said = json.dumps({"batch": batch.id, "dead": count})
        mark = TopicPartition(ledger.topic, ledger.partition, batch.id + 1, said)
        consumer = connection.consumer(self._group_config(batch))
        try:
            # An unsubscribed consumer's metadata is enough: nobody ever joins the group.
            producer.send_offsets_to_transaction([mark], consumer.consumer_group_metadata(), _TIMEOUT_S)
        finally:
            consumer.close()
        producer.commit_transaction(_TIMEOUT_S)

    def _done(self, batch: Batch) -> int | None:
        consumer = connection.consumer(self._group_config(batch))
        try:
            mark = _committed(consumer, self._ledger_partition())
        finally:
            consumer.close()
        if mark.offset <= batch.id:  # also OFFSET_INVALID (-1001), when nothing was ever committed
            return None
        return int(json.loads(mark.metadata)["dead"]) if mark.offset == batch.id + 1 else 0

    def _producer(self, batch: Batch) -> Any:
        settings = {
            **self.config,
            "transactional.id": f"penstock.{batch.pipeline}.{batch.query}.dead-letters",
            "transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS),
            "message.max.bytes": str(16 * 1024 * 1024),  # the broker decides what is too large, not the client
        }
        producer = connection.producer(settings)
        producer.init_transactions(_TIMEOUT_S)
        return producer

    def _ledger_partition(self) -> Any:
        from confluent_kafka import TopicPartition

        return TopicPartition(self.topics[0], 0)

    def _group_config(self, batch: Batch) -> dict[str, str]:
        return {
            **self.config,
            "group.id": f"penstock.{batch.pipeline}.{batch.query}.dead-letters",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
        }


def _committed(consumer: Any, partition: Any) -> Any:
    """The group's offset. A coordinator that just moved or starts up says so; it is asked again until it answers."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            [mark] = consumer.committed([partition], timeout=_TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_S)
        else:
            return mark


def _produce(producer: Any, topic: str, letter: DeadLetter, delivered: Any) -> None:
    headers = dead_letter.to_headers(letter)
    while True:
        try:
            producer.produce(
                topic,
                letter.value,
                letter.key,
                timestamp=max(letter.timestamp_ms, 0),
                headers=headers,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _failed(error: Any, batch: int) -> KafkaUnreachable:
    return KafkaUnreachable(
        f"the dead letters of batch {batch} could not be written to Kafka",
        cause=error.args[0].str() if error.args else str(error),
        next_command="penstock ps",
    )
