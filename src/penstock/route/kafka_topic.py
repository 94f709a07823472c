"""Dead letters to Kafka, exactly once: one transaction per batch.

    1. init_transactions with the transactional id of this query: fences an older attempt that is still alive.
    2. Read the committed offset c of the pipeline's own group, with stable reads: c = last batch written + 1.
    3. c > batch: this batch is done, nothing is written again.
    4. begin; produce every dead letter; send batch + 1 as the group's offset to the transaction; commit.

Dead letters and that mark become visible together or not at all. The group's offset metadata says how many
there were, so that a replay can check the balance without reading the topic. Steps 1 to 3 are for the first batch
of a start: from then on this producer owns the transactional id, and a newer owner would fence it. On an error the
producer is discarded: the batch fails, is run again, and starts at 1.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import KafkaUnreachable, PenstockError, SinkFailed
from penstock.kafka import admin, connection
from penstock.kafka.consume import headers_of, visible
from penstock.record import Batch, Known
from penstock.route import dead_letter
from penstock.route.dead_letter import DeadLetter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

_TIMEOUT_S = 30.0
_ABORT_S = 5.0
_ASK_AGAIN_S = 0.2
# Retriable by Kafka's protocol; the client library does not say so for every call.
_COORDINATOR_MOVES = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
# The broker aborts a transaction that is open for longer. Its own limit (transaction.max.timeout.ms) is 15 minutes.
_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000


@dataclass
class DeadLetterTopics:
    """One topic for all dead letters, or one per source topic when the name holds `{topic}`."""

    config: dict[str, str]
    pipeline: str
    topic: str
    sources: tuple[str, ...]  # none where topics are read by a pattern; then the name holds no `{topic}`
    _producer: Any = field(default=None, init=False, repr=False)

    @property
    def topics(self) -> list[str]:
        return sorted({self.topic_for(source) for source in self.sources or ("",)})

    def topic_for(self, source: str) -> str:
        return self.topic.replace("{topic}", source)

    def prepare(self, _batch: Batch, _known: Known, _accepted: frozenset[str]) -> None:
        admin.require_topics(self.config, self.topics)

    def written(self, batch: Batch) -> int | None:
        from confluent_kafka import KafkaException

        try:
            # First step 1: until the old attempt is fenced, its transaction could still commit after we looked.
            self._own(batch)
            return self._done(batch)
        except KafkaException as error:
            raise _failed(error, batch.id) from None

    def write(self, batch: Batch, rows: DataFrame) -> int:
        from confluent_kafka import KafkaException

        try:
            if self._producer is None:
                self._own(batch)
                done = self._done(batch)
                if done is not None:
                    return done
            return self._transaction(batch, rows)
        except KafkaException as error:
            raise _failed(error, batch.id) from None

    def read(self, query: str | None = None) -> Iterator[DeadLetter]:
        existing = admin.topics(self.config)
        for topic in self.topics:
            for message in visible(self.config, topic, existing[topic].partitions) if topic in existing else ():
                letter = dead_letter.from_headers(message.key(), message.value(), headers_of(message))
                if letter and letter.pipeline == self.pipeline and query in (None, letter.query):
                    yield letter

    def _transaction(self, batch: Batch, rows: DataFrame) -> int:

        producer, self._producer = self._producer, None  # ours again only when all went well
        try:
            count = self._send(producer, batch, rows)
        except BaseException:
            # Or readers of the topic would wait for its end until the transaction expires.
            with contextlib.suppress(Exception):
                producer.abort_transaction(_ABORT_S)
            raise
        self._producer = producer
        return count

    def _send(self, producer: Any, batch: Batch, rows: DataFrame) -> int:
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
        if producer.flush(_TIMEOUT_S):
            raise KafkaUnreachable(f"dead letters of batch {batch.id} are not acknowledged after {_TIMEOUT_S:.0f} s")
        if refused:
            raise _refused(batch.id, len(refused), refused[0])
        self._commit(producer, batch, count)
        return count

    def _commit(self, producer: Any, batch: Batch, count: int) -> None:
        from confluent_kafka import TopicPartition

        said = json.dumps({"batch": batch.id, "dead": count})
        # On every topic: which of them there are can change between two starts.
        marks = [TopicPartition(topic, 0, batch.id + 1, said) for topic in self.topics]
        consumer = connection.consumer(self._group_config(batch))
        try:
            # An unsubscribed consumer's metadata is enough: nobody ever joins the group.
            group = consumer.consumer_group_metadata()
            _within(_TIMEOUT_S, lambda: producer.send_offsets_to_transaction(marks, group, _TIMEOUT_S))
        finally:
            consumer.close()
        producer.commit_transaction(_TIMEOUT_S)

    def _done(self, batch: Batch) -> int | None:
        from confluent_kafka import TopicPartition

        consumer = connection.consumer(self._group_config(batch))
        try:
            asked = [TopicPartition(topic, 0) for topic in self.topics]
            marks = _answered(lambda: consumer.committed(asked, timeout=_TIMEOUT_S))
        finally:
            consumer.close()
        mark = max(marks, key=lambda each: each.offset)
        if mark.offset < 0 and batch.id > 0:
            # Never written, or forgotten: Kafka forgets the offsets of a group that is idle for a week.
            found = sum(1 for letter in self.read(batch.query) if letter.batch == batch.id)
            return found or None
        if mark.offset <= batch.id:
            return None
        return int(json.loads(mark.metadata or "")["dead"]) if mark.offset == batch.id + 1 else 0

    def _own(self, batch: Batch) -> None:
        settings = {
            **self.config,
            "transactional.id": f"penstock.{batch.pipeline}.{batch.query}.dead-letters",
            "transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS),
            "message.max.bytes": str(16 * 1024 * 1024),  # the broker decides what is too large, not the client
        }
        producer = connection.producer(settings)
        _answered(lambda: producer.init_transactions(_TIMEOUT_S))
        self._producer = producer

    def _group_config(self, batch: Batch) -> dict[str, str]:
        return {
            **self.config,
            "group.id": f"penstock.{batch.pipeline}.{batch.query}.dead-letters",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
        }


def _answered(ask: Callable[[], T]) -> T:
    """A coordinator that just moved or starts up says so; it is asked again until it answers."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            said = error.args[0]
            if not (said.retriable() or said.name() in _COORDINATOR_MOVES) or time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_S)


