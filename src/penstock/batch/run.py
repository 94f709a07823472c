"""The path of a record, top to bottom: source -> decode -> contract -> transform -> sinks, dead letters, ledger.

One batch is `Assembly.process`. Its steps, and why a crash between any two of them loses and repeats nothing:

    1. decode and judge every record; nothing is written
    2. sinks, each whole and once: a replay finds the batch already there
    3. dead letters, whole and once: a replay finds them already there
    4. the balance: read = passed + dead + dropped, sinks and dead letters hold what was handed to them
    5. the ledger entry, synced
    6. Spark commits the batch; until then it runs the same offsets under the same batch id again

Steps 1 and 2 go through the engine, or, where no SQL lies between, in one pass through the workers (`one_pass`).
Kafka is read once per batch: the counts of step 4 are taken while the sink writes. Only a batch that has dead letters
is read a second time, to fetch their bytes, unless they go along with the rows (`along`); and one that a step fails on,
to find the records it fails on (`culprits`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, reduce
from typing import TYPE_CHECKING

from penstock import failpoint, record
from penstock.batch import fingerprint, planning, reconcile
from penstock.batch.along import Along, along
from penstock.batch.bisect import Culprits, searching, speaks_of_a_value, without
from penstock.batch.budget import Spending
from penstock.batch.counts import Counted, Handed, Tally
from penstock.batch.failing import failing, lacking
from penstock.batch.first_records import FirstRecords
from penstock.batch.fused.way import Shortcut, shortcut
from penstock.batch.output import Outlet
from penstock.batch.reconcile import unbalanced
from penstock.batch.result import Outcome
from penstock.batch.source_view import Inlet, passed
from penstock.batch.stateful.flow import KEEPS_STATE, Flow, Replanned
from penstock.checkpoint.ledger import Entry, Ledger, StepCount, TopicFact
from penstock.checkpoint.log import SparkLog
from penstock.decode.readers import Readers
from penstock.errors import BatchUnbalanced, DeadLetterBudget
from penstock.record import Batch, Position
from penstock.source.topics import TopicWatch, require_forward
from penstock.spec.model import Pipeline
from penstock.transform.steps import Transform
from penstock.watch import Report, Watch, telling, unheard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.deadletters.dead_letter import DeadLetters
    from penstock.registry.client.rehearsal import PatientRegistry
from penstock.sinks.contract import Incoming, Sink, Written

Write = Callable[..., Written]
_LOCATED = 1_000_000  # offsets: in larger batches the positions of dead records could fill the driver


@dataclass
class Assembly:
    """Everything a batch meets. Made once per start of the query; `process` is called by Spark, batch by batch."""

    pipeline: Pipeline
    transform: Transform
    readers: Readers
    inlets: list[Inlet]
    outlets: list[Outlet]
    dead_letters: DeadLetters
    log: SparkLog
    ledger: Ledger
    topics: TopicWatch
    make_inlets: Callable[[], list[Inlet]]
    began: str  # the start position that the first batch honoured
    accepted: list[str] = field(default_factory=list)  # what the operator accepted for this start
    over: dict[str, str | None] | None = None  # see `settling.over`; the plan is the same for every batch
    uncountable: str = ""  # see `settling.uncountable`
    way: Shortcut | str | None = None  # the short way (`one_pass`), or why not; None: not settled yet
    told: dict[str, Incoming] = field(default_factory=dict)  # by sink: what it has agreed to get
    first: bool = True  # no batch has ended since the start: what the operator accepted is for this one
    replay: bool = True  # the next batch may have been written before: after a start, and after a failure
    took: dict[str, float] = field(default_factory=dict)  # seconds, by sink, of the batch that runs
    budget: Spending | None = None  # how many records may die
    first_records: FirstRecords | None = None  # the same, of a new pipeline that has no budget; None: of another one
    spared: dict[str, set[Position]] = field(default_factory=dict)  # by sink: records it holds already (`replay`)
    flow: Flow | None = None  # the steps that keep state between batches
    steps: dict[str, StepCount] = field(default_factory=dict)  # what became of their rows, in the batch that runs
    in_kafka: bool = True  # records are there to be read again; not so those of a replay
    along: Along | str | None = None  # dead letters share the transactions of rows; or why not
    registering: Callable[[], PatientRegistry] | None = None  # where sinks register their schemas, if they do
    report: Report = unheard  # who is told of searches
    waiting: Report = unheard  # who is told that a batch takes long
    doing: str = ""  # what the batch that runs is at

    def heard_by(self, watch: Watch) -> None:
        """From here on."""
        self.report, self.waiting = watch.warn, watch.waiting
        if self.flow is not None:
            self.flow.report = watch.warn

    def blamed(self, error: BaseException) -> BaseException:
        """The error; where a class of the user's raised it in the stream, what to say of that."""
        return (self.flow.blamed(error) if self.flow else None) or error

    def process(self, raw: DataFrame, batch_id: int) -> Entry:
        """`raw`: the records of the batch, or what came out of the stateful steps (see `state`)."""
        self.doing = "looking at topics and schemas"
        with telling(self.waiting, f"batch {batch_id}", lambda: self.doing):
            return self._whole(raw, batch_id)

    def _whole(self, raw: DataFrame, batch_id: int) -> Entry:
        if self.readers.refresh():
            self.read_anew()
            if self.flow is not None:
                raise Replanned  # the columns in the stream are those it was planned with
        if self.flow is None:
            return self._process(raw, batch_id)
        self.inlets = self.flow.as_of(batch_id, self.inlets)
        with self.flow.taken(raw, batch_id, self.inlets) as self.transform:
            return self._process(self.flow.read_again(raw.sparkSession, self.log.ranges(batch_id)), batch_id)

    def _process(self, raw: DataFrame, batch_id: int) -> Entry:
        ranges = self.log.ranges(batch_id)
        batch = Batch(self.pipeline.name, self.log.query_id() or "", batch_id, tuple(ranges))
        topics = self.topics.facts(r.topic for r in ranges)
        require_forward(ranges)
        expired = self.topics.lost(ranges)  # before anything is read
        if self.first_records is not None and not self._lets_through:
            self.first_records.check(raw.sparkSession, batch, self.inlets)
        if self.transform.begin(raw.sparkSession, batch):
            self.over, self.way = None, None
        if self.way is None:
            self.settle(raw.sparkSession)
        spanned = sum(map(len, ranges))
        locate = spanned <= _LOCATED
        aside: Culprits = self.flow.failed(batch_id, {o.sink.name: o.view for o in self.outlets}) if self.flow else {}
        # Whatever happens, this waits until it is answered: an owner of the dead letters that is taken late would fence
        # the one of the next attempt.
        self.doing = "decoding and judging records"
        with ThreadPoolExecutor(1, "penstock-dead-letters") as beside:
            buried = self._ask_whether_buried(beside, batch)
            if isinstance(self.way, Shortcut):
                outcome = self._short_way(self.way, raw, batch, locate=locate)
            else:
                outcome = self._long_way(raw, batch, topics, aside, locate=locate)
        failpoint.reach("after-sinks", batch_id, raw)
        # 3. dead letters
        self.doing = "writing dead letters"
        self._bury(batch, raw, outcome, buried.result() if buried is not None else outcome.letters_sent_along)
        failpoint.reach("after-dead-letters", batch_id, raw)
        # 4. the balance
        counts = outcome.view_counts(topics)
        loss = self.topics.afterwards(ranges, expired, {view: count.read for view, count in counts.items()})
        entry = Entry(
            pipeline=batch.pipeline,
            query=batch.query,
            batch=batch_id,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            start=self.began,
            ranges=ranges,
            topics=topics,
            views=counts,
            sinks=outcome.sink_counts(self.took, lenient=self._accepts_replay()),
            lost=loss.lost,
            doubtful=loss.doubtful,
            accepted=self.accepted if self.first else [],
            stateful=self.steps,
        )
        reconcile.check(entry)
        # 5. the ledger
        self.ledger.append(entry)
        failpoint.reach("after-ledger", batch_id, raw)
        self.first = self.replay = False
        if self.budget is not None:
            self.budget.spent(entry)
        if self.first_records is not None and self.first_records.took(entry):
            self.first_records = None
        if self.readers.given_up:  # for this batch; the next one that meets an unknown schema waits again
            self.readers.given_up = False
            self.look_up_anew()
        return entry

    def _failing(self, raw: DataFrame, batch: Batch) -> Culprits:
        """The records that a step or a condition fails on, for each sink that they are in the way of."""
        # What comes out of the stateful steps is given: it is the same whatever part of the batch is tried.
        tried = [o for o in self.outlets if not (self.flow and self.flow.moves(o.view))]
        self.report(searching(batch.id, batch.ranges))
        return failing(self.transform, self.inlets, tried, raw, batch.ranges, self.spared, self.report)

    def _long_way(
        self, raw: DataFrame, batch: Batch, topics: dict[str, TopicFact], aside: Culprits, *, locate: bool
    ) -> Outcome:
        """Steps 1 and 2 through the engine; a second time where a step fails, without the records it fails on."""
        try:
            return self._through_the_engine(raw, batch, topics, aside, locate=locate)
        except Exception as error:
            found = self._failing(raw, batch) if speaks_of_a_value(error) else {}
            if not found:
                raise
        self.replay = True  # some sinks may have been written
        failed = {name: {**aside.get(name, {}), **found.get(name, {})} for name in {**aside, **found}}
        return self._through_the_engine(raw, batch, topics, failed, locate=locate)

    def _through_the_engine(
        self, raw: DataFrame, batch: Batch, topics: dict[str, TopicFact], known: Culprits, *, locate: bool
    ) -> Outcome:
        """`known`: records that steps fail on."""
        failed = {name: dict(some) for name, some in known.items()}
        # 1. decode and judge
        if self.over is None:
            self.over = planning.over(self.transform, self.inlets, self.outlets, raw)
        over = self.over
        several = len(self.inlets) > 1 or len(self.outlets) > 1 or None in over.values()
        # With a budget rows are counted, and only then written; what steps bury is looked for before they are.
        shared = several or bool(self.uncountable or self.transform.buries) or self.budget is not None
        posting = self.along if isinstance(self.along, Along) else None
        assert not (posting and shared)  # rows that are kept are decoded in other tasks than those that send
        judged = {i.view: posting.judged(raw, batch) if posting else i.judged(raw) for i in self.inlets}
        tallies = {i.view: Tally(i.contract, judged[i.view], shared=shared, locate=locate) for i in self.inlets}
        sources = {inlet.view: passed(tallies[inlet.view].rows) for inlet in self.inlets}
        made = self.transform.views(sources)
        left_out = {
            o.sink.name: {*failed.get(o.sink.name, ()), *self.spared.get(o.sink.name, ())} for o in self.outlets
        }
        sound = {
            name: self.transform.views({view: without(rows, some) for view, rows in sources.items()})
            for name, some in left_out.items()
            if some
        }
        try:
            counted = {view: tally.result() for view, tally in tallies.items()} if self.budget is not None else {}
            self._afford(batch, raw, counted)
            got = [(o, sound.get(o.sink.name, made)) for o in self.outlets]
            for name, some in lacking(self.transform, got).items():
                failed.setdefault(name, {}).update(some)
            # 2. sinks
            failpoint.reach("before-sinks", batch.id, raw)
            written = {
                o.sink.name: self._into(
                    o.sink,
                    _of_view(batch, topics, over[o.sink.name]),
                    o.rows(views),
                    partial(posting.write, failing=failed.get(o.sink.name, {})) if posting else o.sink.write,
                )
                for o, views in got
            }
            counted = counted or {view: tally.result() for view, tally in tallies.items()}
            if self.flow:
                self.steps, dead = self.flow.counts(self.transform, sources, made, batch.id)
                for o in self.outlets if dead else ():
                    if o.view in self.flow.beyond:
                        failed.setdefault(o.sink.name, {}).update(dead)
        finally:
            for tally in tallies.values():
                tally.release()
        done = {name: said for name, (said, _) in written.items()}
        return Outcome(counted, done, {name: which for name, (_, which) in written.items()}, over, failed)

    def _short_way(self, way: Shortcut, raw: DataFrame, batch: Batch, *, locate: bool) -> Outcome:
        """Steps 1 and 2 in one pass, where no SQL lies between."""
        name, view, began = way.finish.name, way.inlet.view, time.monotonic()
        failpoint.reach("before-sinks", batch.id, raw)
        self.doing = f"writing to sink '{name}'"
        counted, done, handed, which = way.run(
            failpoint.midway("during-sinks", batch.id, raw),
            batch,
            replay=self.replay,
            locate=locate,
            afford=(lambda found: self._afford(batch, raw, {view: found})) if self.budget is not None else None,
        )
        self.took[name] = time.monotonic() - began
        if done.all != handed and not self._accepts_replay():
            raise unbalanced(batch.id, f"rows handed to sink '{name}': {handed:,}, accounted for: {done.all:,}")
        return Outcome({view: counted}, {name: done}, {name: which}, {name: view})

    @property
    def dead_letters_guarantee(self) -> str:
        if self.shared_by is None:
            why = f"; apart from rows, because {self.along}" if isinstance(self.along, str) else ""
            return f"{self.dead_letters.guarantee}{why}"
        transaction, sink = self.shared_by
        return f"exactly-once: in the transaction of {transaction}, together with what sink '{sink}' writes of it"

    @property
    def shared_by(self) -> tuple[str, str] | None:
        """The transaction that holds dead letters together with rows, in words, and the sink whose rows those are."""
        if isinstance(self.way, Shortcut):
            return (self.way.finish.posts, self.way.finish.name) if self.way.finish.posts else None
        return ("their input partition", self.along.sink.name) if isinstance(self.along, Along) else None

    def way_in_words(self) -> str | None:
        if self.way is None:
            return None
        if isinstance(self.way, Shortcut):
            return f"one pass: decode, rules and {self.way.finish.does} in the same Python worker"
        return f"through the engine: {self.way}"

    def read_anew(self) -> None:
        """Make the inlets of the reader schemas of now; what follows from them is settled by the next batch."""
        self.inlets, self.over, self.way, self.along = self.make_inlets(), None, None, None

    def look_up_anew(self) -> None:
        """Make the inlets again with the same columns: only how unknown schemas are looked up is another."""
        self.inlets = self.make_inlets()
        if isinstance(self.way, Shortcut):
            self.way = replace(self.way, inlet=self.inlets[0])
        if isinstance(self.along, Along):
            self.along = replace(self.along, inlet=self.inlets[0])

    def settle(self, spark: SparkSession) -> None:
        """Resolve every rule and every step over no rows, and tell the sinks what they will get: what is wrong shows
        before anything is read."""
        flow = self.flow.over(self.transform) if self.flow else None
        told = planning.incoming(spark, self.pipeline, self.transform, self.inlets, self.outlets, flow)

        def state_agrees() -> None:
            if flow is not None:
                flow.check(spark, self.inlets, self.outlets)

        planning.agree(self.outlets, told, self.registering, state_agrees)
        self.told, self.along = told, None
        first = next(iter(told.values()), None)
        if flow is not None:
            self.way = KEEPS_STATE
        else:
            self.way = shortcut(self.pipeline, self.inlets, self.outlets, first) if first else None
        if first is not None and not isinstance(self.way, Shortcut):
            self.uncountable = planning.uncountable(spark, self.transform, self.inlets, self.outlets)
            if self.in_kafka and flow is None:
                kept = self.uncountable
                self.along = along(self.pipeline, self.transform, self.inlets, self.outlets, kept=kept)

    def warnings(self, spark: SparkSession) -> list[str]:
        """What to say before the first batch, when all is settled."""
        steps = planning.per_batch(spark, self.pipeline, self.transform, self.inlets)
        return steps + planning.losses(self.outlets, self.told)

    def _into(self, sink: Sink, batch: Batch, rows: DataFrame, write: Write) -> tuple[Written, int | None]:
        """What the sink says became of the rows, and the fingerprint of those it holds."""
        began = time.monotonic()
        self.doing = f"writing to sink '{sink.name}'"
        handed = Handed(failpoint.midway("during-sinks", batch.id, rows))
        done = write(batch, handed.rows, replay=self.replay)
        count, which = handed.result()
        self.took[sink.name] = time.monotonic() - began
        if done.all != count and self._accepts_replay():
            return done, None
        if done.all != count:
            raise unbalanced(batch.id, f"rows handed to sink '{sink.name}': {count:,}, accounted for: {done.all:,}")
        if which is not None:
            which -= sum(fingerprint.of_offset(r.topic, r.partition, r.offset) for r in done.rejected)
        return done, which

    def _afford(self, batch: Batch, raw: DataFrame, counted: dict[str, Counted]) -> None:
        """Called when decode and contract are counted and no sink is written. Raises DeadLetterBudget."""
        if self.budget is not None and not self._lets_through:
            self.budget.check(batch.id, raw, self.inlets, counted)

    @property
    def _lets_through(self) -> bool:
        """The operator said that so many records of the batch may die."""
        return self.first and DeadLetterBudget.code in self.accepted

    def _accepts_replay(self) -> bool:
        """The operator said that what a batch wrote before the crash counts, whatever its replay makes of it."""
        return self.first and BatchUnbalanced.code in self.accepted

    def _ask_whether_buried(self, beside: ThreadPoolExecutor, batch: Batch) -> Future[int | None] | None:
        """Whether the batch may have dead letters of an earlier attempt, and how many. To ask Kafka takes up to half a
        second, so it is done while the sinks write. Not where the one sink there is sends them along."""
        if not self.replay or self.shared_by:
            return None
        return beside.submit(self.dead_letters.written, batch)

    def _bury(self, batch: Batch, raw: DataFrame, outcome: Outcome, held: int | None) -> None:
        """Write the dead letters, unless they are there (`held`): of an earlier attempt, or sent along by the sink."""
        if held is None and outcome.dead:
            counted, without_it = outcome.counted, outcome.sinks_without()
            parts = [i.dead_rows(raw, counted[i.view]) for i in self.inlets if counted[i.view].counts.dead]
            for stage, some in ((record.SINK, outcome.rejected), (record.TRANSFORM, outcome.failing)):
                parts += [i.picked_rows(raw, stage, some, without_it) for i in self.inlets if some]
            held = self.dead_letters.write(batch, reduce(lambda a, b: a.unionByName(b), parts))
        if (held or 0) != outcome.dead and not self._accepts_replay():
            raise unbalanced(batch.id, f"records that died: {outcome.dead:,}, dead letters written: {held or 0:,}")


def _of_view(batch: Batch, topics: dict[str, TopicFact], view: str | None) -> Batch:
    """The batch as a sink of one source view sees it: with the offsets of that view's topics only."""
    if view is None:
        return batch
    return replace(batch, ranges=tuple(r for r in batch.ranges if topics[r.topic].view == view))
