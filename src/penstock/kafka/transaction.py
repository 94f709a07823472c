"""Exactly once into Kafka: a producer that owns a transactional id, and a group whose offsets are its ledger.

    1. `Owner.take`: init_transactions fences an older attempt that is still alive, and ends what it had open.
    2. `marks`: the committed offsets of the group, read with stable reads, say what is done already.
    3. `begin`; produce; `mark` (offsets into the transaction); `commit`.

Records and marks become visible together or not at all. Nobody ever joins the group. An owner that is kept from one
batch to the next marks first as well: a fenced one is told so before it has sent anything. On any error an owner is
discarded: whoever goes on starts at 1.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from penstock.errors import Fenced, KafkaUnreachable, PenstockError, SinkFailed, TransactionOpen, counted
from penstock.kafka import connection
from penstock.kafka.session import session
from penstock.spec.duration import span

T = TypeVar("T")
Place = tuple[str, int]
"""Topic and partition."""

_TIMEOUT_S = 30.0
_ABORT_S = 5.0
_ASK_AGAIN_S = 0.2
# Retriable by Kafka's protocol; the client library does not say so for every call.
_COORDINATOR_MOVES = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
# Another attempt took over, or the broker gave the transaction up because it was open for too long.
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE"}
# The broker aborts a transaction that is open for longer; this is also its own limit (transaction.max.timeout.ms).
OPEN_FOR = timedelta(minutes=15)
_TOO_LONG = "raise `transaction_timeout` of the sink, or lower `rate.max_offsets`"
_BATCH = 1024 * 1024
_PRODUCER = {
    "message.max.bytes": str(16 * 1024 * 1024),  # the broker decides what is too large, not the client
    "linger.ms": "5",
    "queue.buffering.max.messages": "1000000",
    # By default librdkafka forgets its brokers when none is left, and begins again with the bootstrap address. It then
    # sends the marks to the group coordinator it knew before, which it has closed: the call never returns.
    "metadata.recovery.strategy": "none",
}


@dataclass(frozen=True)
class Mark:
    """A committed offset, and what was written next to it."""

    offset: int
    said: str = ""


class Owner:
    """The one that may write under the transactional id `name`, until somebody else takes it."""

    def __init__(self, config: dict[str, str], name: str, group: str, producer: Any, open_for: timedelta) -> None:
        self.config, self.name, self.group, self.producer = config, name, group, producer
        self.refused: list[str] = []
        self._open_for, self._began = open_for.total_seconds(), 0.0

    @classmethod
    def take(
        cls, config: dict[str, str], name: str, group: str, open_for: timedelta = OPEN_FOR, largest: int | None = None
    ) -> Owner:
        """`largest`: bytes that the topic takes at once, where that is known."""
        own = {
            **_PRODUCER,
            "transactional.id": name,
            "transaction.timeout.ms": str(round(open_for.total_seconds() * 1000)),
            "batch.size": str(min(_BATCH, largest or _BATCH)),
        }
        producer = connection.producer({**config, **own})
        with said_by_kafka(f"no transaction for '{name}'"):
            _answered(lambda: producer.init_transactions(_TIMEOUT_S))
        return cls(config, name, group, producer, open_for)

    def marks(self, places: Iterable[Place]) -> dict[Place, Mark]:
        return marks(self.config, self.group, places)

    def begin(self) -> None:
        self.refused.clear()
        with said_by_kafka(f"no transaction for '{self.name}'"):
            self.producer.begin_transaction()
        self._began = time.monotonic()

    def mark(self, marks: dict[Place, Mark]) -> None:
        """Put marks into the transaction; the last ones count. Raises Fenced when the name has another owner by now."""
        from confluent_kafka import KafkaException, TopicPartition

        consumer = connection.consumer(_group(self.config, self.group))
        try:
            group = consumer.consumer_group_metadata()  # an unsubscribed consumer's is enough
            offsets = [TopicPartition(t, p, mark.offset, mark.said) for (t, p), mark in marks.items()]
            _within(_TIMEOUT_S, lambda: self.producer.send_offsets_to_transaction(offsets, group, _TIMEOUT_S))
        except KafkaException as error:
            raise _translated(error, f"no transaction for '{self.name}'") from None
        finally:
            consumer.close()

    def forward(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        timestamp_ms: int,
    ) -> None:
        """One record into the transaction, with the time it had; waits while the client's buffer is full."""
        at = max(timestamp_ms, 0)  # a record of an old format has none, which is -1
        while True:
            try:
                self.producer.produce(topic, value, key, timestamp=at, headers=headers, on_delivery=self.delivered)
            except BufferError:
                self.producer.poll(0.1)
            else:
                self.producer.poll(0)
                return

    def delivered(self, error: Any, _message: Any) -> None:
        """For `on_delivery`. Where it is not given, `commit` says that a record was refused, and not which."""
        if error is not None:
            self.refused.append(str(error))

    def commit(self) -> None:
        with said_by_kafka(f"the transaction of '{self.name}' was not committed"):
            until = self._began + self._open_for
            flushed(self.producer.flush, len(self.producer), until, f"records of '{self.name}'")
            if self.refused:
                raise _too_much(self.refused[0], len(self.refused))
            self.producer.commit_transaction(_TIMEOUT_S)

    def abort(self) -> None:
        """Or readers of the topic would wait for its end until the transaction expires."""
        with contextlib.suppress(Exception):
            self.producer.abort_transaction(_ABORT_S)


