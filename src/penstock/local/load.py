"""Send the records of a recipe to a topic, and keep a ledger of what was acknowledged: `penstock produce`.

The producer is idempotent with acks=all: a record is in the topic once, in order per partition, or its
outcome is not `acknowledged`. The cost of the Python side is one delivery report per record, so that path is
as bare as can be.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.kafka import admin, connection
from penstock.kafka.connection import Config
from penstock.local.load_ledger import ACKNOWLEDGED, FAILED, OUTCOMES, UNKNOWN, LedgerFile, Rows
from penstock.local.payments import GOOD, KINDS, LARGEST, Payments, Recipe, Slice

_PENDING = 255  # no report yet; written to the ledger as `unknown`
_UNKNOWN, _ACKNOWLEDGED, _FAILED = (OUTCOMES.index(o) for o in (UNKNOWN, ACKNOWLEDGED, FAILED))

# Only these mean "certainly not in the topic". Anything else may have been written before the error came.
_NEVER_WRITTEN = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
    }
)

_SLICE = 4096  # records handed over at once; a whole number of them makes a block
# Records. More is slower: 191 k/s with 40,000 and 130 k/s with 100,000, measured on a busy machine.
_IN_FLIGHT = 40_000
_IN_FLIGHT_BYTES = 128 * 1024 * 1024
# librdkafka's own limit would refuse 1 MB; what is too large is the broker's to say.
_LARGEST = LARGEST + 1024 * 1024
_TICK = 0.05  # seconds; how often rate, stop requests and progress are looked at


@dataclass(frozen=True)
class Progress:
    sent: int
    count: int
    seconds: float


@dataclass(frozen=True)
class Report:
    topic: str
    seed: int
    count: int
    """Records asked for."""
    sent: int
    """Records handed to the producer; fewer than `count` when the run was stopped."""
    acknowledged: int
    failed: int
    unknown: int
    kinds: dict[str, int]
    """Acknowledged records per kind, `good` and each kind of poison."""
    void: int
    """Acknowledged good records with status VOID."""
    seconds: float
    rate: float
    """Acknowledged records per second, over all of `seconds`."""
    stopped: str | None
    """Why fewer than `count` were sent: a signal, or the first time-out."""
    first_error: str | None

    @property
    def complete(self) -> bool:
        return self.acknowledged == self.count


@dataclass
class _Run:
    """State of a run: arrays with a place per record, filled by delivery reports."""

    topic: str
    recipe: Recipe
    offsets: array[int] = field(init=False)
    partitions: array[int] = field(init=False)
    outcomes: bytearray = field(init=False)
    rows: Rows = field(init=False)
    reported: Callable[[int, KafkaError | None, Message], None] = field(init=False)
    sent: int = 0
    stopped: str | None = None
    first_error: str | None = None

    def __post_init__(self) -> None:
        n = self.recipe.count
        self.offsets = array("q", [-1]) * n
        self.partitions = array("i", [-1]) * n
        self.outcomes = bytearray([_PENDING]) * n
        self.reported = self.reporter()
        self.rows = Rows(
            self.topic,
            self.recipe.seed,
            partitions=np.frombuffer(self.partitions, np.int32),
            offsets=np.frombuffer(self.offsets, np.int64),
            kinds=np.zeros(n, np.int8),
            void=np.zeros(n, np.bool_),
            outcomes=_Known(np.frombuffer(self.outcomes, np.uint8)),
        )

    def reporter(self) -> Callable[[int, KafkaError | None, Message], None]:
        """What takes the delivery report of one record, given its number; it is called from `poll`."""
        offsets, partitions, outcomes = self.offsets, self.partitions, self.outcomes
        acknowledged = _ACKNOWLEDGED

        def reported(number: int, error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets[number] = message.offset()  # type: ignore[assignment]
                partitions[number] = message.partition()  # type: ignore[assignment]
                outcomes[number] = acknowledged
            else:
                self.refused(number, error)

        return reported

    def refused(self, number: int, error: KafkaError) -> None:
        self.first_error = self.first_error or f"{error.name()}: {error.str()}"
        if error.code() in _NEVER_WRITTEN:
            self.outcomes[number] = _FAILED
            return
        self.outcomes[number] = _UNKNOWN
        # The cluster is gone for longer than the time-out: sending the rest would only add records of unknown
        # fate.
        self.stopped = self.stopped or f"{error.name()}: {error.str()}"

    def report(self, seconds: float) -> Report:
        outcomes = self.rows.outcomes[: self.sent]
        acknowledged = outcomes == _ACKNOWLEDGED
        per_kind = np.bincount(self.rows.kinds[: self.sent][acknowledged], minlength=len(KINDS))
        return Report(
            topic=self.topic,
            seed=self.recipe.seed,
            count=self.recipe.count,
            sent=self.sent,
            acknowledged=int(acknowledged.sum()),
            failed=int((outcomes == _FAILED).sum()),
            unknown=int((outcomes == _UNKNOWN).sum()),
            kinds={kind: int(n) for kind, n in zip(KINDS, per_kind, strict=True) if n or kind == GOOD},
            void=int(self.rows.void[: self.sent][acknowledged].sum()),
            seconds=round(seconds, 3),
            rate=round(int(acknowledged.sum()) / seconds, 1) if seconds else 0.0,
            stopped=self.stopped,
            first_error=self.first_error,
        )


class _Known:
    """The outcomes as the ledger shows them: a record without a report is `unknown`."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def __getitem__(self, where: slice) -> Any:
        raw = self._raw[where]
        return np.where(raw == _PENDING, _UNKNOWN, raw).astype(np.int8)