def _within(seconds: float, call: Callable[[], None]) -> None:
    """The call, or an error in its place. After a broker came back librdkafka can wait for ever and not look at its
    own timeout; the producer is then left to itself, and the next one fences it."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise KafkaUnreachable(
            f"Kafka did not answer within {seconds:.0f} s", cause="the transaction is left to expire"
        )
    if raised:
        raise raised[0]


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


def _refused(batch: int, count: int, said: str) -> SinkFailed:
    return SinkFailed(
        f"Kafka refused {count} dead letters of batch {batch}; nothing of them was written",
        cause=said,
        next_command="if one is too large: raise `max.message.bytes` of the dead-letter topic above the source's",
    )


def _failed(error: Any, batch: int) -> PenstockError:
    from confluent_kafka import KafkaError

    if error.args and error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return _refused(batch, 1, error.args[0].str())
    if error.args and (error.args[0].fatal() or error.args[0].name().endswith("AUTHORIZATION_FAILED")):
        return SinkFailed(
            f"Kafka does not take the dead letters of batch {batch}",
            cause=error.args[0].str(),
            next_command="let this user write to the dead-letter topic, its group and its transactional id; "
            "or stop the other process that runs this pipeline",
        )
    return KafkaUnreachable(
        f"the dead letters of batch {batch} could not be written to Kafka",
        cause=error.args[0].str() if error.args else str(error),
        next_command="penstock ps",
    )