def flushed(flush: Callable[[float], int], waiting: int, until: float, what: str) -> None:
    """Wait until Kafka has acknowledged all that is `waiting`: a client holds up to a million records, which a slow
    network takes minutes for. As long as some were acknowledged since the last look, but not past `until`, when the
    broker ends the transaction: trying that again would end the same way.
    """
    while waiting:
        left = flush(max(1.0, min(_TIMEOUT_S, until - time.monotonic())))
        if left >= waiting:
            raise KafkaUnreachable(f"{what}: none of {left} was acknowledged for as long as it was waited for")
        if left and time.monotonic() >= until:
            raise Fenced(
                f"{what}: {left} are not acknowledged, and the transaction was open for as long as it may be",
                cause="Kafka takes them more slowly than a batch of this size needs",
                next_command=_TOO_LONG,
            )
        waiting = left


def marks(
    config: dict[str, str], group: str, places: Iterable[Place], within_s: float = _TIMEOUT_S, *, stable: bool = True
) -> dict[Place, Mark]:
    """The group's committed offsets; places without one are left out. An offset in an open transaction is waited for,
    and in the end TransactionOpen is raised. Not so where `stable` is false: then what was committed before counts."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, partition) for topic, partition in places]
    level = {} if stable else {"isolation.level": "read_uncommitted"}
    consumer = connection.consumer({**_group(config, group), **level})
    try:
        with said_by_kafka(f"the offsets of group '{group}' cannot be read"):
            found = _answered(lambda: consumer.committed(asked, timeout=within_s), within_s) if asked else []
    except KafkaUnreachable:  # the client does not say what it has waited for
        held: list[Place] = []
        with contextlib.suppress(KafkaUnreachable):
            held = undecided(config, group, ((each.topic, each.partition) for each in asked)) if stable else []
        if not held:
            raise
        raise TransactionOpen(
            f"the offsets of group '{group}' cannot be read yet",
            cause=f"a transaction is open, and the offset of {', '.join(f'{t}-{p}' for t, p in held[:10])} is "
            f"part of it; {left_open()}",
            next_command="stop the process that writes under this name; or, once it has ended: penstock run FILE",
        ) from None
    finally:
        consumer.close()
    return {(m.topic, m.partition): Mark(m.offset, m.metadata or "") for m in found if m.offset >= 0}


def undecided(config: dict[str, str], group: str, places: Iterable[Place]) -> list[Place]:
    """Where the group's offset is part of a transaction that is open. Kafka answers at once."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    asked = [TopicPartition(topic, partition) for topic, partition in places]
    if not asked:
        return []
    with session(config) as opened:
        answers = opened.client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, asked)], require_stable=True, request_timeout=opened.timeout
        )
        found = opened.answer(answers[group]).topic_partitions or []
    return [(at.topic, at.partition) for at in found if at.error and at.error.name() == "UNSTABLE_OFFSET_COMMIT"]


def left_open(open_for: timedelta = OPEN_FOR) -> str:
    """How long a transaction can last."""
    return (
        f"if its process was killed, the broker aborts it {span(open_for.total_seconds())} after it began (if "
        "`transaction_timeout` has not changed since)"
    )


def set_marks(config: dict[str, str], group: str, marks: dict[Place, Mark]) -> None:
    """Put marks outside of any transaction: for an operator who knows that what they said no longer holds."""
    from confluent_kafka import TopicPartition

    offsets = [TopicPartition(topic, partition, mark.offset, mark.said) for (topic, partition), mark in marks.items()]
    consumer = connection.consumer(_group(config, group))
    try:
        with said_by_kafka(f"the offsets of group '{group}' cannot be written"):
            _answered(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    finally:
        consumer.close()


@contextlib.contextmanager
def said_by_kafka(what: str) -> Iterator[None]:
    """Kafka's errors in our words."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise _translated(error, what) from None


def _group(config: dict[str, str], group: str) -> dict[str, str]:
    return {**config, "group.id": group, "enable.auto.commit": "false", "isolation.level": "read_committed"}


def _answered(ask: Callable[[], T], within_s: float = _TIMEOUT_S) -> T:
    """A coordinator that just moved or starts up says so; it is asked again until it answers."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            said = error.args[0]
            if not (said.retriable() or said.name() in _COORDINATOR_MOVES) or time.monotonic() > deadline:
                raise
            time.sleep(_ASK_AGAIN_S)


def _within(seconds: float, call: Callable[[], None]) -> None:
    """The call, or an error in its place: librdkafka may wait for a coordinator for longer than its own timeout. The
    producer is then left to itself, and the next one fences it."""
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


def _too_much(said: str, count: int) -> SinkFailed:
    return SinkFailed(
        f"Kafka refused {counted(count, 'record')}; nothing of the transaction was written",
        cause=said,
        next_command="if one is too large: raise `max.message.bytes` of the topic above that of the source's",
    )


def _translated(error: Any, what: str) -> PenstockError:
    from confluent_kafka import KafkaError

    said = error.args[0]
    if said.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return _too_much(said.str(), 1)
    if said.name() in _FENCED:
        return Fenced(
            f"{what}: somebody else writes under its name by now",
            cause=said.str(),
            next_command="stop the other process that runs this pipeline; if there is none, the transaction was open "
            f"for too long: {_TOO_LONG}",
        )
    if said.name().endswith("AUTHORIZATION_FAILED") or said.fatal():
        return SinkFailed(
            what,
            cause=said.str(),
            next_command="let this user write to the topic, the group and the transactional id",
        )
    return KafkaUnreachable(what, cause=said.str(), next_command="penstock ps")