def produce(
    config: Config,
    topic: str,
    recipe: Recipe,
    *,
    rate: float | None = None,
    ledger: Path | None = None,
    timeout: float = 120,
    on_progress: Callable[[Progress], None] | None = None,
    spec: str = "FILE",
) -> Report:
    """Send the recipe's records, wait for every report, write the ledger. A signal ends it early, in order.

    `rate` is an upper bound in records per second: a run that fell behind does not catch up with a burst.
    `timeout` is how long a record may wait for its acknowledgement; the first that waits longer ends the run.
    """
    admin.require_topics(config, [topic], spec=spec)
    run = _Run(topic, recipe)
    file = LedgerFile(ledger, run.rows) if ledger else None
    producer = connection.producer(
        config,
        enable_idempotence="true",
        acks="all",
        compression_type="lz4",
        # The Java clients' choice: a key has the same partition, whoever sends it.
        partitioner="murmur2_random",
        linger_ms="20",
        batch_size="1000000",
        message_max_bytes=str(_LARGEST),
        delivery_timeout_ms=str(int(timeout * 1000)),
        # Above _IN_FLIGHT and _IN_FLIGHT_BYTES, so that the queue is never full: a batch of which only some
        # records fit would have to be sent again in part, and a key's records could change places.
        queue_buffering_max_messages=str(2 * _IN_FLIGHT),
        queue_buffering_max_kbytes=str(1024 * 1024),
    )
    started = time.monotonic()
    try:
        with _stop_on_signal(run), _no_garbage_collection():
            _send_all(producer, run, file, rate=rate, on_progress=on_progress, started=started)
            _drain(producer, run, timeout)
        seconds = time.monotonic() - started
        if file:
            file.finish(run.sent)
    finally:
        if file:
            file.close()
    return run.report(seconds)


def _send_all(
    producer: Producer,
    run: _Run,
    file: LedgerFile | None,
    *,
    rate: float | None,
    on_progress: Callable[[Progress], None] | None,
    started: float,
) -> None:
    recipe = run.recipe
    payments = Payments(recipe)
    largest = recipe.large or 1
    size = max(1, min(_SLICE, int(rate * _TICK) if rate else _SLICE, _IN_FLIGHT_BYTES // 8 // largest))
    room_for_slice = max(0, min(_IN_FLIGHT, _IN_FLIGHT_BYTES // largest) - size)
    unsettled: list[tuple[int, int]] = []
    due = shown = started
    while run.sent < recipe.count:
        slice_ = payments.slice(run.sent, size)
        while True:
            now = time.monotonic()
            if on_progress and now - shown > 0.2:
                on_progress(Progress(run.sent, recipe.count, now - started))
                shown = now
            if run.stopped:
                return
            if len(producer) > room_for_slice:
                producer.poll(_TICK)
            elif now < due:
                producer.poll(min(_TICK, due - now))
            else:
                break
        first, stop = run.sent, run.sent + len(slice_.values)
        run.rows.kinds[first:stop] = slice_.kinds
        run.rows.void[first:stop] = slice_.void
        if file:
            file.write(first, stop)
            unsettled.append((first, stop))
        run.sent = stop
        _hand_over(producer, run, slice_)
        producer.poll(0)
        if rate:
            # Late by more than a tick: the time is lost, not made up for.
            due = max(due, now - _TICK) + len(slice_.values) / rate
        if file:
            unsettled = [part for part in unsettled if not _settled(run, file, *part)]


def _hand_over(producer: Producer, run: _Run, slice_: Slice) -> None:
    reports = map(partial, [run.reported] * len(slice_.values), range(slice_.first, run.sent))
    messages: list[dict[str, Any]] = [
        {"key": key, "value": value, "callback": report}
        for key, value, report in zip(slice_.keys, slice_.values, reports, strict=True)
    ]
    try:
        taken = producer.produce_batch(run.topic, messages)
    except KafkaException as error:  # the producer as a whole refuses: which records it took is not known
        run.stopped = run.first_error = error.args[0].str()
        return
    if taken < len(messages):
        for number, message in enumerate(messages, slice_.first):
            if "_error" in message:
                run.refused(number, message["_error"])


def _settled(run: _Run, file: LedgerFile, first: int, stop: int) -> bool:
    if run.outcomes.find(_PENDING, first, stop) >= 0:
        return False
    file.write(first, stop)
    return True


def _drain(producer: Producer, run: _Run, timeout: float) -> None:
    """Wait for the reports of what was sent; a stopped run waits 5 s, and gives the rest up."""
    began = time.monotonic()
    while len(producer) and time.monotonic() < began + (0 if run.stopped else timeout) + 5:
        producer.poll(_TICK)
    if len(producer):
        producer.purge()
        producer.flush(5)


@contextmanager
def _stop_on_signal(run: _Run) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run in order: an exception inside a delivery report would lose it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        run.stopped = run.stopped or signal.Signals(number).name

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """With 40,000 reports in flight a full collection is slow, and there are no cycles to find here."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
