"""Running a pipeline: start the query, follow it, end it at a batch boundary, start it again when Kafka was away."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.batch.run import Assembly
from penstock.batch.stateful.flow import Replanned
from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.home import ANOTHER, Home
from penstock.checkpoint.log import SparkLog
from penstock.checkpoint.remembered import Remembering
from penstock.errors import NEW_TOPICS, counted
from penstock.kafka.connection import client_config
from penstock.lifecycle import preconditions
from penstock.lifecycle.rate import Regulator
from penstock.lifecycle.realtime import same_mode
from penstock.lifecycle.restart import Perseverance
from penstock.lifecycle.retry_policy import Patience
from penstock.observe.listeners import looked_on
from penstock.plan import build
from penstock.record import Batch, Known, ends_of
from penstock.source import kafka as source
from penstock.source import start
from penstock.source.position import require_held
from penstock.source.subscription import Subscription, subscribe
from penstock.spark import session
from penstock.spec.model import Every, Pipeline
from penstock.spec.real_time import batch_of
from penstock.spec.start import start_text_of
from penstock.transform.state_limits import require_same_steps
from penstock.watch import CHECKING, ENGINE, RESOLVING, StopRequest, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


_POLL_S = 0.1


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
        from penstock.lifecycle.realtime import run as realtime

        realtime.run(pipeline, until_caught_up=until_caught_up, accept=accept, watch=watch, stop=stop)
        return
    watch, stop = watch or Watch(), stop or StopRequest()
    home = Home.of(pipeline)
    ends = until_caught_up or pipeline.trigger == "available-now"
    with home.held(ANOTHER), looked_on(pipeline, home, watch, lambda: ends and not stop.asked) as watch:
        watch.starting(CHECKING)
        preconditions.check(home, pipeline.name, frozenset(accept))
        same_mode.check(home, pipeline)
        attempts = Attempts(home)
        attempts.check(frozenset(accept))
        SparkLog(home.spark).remove_lone_checksums()
        assembly = build.assembly(pipeline, accepted=accept)
        bear = Perseverance(home, watch, stop, Patience.of(pipeline), Disks.of(pipeline, home))
        bear.listen(assembly)
        subscription = subscribed(pipeline, assembly, watch)
        prepare(assembly, frozenset(accept))
        report_ignored_start(pipeline, assembly, watch)
        require_same_steps(pipeline, home)
        require_held(pipeline, assembly.log, subscription.topics)
        begin = start.starting_offsets(client_config(pipeline), pipeline.source, subscription.topics, assembly.log)
        watch.starting(ENGINE)
        spark = session.start(pipeline, home.logs, waiting=watch.waiting)
        watch.starting(RESOLVING)
        assembly.settle(spark)
        for said in assembly.warnings(spark):
            watch.warn(said)
        watch.started(pipeline, home)

        def query(batches: _Batches) -> StreamingQuery:
            cap = batches.regulator.starting(batches.assembly.log)
            raw = source.stream(spark, pipeline, subscription, begin, cap=cap, waits=not ends)
            flow = batches.assembly.flow
            rows = flow.stream(raw, batches.assembly.inlets, ends=ends) if flow else raw
            if flow:
                flow.starting()  # after the regulator has looked: a batch that this run plans is no replay
            started = _start(rows, pipeline, home, batches, ends, flow.emit if flow else "append")
            batches.regulator.started(started)
            if flow:
                flow.started(started)
            return started

        remember = Remembering(home, pipeline)
        batches = _Batches(assembly, bear, Regulator(pipeline.rate, watch.decided, watch.warn), attempts, remember)
        try:
            _keep_running(query, batches, bear)
        except BaseException as error:
            attempts.ended(error)
            raise
        remember()
        attempts.ended()


def prepare(assembly: Assembly, accepted: frozenset[str]) -> None:
    """Let sinks and dead letters compare what they hold with what checkpoint and ledger know."""
    last, planned = assembly.ledger.last_batch(), assembly.log.planned()
    newest = assembly.ledger.last()
    if last and newest and newest.is_seek and newest.batch == planned:
        planned = last.batch  # a seek is no batch that a sink could hold
    now = newest.topics if newest else {}
    batch = Batch(assembly.pipeline.name, assembly.log.query_id() or "", 0)
    for outlet in assembly.outlets:
        held = last if last and outlet.sink.name in last.sinks else None
        same = [r for r in held.ranges if now.get(r.topic) == held.topics[r.topic]] if held else []
        ends = ends_of(same)  # not of a topic that was made again since
        outlet.sink.prepare(batch, Known(held.batch if held else None, planned, ends), accepted)
    assembly.dead_letters.prepare(batch, Known(None, planned), accepted)


def subscribed(pipeline: Pipeline, assembly: Assembly, watch: Watch) -> Subscription:
    """The topics as they are now; those read before must still be the same ones."""
    config, known = client_config(pipeline), assembly.topics.known
    found = subscribe(config, pipeline.source, known, accept_new=NEW_TOPICS in assembly.accepted)
    assembly.topics.facts(known.keys() & found.topics.keys())
    if found.held:
        watch.warn(held_back(found.held))
    return found


def held_back(topics: Iterable[str]) -> str:
    """What to say of topics that wait for somebody to let them in."""
    names = ", ".join(topics)
    return f"held back, because they are new: {names}; to read them: penstock run FILE --accept {NEW_TOPICS}"


def report_ignored_start(pipeline: Pipeline, assembly: Assembly, watch: Watch) -> None:
    """S4: the start position counts once. A change afterwards must not look as if it had an effect."""
    last = assembly.ledger.last()
    if last and (began := start_text_of(last.start)) != pipeline.source.start_text():
        watch.warn(
            f"`start: {pipeline.source.start_text()}` has no effect: this pipeline began with `{began}` and has "
            f"processed {counted(last.batch + 1, 'batch', 'batches')}; the checkpoint owns the offsets"
        )


def _keep_running(query: Callable[[_Batches], StreamingQuery], batches: _Batches, bear: Perseverance) -> None:
    while True:
        try:
            if not _follow(query(batches), batches, bear.stop):
                return
            batches = batches.again(replace(batches.assembly, replay=True))  # with another cap
        except Exception as raised:
            renewed = bear.after_failure(batches.failure or raised, batches.assembly)
            if renewed is None:
                return
            batches = batches.again(renewed)


class _Batches:
    """What Spark calls for every batch, in a thread of its own."""

    def __init__(
        self, assembly: Assembly, bear: Perseverance, regulator: Regulator, attempts: Attempts, remember: Remembering
    ) -> None:
        self.assembly, self.bear = assembly, bear
        self.regulator, self.attempts, self.remember = regulator, attempts, remember
        self.failure: BaseException | None = None
        self.active = threading.Lock()
        self.held_back = False

    def again(self, assembly: Assembly) -> _Batches:
        """For the next start of the query."""
        return _Batches(assembly, self.bear, self.regulator, self.attempts, self.remember)

    def __call__(self, raw: DataFrame, batch_id: int) -> None:
        with self.active:
            if self.bear.stop.asked or self.regulator.restart:
                self.held_back = True
                raise HeldBack  # returning would let Spark commit a batch that was never written
            self.regulator.batch_begins()
            self.attempts.begin(batch_id)
            self.remember()  # nothing of the batch has been touched yet, and the start is behind us
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
        seconds = time.monotonic() - began
        self.bear.after_batch(entry, seconds)
        self.regulator.batch_done(entry, seconds)  # before this returns: then Spark plans the next batch


def _while_there(batches: _Batches) -> Callable[[DataFrame, int], None]:
    """The engine keeps what it is given until it collects its garbage, and nobody knows when. With `batches` it would
    keep the clients of a query that is over, and every start of the query adds some."""
    known = weakref.ref(batches)

    def call(raw: DataFrame, batch_id: int) -> None:
        found = known()
        if found is None:
            raise HeldBack
        found(raw, batch_id)

    return call


def _start(
    rows: DataFrame,
    pipeline: Pipeline,
    home: Home,
    batches: _Batches,
    ends: bool,
    emit: str,
) -> StreamingQuery:
    writer = rows.writeStream.queryName(pipeline.name).foreachBatch(_while_there(batches)).outputMode(emit)
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
