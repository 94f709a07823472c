"""Pipelines that keep state between batches: what runs in the stream, and what a batch makes of it.

The stream decodes, judges, and goes through the steps up to the last stateful one. A batch then begins like this:

    1. The rows that came out of the stream are computed, once and all of them, and kept. With them the state of the
       batch is written; so this is done also where every sink has the batch already.
    2. The raw records of the batch are read a second time, as a bounded read of its offsets. Everything else (counts,
       dead letters, sinks over other views, the balance) is made of these, as in every pipeline.
    3. Late records are told by the watermark that the engine used, from its own log: they are counted per step, and are
       a view of their own.

A crash after step 1 leaves state that the replay of the batch writes again: the engine begins from the state that the
batch before it left.

A record that a step before the stateful one fails on fails the stream. It is looked for among the raw records, written
down (`set-aside.json`) and the query started again without it; it becomes a dead letter with its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.batch.bisect import searching, speaks_of_a_value, whole, without
from penstock.batch.output import Outlet
from penstock.batch.source_view import RAW, Inlet, is_one_of, source_views
from penstock.batch.stateful import due, set_aside
from penstock.checkpoint.ledger import StepCount
from penstock.checkpoint.log import SparkLog
from penstock.errors import PenstockError, StepFailed, counted, first_line
from penstock.record import KAFKA, OUT_OF_RANGE, PLACE, Failure, OffsetRange, Position, shortened
from penstock.source import kafka as source
from penstock.spark.operators import Running
from penstock.spec.model import Pipeline
from penstock.spec.python_step import parts
from penstock.spec.stateful import WINDOW, Input, Window, sides
from penstock.spec.stateful_check import changing, depending, would_stay
from penstock.spec.types import quoted
from penstock.transform.python import blame, raised_in
from penstock.transform.sql import columns_behind, row_for_row, views_in
from penstock.transform.steps import Moment, Transform
from penstock.transform.watermark import ahead, late, traceable
from penstock.watch import Report, unheard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

KEEPS_STATE = "its steps keep state between batches, so records are read and decoded a second time, to be counted"
_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # What changed is written per batch, and not the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

OWN_CHECK = "spark.sql.streaming.unsupportedOperationCheck"  # the engine's; see `supported`
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_MOST_AHEAD = 100_000  # records of a batch that SQL dates too far ahead: their positions are kept in the driver


class Replanned(Exception):
    """The plan of the stream is another one from now on: the query has to be started again. Nothing was written."""


@dataclass
class Flow:
    """The stateful part of one pipeline. Made once per start of a run; `started` with each start of its query."""

    pipeline: Pipeline
    transform: Transform
    log: SparkLog
    file: Path  # records that the stream leaves out
    aside: dict[Position, Failure] = field(default_factory=dict)  # of a batch that is not committed
    report: Report = unheard  # who is told of what takes long
    _running: Running = field(default_factory=Running)
    _came_out: int = 0

    @property
    def view(self) -> str:
        return self.transform.keeping[-1].view

    @property
    def emit(self) -> str:
        last = self.transform.keeping[-1].stateful
        return last.emit if last else "append"

    @property
    def beyond(self) -> set[str]:
        """The views that are made of what comes out of the stream, and of what is in it."""
        return set().union(*(depending(self.transform.steps, step.view) for step in self.transform.keeping))

    def moves(self, view: str) -> str:
        """Why the rows of a view are not in the task their records were read in; empty where they may be.

        A batch has such rows from the stream, where every stateful step moves them by its key. Of that the plan of the
        batch says nothing."""
        behind = {name.lower() for name in self.beyond}
        return f"its rows come out of '{self.view}', which keeps state by key" if view.lower() in behind else ""

    def over(self, transform: Transform) -> Flow | None:
        """The same for other steps: `plan` tries them one by one. None where none of these keeps state."""
        return replace(self, transform=replace(transform, moment=None)) if transform.keeping else None

    def stream(self, raw: DataFrame, inlets: Sequence[Inlet], *, ends: bool) -> DataFrame:
        """The plan of the query. `ends`: it is to end when it has caught up. Raises StepFailed where the engine has no
        such plan."""
        spark = raw.sparkSession
        asked = self.pipeline.spark.conf
        # For timers of the clock the engine runs batches without records, one after the other and without end.
        empty = not (ends and due.by_clock(self.transform.keeping))
        for name, value in {**_CONF, _EMPTY_BATCHES: str(empty).lower()}.items():
            if name not in asked:
                spark.conf.set(name, value)
        spark.conf.set(OWN_CHECK, "false")  # whatever was asked for: `supported` does it
        self._running = Running()
        self.aside = set_aside.read(self.file, self.log.query_id() or "", self.log.committed())
        if self.aside:
            raw = raw.where(~is_one_of(self.aside, raw["topic"], raw["partition"], raw["offset"]))
        sources = source_views([inlet.at(None) for inlet in inlets], raw)
        self.supported(sources)
        return self.transform.streamed(sources)

    def check(self, spark: SparkSession, inlets: Sequence[Inlet], outlets: Sequence[Outlet]) -> None:
        """Before the start, over no rows: whether the engine can run the stream, and sinks read what comes out of it.

        Raises StepFailed.
        """
        self.supported(source_views(inlets, _stream_of_nothing(spark)))
        sources = source_views(inlets, spark.createDataFrame([], RAW))
        none = spark.createDataFrame([], self.transform.views(sources)[self.view].schema)
        made = replace(self.transform, moment=Moment(none, 0, 0)).views(sources)
        inner = {step.view.lower() for step in self.transform.keeping[:-1]}
        for outlet in outlets:
            inside = inner & {outlet.view.lower(), *views_in(outlet.rows(made))}
            if inside:
                raise StepFailed(
                    f"sink '{outlet.sink.name}' reads '{min(inside)}', which stays inside the stream",
                    cause=f"only '{self.view}', the last stateful view, comes out of it",
                    next_command=f"make a pipeline of its own for sink '{outlet.sink.name}'",
                    facts={"sink": outlet.sink.name},
                )
            if self.emit != "append":
                self._require_lasting(outlet, made)

    def _require_lasting(self, outlet: Outlet, made: dict[str, DataFrame]) -> None:
        """Where rows are emitted again, a sink's condition must hold for all rows of a key or for none, also behind
        SQL. `check` has seen to it where the sink reads the step itself."""
        sink = self.pipeline.sinks[outlet.sink.name]
        if outlet.where is None or sink.console or sink.memory:
            return
        read = columns_behind(made[outlet.view], outlet.where, made[self.view])
        changed = [name for name in changing(self.transform.keeping[-1]) if name in read]
        if changed:
            raise StepFailed(
                f"`where` of sink '{outlet.sink.name}' is a condition on what changes from one emission to the next",
                cause=f"`emit: {self.emit}` of '{self.view}' gives a row several times, with another '{changed[0]}'",
                next_command=would_stay(sink, changed[0]),
                facts={"sink": outlet.sink.name},
            )

    def keys(self, rows: DataFrame, made: dict[str, DataFrame]) -> tuple[str, ...]:
        """Columns of which a batch has each value once; none where steps behind the stateful one may change that."""
        last = self.transform.keeping[-1].stateful
        if last is None or not row_for_row(rows, made[self.view]) or not set(last.keys) <= set(rows.columns):
            return ()
        # Of a window one end is enough.
        return tuple(name for name in last.keys if name != WINDOW[1]) if isinstance(last, Window) else ()

    def supported(self, sources: dict[str, DataFrame]) -> None:
        """Raise StepFailed where the engine cannot run the stream in this mode, in its words.

        It is asked here, and not when the query starts: it holds sorting for impossible, also where it is done within a
        batch and in front of a step that does not mind. So it is asked about the plan without."""
        from pyspark.errors import PySparkException

        rows = replace(self.transform, ordered=False).streamed(sources)
        spark: Any = rows.sparkSession
        checker = spark._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        try:
            checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), _mode(spark, self.emit))
        except PySparkException as error:
            raise StepFailed(
                f"step '{self.view}' cannot run in a stream",
                cause=first_line(error),
                next_command="change the steps up to it, or its `emit`",
                facts={"view": self.view},
            ) from None

    def starting(self) -> None:
        """Called last before each start of the query, with the lock held."""
        if str(self.pipeline.spark.conf.get(_EMPTY_BATCHES)).lower() != "false":
            due.plan(self.log, self.transform.keeping)

    def started(self, query: StreamingQuery) -> None:
        self._running.started(query)

    def as_of(self, batch: int, inlets: Sequence[Inlet]) -> list[Inlet]:
        """The inlets with the clock of the batch. Called before anything of it is read, so that the second read gives
        the verdicts that the stream gave."""
        return [inlet.at(self.log.clock(batch)) for inlet in inlets]

    @contextmanager
    def taken(self, rows: DataFrame, batch: int, inlets: Sequence[Inlet]) -> Iterator[Transform]:
        """Step 1. The steps of the batch, with what came out of the stream. Raises Replanned."""
        from pyspark import StorageLevel

        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            try:
                self._came_out = kept.count()
            except Exception as error:
                self._set_aside(rows.sparkSession, batch, inlets, error)
                raise
            moment = Moment(kept, self._late_before(batch), self.log.clock(batch))
            yield replace(self.transform, moment=moment)
        finally:
            kept.unpersist()

    def read_again(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Step 2."""
        return source.bounded(spark, self.pipeline, ranges, whole=False)

    def failed(self, batch: int, views: dict[str, str]) -> dict[str, dict[Position, Failure]]:
        """For each sink behind a stateful step: the records of the batch that the stream left out. `views`: what
        each sink reads."""
        some = set_aside.within(self.aside, self.log.ranges(batch))
        return {sink: dict(some) for sink, view in views.items() if view in self.beyond} if some else {}

    def counts(
        self, steps: Transform, sources: dict[str, DataFrame], made: dict[str, DataFrame], batch: int
    ) -> tuple[dict[str, StepCount], dict[Position, Failure]]:
        """Step 3: what became of the rows that were handed to each step, and the records that are dead for the sinks
        behind them, because SQL gave them an event time too far ahead of the clock. Called while the views can be
        read."""
        from pyspark.sql import functions as F

        first, *others = self.transform.keeping
        assert first.stateful is not None
        watermark, clock = self._late_before(batch), self.log.clock(batch)
        came = too_late = untimed = too_far = 0
        dead: dict[Position, Failure] = {}
        if some := set_aside.within(self.aside, self.log.ranges(batch)):
            sources = {view: without(rows, some) for view, rows in sources.items()}
            made = steps.views(sources)
        for at, of in enumerate(sides(first.stateful)):
            rows = next(rows for name, rows in made.items() if name.lower() == of.view.lower())
            never, is_ahead = F.lit(False), ahead(of, clock)
            condition = late(first.stateful, at, watermark)
            found = rows.agg(
                F.count(F.lit(1)).alias("came"),
                F.count_if(never if of.time is None else F.col(quoted(of.time)).isNull()).alias("untimed"),
                F.count_if(never if condition is None else condition & ~is_ahead).alias("late"),
                F.count_if(is_ahead).alias("ahead"),
            ).first()
            assert found is not None
            came, untimed, too_late = came + found["came"], untimed + found["untimed"], too_late + found["late"]
            too_far += found["ahead"]
            if found["ahead"] and traceable(rows, sources):
                if found["ahead"] > _MOST_AHEAD:
                    raise _all_ahead(first.view, of, found["ahead"])
                dead |= _ahead_of_clock(first.view, of, rows.where(is_ahead))
        said = dict(zip([each.view for each in reversed(self.transform.keeping)], self._running.said(), strict=False))
        result = {}
        for step in (first, *others):
            operator = said.get(step.view)
            of_first = {"came": came, "late": too_late, "untimed": untimed, "ahead": too_far} if step is first else {}
            result[step.view] = StepCount(
                **of_first,
                gave=self._came_out if step is self.transform.keeping[-1] else None,
                duplicates=operator.duplicates if operator and step.deduplicate else None,
                cut=operator.late if operator else None,
                held=operator.rows if operator else None,
                bytes=operator.bytes if operator else None,
                watermark=self.log.watermark(batch),
            )
        return result, dead

    def blamed(self, error: BaseException, batch: int | None = None) -> StepFailed | None:
        """What the class of a step raised, in our words; None where it was not the class. `batch`: None where it is not
        known, as when the engine asks the class for its state before the first batch of a query."""
        step = self.transform.keeping[-1]  # no step that keeps state can follow one with a class
        if step.state is None or isinstance(error, PenstockError):
            return None
        cause = raised_in(parts(step.state.processor)[0], whole(error))
        when = "" if batch is None else f" in batch {batch}"
        if cause is None:
            return None
        return StepFailed(
            f"step '{step.view}': {step.state.processor} fails{when}",
            cause=cause,
            next_command=f"correct {step.state.processor}, then: penstock run FILE; nothing of the batch was written",
            facts={"view": step.view},
        )

    def _late_before(self, batch: int) -> int:
        """Rows at or before it were late in this batch: the engine takes the watermark of the batch before."""
        return self.log.watermark(batch - 1) if batch > 0 else 0

    def _set_aside(self, spark: SparkSession, batch: int, inlets: Sequence[Inlet], error: Exception) -> None:
        """Find the records that the stream fails on, and have it started again without them. Returns where the error
        speaks of no record."""
        if not speaks_of_a_value(error):
            if found_out := self.blamed(error, batch):
                raise found_out from error
            return
        ranges = tuple(self.log.ranges(batch))
        known = set_aside.within(self.aside, ranges)
        self.report(searching(batch, ranges))
        found = set_aside.search(self.transform, inlets, self.read_again(spark, ranges), ranges, known, self.report)
        if not found:
            raise self.blamed(error, batch) or StepFailed(
                f"step '{self.view}' fails on a value of a record of batch {batch}",
                cause=blame(str(error)) or first_line(error),
                next_command="let the step before it cope with such values (try_divide, try_cast), then: "
                "penstock run FILE; nothing of the batch was written",
                facts={"view": self.view},
            ) from error
        set_aside.write(self.file, self.log.query_id() or "", batch, {**known, **found})
        raise Replanned from error


