"""Running a pipeline: start the query, follow it, end it at a batch boundary, start it again when Kafka was away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.home import Home
from penstock.errors import EngineFailed, PenstockError, RegistryUnreachable
from penstock.kafka.connection import client_config
from penstock.record import Batch, Known
from penstock.runtime import build, guard, remembered, same_mode, session
from penstock.runtime.assemble import Assembly
from penstock.runtime.failure import translate
from penstock.runtime.onlookers import looked_on
from penstock.runtime.regulate import Regulator
from penstock.runtime.state_limits import require_same
from penstock.runtime.stateful import Replanned
from penstock.runtime.watch import StopRequest, Watch
from penstock.source import kafka as source
from penstock.source import start
from penstock.source.subscription import Subscription, subscribe
from penstock.spec.model import Every, Pipeline
from penstock.spec.real_time import batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


_POLL_S = 0.1
_BACK_OFF_S = (1, 2, 5, 10, 20, 30)  # a broker restart takes seconds; past these the last one repeats
_RETRIES = 20  # about eight minutes without a single finished batch; then a person should look


class HeldBack(Exception):
    """A batch that began after a stop was asked for. Nothing of it was touched; it runs at the next start."""


def run(
    pipeline: Pipeline,
    *,
    until_caught_up: bool = False,
    accept: Collection[str] = (),
    watch: Watch | None = None,
    stop: StopRequest | None = None,
) -> None:
    """Run until stopped, or with `until_caught_up` until everything that is in Kafka now is processed.

    Raises a PenstockError when the pipeline cannot go on. What was committed stays; the rest is read again next time.
    """
    if batch_of(pipeline.trigger) is not None:
        from penstock.runtime import realtime

        realtime.run(pipeline, until_caught_up=until_caught_up, accept=accept, watch=watch, stop=stop)
        return
    watch, stop = watch or Watch(), stop or StopRequest()
    home = build.home(pipeline)
    with home.held(), looked_on(pipeline, home, watch) as watch:
        guard.check(home, pipeline.name, frozenset(accept))
        same_mode.check(home, pipeline)
        attempts = Attempts(home)
        attempts.check(frozenset(accept))
        assembly = build.assembly(pipeline, accepted=accept)
        assembly.readers.heard_by(watch.warn)
        assembly.transform.heard_by(watch)
        subscription = subscribed(pipeline, assembly, watch)
        prepare(assembly, frozenset(accept))
        report_ignored_start(pipeline, assembly, watch)
        require_same(pipeline, home)
        remembered.write(home, pipeline)
        spark = session.start(pipeline, home.logs)
        assembly.settle(spark)
        watch.started(pipeline, home)
        begin = start.starting_offsets(client_config(pipeline), pipeline.source, subscription.topics)
        ends = until_caught_up or pipeline.trigger == "available-now"

        def query(batches: _Batches) -> StreamingQuery:
            cap = batches.regulator.starting(batches.assembly.log)
            raw = source.stream(spark, pipeline, subscription, begin, cap=cap, waits=not ends)
            flow = batches.assembly.flow
            rows = flow.stream(raw, batches.assembly.inlets) if flow else raw
            started = _start(rows, pipeline, home, batches, ends, flow.emit if flow else "append")
            batches.regulator.started(started)
            if flow:
                flow.started(started)
            return started

        batches = _Batches(assembly, watch, stop, Regulator(pipeline.rate, watch.decided, watch.warn), attempts)
        try:
            _keep_running(query, batches, home)
        except BaseException as error:
            attempts.ended(error)
            raise
        attempts.ended()


def prepare(assembly: Assembly, accepted: frozenset[str]) -> None:
    """Let sinks and dead letters compare what they hold with what checkpoint and ledger know."""
    last, planned = assembly.ledger.last_batch(), assembly.log.planned()
    batch = Batch(assembly.pipeline.name, assembly.log.query_id() or "", 0)
    for outlet in assembly.outlets:
        held = last if last and outlet.sink.name in last.sinks else None
        ends = {(r.topic, r.partition): r.end for r in held.ranges} if held else {}
        outlet.sink.prepare(batch, Known(held.batch if held else None, planned, ends), accepted)
    assembly.dead_letters.prepare(batch, Known(None, planned), accepted)


def subscribed(pipeline: Pipeline, assembly: Assembly, watch: Watch) -> Subscription:
    """The topics as they are now; those read before must still be the same ones."""
    config, known = client_config(pipeline), assembly.topics.known
    found = subscribe(config, pipeline.source, known, accept_new="new-topics" in assembly.accepted)
    assembly.topics.facts(known.keys() & found.topics.keys())
    if found.held:
        watch.warn(f"held back, because they are new: {', '.join(found.held)}; to read them: --accept new-topics")
    return found


def report_ignored_start(pipeline: Pipeline, assembly: Assembly, watch: Watch) -> None:
    """S4: the start position counts once. A change afterwards must not look as if it had an effect."""
    last = assembly.ledger.last()
    if last and last.start != pipeline.source.start_text():
        watch.warn(
            f"`start: {pipeline.source.start_text()}` has no effect: this pipeline began with `{last.start}` and has "
            f"processed {last.batch + 1} batches; the checkpoint owns the offsets"
        )


def _keep_running(query: Callable[[_Batches], StreamingQuery], batches: _Batches, home: Home) -> None:
    attempt, since, watch, stop = 0, 0.0, batches.watch, batches.stop
    while True:
        assembly = batches.assembly
        try:
            if not _follow(query(batches), batches, stop):
                return
            batches = batches.again(replace(assembly, replay=True))  # with another cap
        except Exception as raised:
            error = translate(batches.failure or raised, home.logs / session.LOG_NAME)
            if session.gone():
                raise _gone(error, home) from raised
            attempt = 1 if batches.finished else attempt + 1
            if error.retryable and stop.asked:
                return  # nothing of the batch counts yet: it runs at the next start
            since = time.monotonic() if attempt == 1 else since
            waiting = isinstance(error, RegistryUnreachable) and not _waited_for(assembly, since)
            if not error.retryable or (attempt > _RETRIES and not waiting):
                raise error from raised
            if isinstance(error, RegistryUnreachable) and not waiting:
                watch.warn("the registry stayed away: `unreadable` now decides about records whose schema is not known")
                assembly.readers.given_up = True
                assembly.look_up_anew()
            wait = _BACK_OFF_S[min(attempt, len(_BACK_OFF_S)) - 1]
            watch.retrying(error, wait)
            if stop.asked_within(wait):
                return
            # In doubt are what it had open, and whether the batch was written. Schemas are those of the start.
            renewed = replace(assembly, dead_letters=build.dead_letters(assembly.pipeline), replay=True)
            batches = batches.again(renewed)


def _gone(error: PenstockError, home: Home) -> EngineFailed:
    return EngineFailed(
        "the engine is gone: its process ended in the middle of a batch",
        cause=f"it was killed, or ran out of memory ({error.cause or error.what})",
        next_command=f"penstock run FILE; what the engine said last is in {home.logs / session.LOG_NAME}",
    )


def _waited_for(assembly: Assembly, since: float) -> bool:
    """Whether the registry was away for longer than the spec waits for it."""
    registry = assembly.pipeline.registry
    return registry is not None and time.monotonic() - since > registry.wait.total_seconds()


class _Batches:
    """What Spark calls for every batch, in a thread of its own."""

    def __init__(
        self, assembly: Assembly, watch: Watch, stop: StopRequest, regulator: Regulator, attempts: Attempts
    ) -> None:
        self.assembly, self.watch, self.stop = assembly, watch, stop
        self.regulator, self.attempts = regulator, attempts
        self.failure: BaseException | None = None
        self.active = threading.Lock()
        self.finished = 0
        self.held_back = False

    def again(self, assembly: Assembly) -> _Batches:
        """For the next start of the query."""
        return _Batches(assembly, self.watch, self.stop, self.regulator, self.attempts)

    def __call__(self, raw: DataFrame, batch_id: int) -> None:
        with self.active:
            if self.stop.asked or self.regulator.restart:
                self.held_back = True
                raise HeldBack  # returning would let Spark commit a batch that was never written
            self.regulator.batch_begins()
            self.attempts.begin(batch_id)
            began = time.monotonic()
            try:
                entry = self.assembly.process(raw, batch_id)
            except Replanned:
                self.held_back = True
                raise
            except BaseException as error:
                self.failure = error
                raise
            self.attempts.done(batch_id)
            self.finished += 1
        seconds = time.monotonic() - began
        self.watch.batch_done(entry, seconds)
        self.regulator.batch_done(entry, seconds)  # before this returns: then Spark plans the next batch
        for lost in entry.lost:
            self.watch.warn(f"{len(lost):,} offsets expired before they were read: {lost}")


def _start(
    rows: DataFrame,
    pipeline: Pipeline,
    home: Home,
    batches: Callable[[DataFrame, int], None],
    ends: bool,
    emit: str,
) -> StreamingQuery:
    writer = rows.writeStream.queryName(pipeline.name).foreachBatch(batches).outputMode(emit)
    writer = writer.option("checkpointLocation", str(home.spark))
    if ends:
        writer = writer.trigger(availableNow=True)
    elif isinstance(pipeline.trigger, Every):
        writer = writer.trigger(processingTime=f"{round(pipeline.trigger.every.total_seconds() * 1000)} milliseconds")
    return writer.start()


def _follow(query: StreamingQuery, batches: _Batches, stop: StopRequest) -> bool:
    """Wait for the query to end; when asked to stop, end it once the running batch is committed. Whether it has to be
    started again, with another cap."""
    cut = False
    try:
        while query.isActive:
            if (stop.asked or batches.regulator.restart) and _at_boundary(batches):
                cut = True
                break
            time.sleep(_POLL_S)
    finally:
        query.stop()
    error = query.exception()
    if error is not None and not batches.held_back:
        raise error
    return (cut or batches.held_back) and not stop.asked


def _at_boundary(batches: _Batches) -> bool:
    """No batch is running, and Spark has committed the last one that wrote its ledger entry."""
    if not batches.active.acquire(blocking=False):
        return False
    try:
        last, committed = batches.assembly.ledger.last(), batches.assembly.log.committed()
        return last is None or (committed is not None and committed >= last.batch)
    finally:
        batches.active.release()
