"""Running a pipeline in real-time mode: at least once, in milliseconds, from Kafka to Kafka.

Spark runs long batches (five minutes by default) in which every record is sent on as it comes. Offsets are written when
a batch ends. So:

    1. a batch ends; Spark writes its offsets and its commit
    2. its ledger entry is appended, with the counts that the engine made on the way

A crash or a stop in a batch: the next start begins where the last batch ended, and what was sent since is sent again.
Nothing is lost, and nothing says which records came twice. A crash between 1 and 2, or within 1: see `mend`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.batch import reconcile
from penstock.batch.run import Assembly
from penstock.batch.source_view import RAW
from penstock.checkpoint import remembered
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.files import put
from penstock.checkpoint.home import ANOTHER, Home
from penstock.checkpoint.log import SparkLog
from penstock.errors import NotInRealTime, PenstockError, counted
from penstock.kafka.connection import client_config, spark_options
from penstock.lifecycle import diagnosis, preconditions, stream
from penstock.lifecycle.realtime import plan, same_mode
from penstock.lifecycle.restart import Perseverance
from penstock.lifecycle.retry_policy import Patience
from penstock.observe.listeners import looked_on
from penstock.plan import build
from penstock.source import kafka as source
from penstock.source import start
from penstock.source.position import require_held
from penstock.spark import session
from penstock.spec.model import Pipeline
from penstock.spec.real_time import batch_of
from penstock.watch import CHECKING, ENGINE, RESOLVING, StopRequest, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

GUARANTEE = (
    "at-least-once: real-time mode sends records on before their batch ends; after a stop or a crash those of the "
    "batch that was cut off are sent again"
)
WAY = "real-time: every record through the engine's own expressions and on to Kafka; no Python worker runs"
_POLL_S = 0.1
_SHORTEST_CONF = "spark.sql.streaming.realTimeMode.minBatchDuration"
# A pause of the collector is the latency of every record that waits for it.
_COLLECTOR = "-XX:+UseG1GC -XX:MaxGCPauseMillis=20"
# A record is decoded, judged and encoded by one method that the engine generates: of four fields it has 30,000 bytes.
# Java leaves methods above 8,000 uncompiled, and interprets them for ever.
_COMPILED = "-XX:-DontCompileHugeMethods"


def run(
    pipeline: Pipeline, *, until_caught_up: bool, accept: Collection[str], watch: Watch | None, stop: StopRequest | None
) -> None:
    """Run until stopped. Called by `supervise.run` for pipelines with this trigger."""
    watch, stop, accepted = watch or Watch(), stop or StopRequest(), frozenset(accept)
    if until_caught_up:
        raise NotInRealTime(
            "a pipeline in real-time mode does not end once it has caught up",
            cause="its batches last a fixed time, and their offsets are written when they end",
            next_command="penstock run FILE --from earliest --to latest reads a range, in ordinary batches",
        )
    home = Home.of(pipeline)
    with home.held(ANOTHER), looked_on(pipeline, home, watch, lambda: False) as watch:
        watch.starting(CHECKING)
        same_mode.check(home, pipeline)
        assembly = build.assembly(pipeline, accepted=accept)
        bear = Perseverance(home, watch, stop, Patience.of(pipeline), Disks.of(pipeline, home))
        bear.listen(assembly)
        mend(home, assembly, watch)
        preconditions.check(home, pipeline.name, accepted)
        SparkLog(home.spark).remove_lone_checksums()
        subscription = stream.subscribed(pipeline, assembly, watch)
        stream.prepare(assembly, accepted)
        stream.report_ignored_start(pipeline, assembly, watch)
        require_held(pipeline, assembly.log, subscription.topics)
        partitions = sum(facts.partitions for facts in subscription.topics.values())
        watch.starting(ENGINE)
        spark = session.start(suited(pipeline, partitions), home.logs, waiting=watch.waiting)
        watch.starting(RESOLVING)
        require_tasks(spark, partitions)
        settle(spark, assembly)
        begin = start.starting_offsets(client_config(pipeline), pipeline.source, subscription.topics, assembly.log)
        query = _query_id(home, pipeline)
        watch.started(pipeline, home)
        remember = remembered.Remembering(home, pipeline)

        def started(assembly: Assembly) -> StreamingQuery:
            raw = source.live(spark, pipeline, subscription, begin)
            running = _start(plan.outgoing(assembly, raw, query), pipeline, home)
            remember()
            return running

        _keep_running(started, assembly, bear)


def settle(spark: SparkSession, assembly: Assembly) -> None:
    """Resolve everything over no rows, in the ordinary way and in that of this mode. Raises NotInRealTime, and what
    `Assembly.settle` raises. Also called by `plan`."""
    assembly.settle(spark)
    plan.outgoing(assembly, spark.createDataFrame([], RAW), "")


def suited(pipeline: Pipeline, partitions: int) -> Pipeline:
    """With a task for every partition at once, on a local master, and a collector with short pauses where tasks run."""
    asked = pipeline.spark
    conf = dict(asked.conf)
    for process in ("driver", "executor"):
        name = f"spark.{process}.extraJavaOptions"
        ours = _COMPILED if session.collector_chosen(conf, process) else f"{_COMPILED} {_COLLECTOR}"
        conf[name] = f"{ours} {conf.get(name, '')}".strip()  # what the spec says comes last, and counts
    changes: dict[str, Any] = {"conf": conf}
    if asked.master == "local[*]":  # a number was chosen by somebody
        changes["master"] = f"local[{max(session.cores(asked.master), partitions)}]"
    return pipeline.model_copy(update={"spark": asked.model_copy(update=changes)})


def require_tasks(spark: SparkSession, partitions: int) -> None:
    """A partition whose task waits for another one to end would wait for as long as a batch lasts."""
    context: Any = spark.sparkContext
    if context.master.startswith("local") and context.defaultParallelism < partitions:
        raise NotInRealTime(
            f"{partitions} partitions are read, and the engine runs "
            f"{counted(context.defaultParallelism, 'task')} at once",
            cause="in real-time mode every partition has a task that runs all the time",
            next_command=f"give it more: `spark: {{master: 'local[{partitions}]'}}`",
        )


def mend(home: Home, assembly: Assembly, watch: Watch) -> None:
    """What a crash at the end of a batch leaves: offsets without a commit, which say nothing that the next batch does
    not find out itself and go; or a commit without a ledger entry, which is written now. Its counts are gone."""
    pending = assembly.log.pending()
    if pending is not None and same_mode.is_real_time(home):
        for name in (f"{pending}", f".{pending}.crc"):
            (home.spark / "offsets" / name).unlink(missing_ok=True)
    batch, last, query = assembly.log.committed(), assembly.ledger.last(), assembly.log.query_id()
    if batch is None or not same_mode.mendable(home) or (last is not None and last.query != query):
        return  # if something is missing, it is more than a crash can have taken: the guard will say so
    assembly.ledger.append(plan.entry_of(assembly, batch, None))
    watch.warn(f"batch {batch} ended just before a crash: its offsets are in the ledger, its counts are not known")


def _query_id(home: Home, pipeline: Pipeline) -> str:
    """The id of the query, which its dead letters carry: written down before Spark would make one. Before that, the
    spec: until there is a ledger entry, only that says the checkpoint is of this mode."""
    known = SparkLog(home.spark).query_id()
    if known is not None:
        return known
    remembered.write(home, pipeline)
    made = str(uuid.uuid4())
    home.spark.mkdir(parents=True, exist_ok=True)
    put(home.spark / "metadata", json.dumps({"id": made}).encode())
    return made


def _start(rows: DataFrame, pipeline: Pipeline, home: Home) -> StreamingQuery:
    batch = batch_of(pipeline.trigger)
    assert batch is not None
    milliseconds = round(batch / timedelta(milliseconds=1))
    spark: Any = rows.sparkSession
    spark.conf.set(_SHORTEST_CONF, str(min(milliseconds, 5000)))
    writer: Any = (
        rows.writeStream.queryName(pipeline.name)
        .format("kafka")
        .outputMode("update")
        .options(**spark_options(pipeline), includeHeaders="true")
        .option("checkpointLocation", str(home.spark))
    )
    # PySpark has no word for this trigger yet; the writer behind it has.
    writer._jwrite.trigger(spark._jvm.org.apache.spark.sql.streaming.Trigger.RealTime(f"{milliseconds} milliseconds"))
    return writer.start()  # type: ignore[no-any-return]


def _keep_running(started: Callable[[Assembly], StreamingQuery], assembly: Assembly, bear: Perseverance) -> None:
    while True:
        try:
            _follow(started(assembly), assembly, bear)
            return
        except Exception as raised:
            renewed = bear.after_failure(raised, assembly)
            if renewed is None:
                return
            assembly = renewed


def _follow(query: StreamingQuery, assembly: Assembly, bear: Perseverance) -> None:
    """Write down every batch that ends; when asked to stop, end at once: a batch may last for minutes."""
    last = assembly.ledger.last()
    known = -1 if last is None else last.batch
    try:
        while query.isActive and not bear.stop.asked:
            known = _write_down(query, assembly, bear, known)
            time.sleep(_POLL_S)
    finally:
        query.stop()
    error = query.exception()
    _write_down(query, assembly, bear, known)
    if error is not None and not bear.stop.asked:
        raise error
    if bear.stop.asked:
        bear.watch.warn("stopped in the middle of a batch: what it has sent will be sent again by the next start")


def _write_down(query: StreamingQuery, assembly: Assembly, bear: Perseverance, known: int) -> int:
    """The ledger entries of batches that Spark has committed since the last look; `known`: the last batch that has one.
    Returns the last one that has one now. Called all the time, so it must not take a core from the records: it looks at
    one directory, and reads no ledger."""
    committed = assembly.log.committed()
    if committed is None or committed <= known:
        return known
    told = {each["batchId"]: each for each in (json.loads(each.json) for each in query.recentProgress)}
    for batch in range(known + 1, committed + 1):
        progress = told.get(batch)
        if progress is None:
            return batch - 1  # it is told after the commit, and will be there at the next look
        entry = plan.entry_of(assembly, batch, _counted(progress))
        reconcile.check(entry)
        assembly.ledger.append(entry)
        assembly.first = False
        bear.after_batch(entry, progress["batchDuration"] / 1000)
    return committed


def _counted(progress: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = progress.get("observedMetrics", {}).get(plan.OBSERVED)
    return found


def problems(spark: SparkSession, assembly: Assembly, partitions: int | None) -> list[PenstockError]:
    """For `plan`: what a start would end with, once everything that is the same in every mode is sound."""
    found = diagnosis.of_sinks(assembly, lambda part: settle(spark, part))
    master = assembly.pipeline.spark.master
    asked = re.fullmatch(r"local\[(\d+)(?:,.*)?\]", master)
    if asked and partitions is not None and int(asked[1]) < partitions:
        found.append(
            NotInRealTime(
                f"{partitions} partitions are read, and `{master}` runs {counted(int(asked[1]), 'task')} at once",
                cause="in real-time mode every partition has a task that runs all the time",
                next_command=f"give it more: `spark: {{master: 'local[{partitions}]'}}`, or leave it out",
            )
        )
    return found