def flow(pipeline: Pipeline, transform: Transform, log: SparkLog, directory: Path) -> Flow | None:
    """None for a pipeline that keeps no state."""
    return Flow(pipeline, transform, log, directory / "set-aside.json") if transform.keeping else None


def _all_ahead(view: str, of: Input, number: int) -> StepFailed:
    return StepFailed(
        f"step '{view}': {counted(number, 'record')} of a batch would die, because {of.bound} is not true of them",
        cause=f"SQL makes `{of.time}` of what they hold: most likely in another time zone than theirs",
        next_command=f"correct the step that makes `{of.time}`, or allow more (`ahead`), then: penstock run FILE",
        facts={"view": view, "limit": _MOST_AHEAD},
    )


def _ahead_of_clock(view: str, of: Input, rows: DataFrame) -> dict[Position, Failure]:
    """The records of these rows, and why they are dead."""
    from pyspark.sql import functions as F

    at, said = F.col(KAFKA), F.col(quoted(of.time or "")).cast("string").alias("said")
    return {
        (row[0], row[1], row[2]): Failure(
            OUT_OF_RANGE, shortened(f"step '{view}': not true: {of.bound}; {of.time} = {row['said']}")
        )
        for row in rows.select(*(at[name] for name in PLACE), said).toLocalIterator()
    }


def _stream_of_nothing(spark: SparkSession) -> DataFrame:
    """A stream with the columns of Kafka, to plan with: it is never started."""
    from pyspark.sql import functions as F

    none = spark.readStream.format("rate").load()
    columns = none.sparkSession.createDataFrame([], RAW).schema
    return none.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in columns))


def _mode(spark: Any, emit: str) -> Any:
    kinds = spark._jvm.org.apache.spark.sql.streaming.OutputMode
    return {"append": kinds.Append, "update": kinds.Update, "complete": kinds.Complete}[emit]()
