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
is read a second time, to fetch their bytes; and one that a step fails on, to find the records it fails on (`culprits`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING

from penstock import failpoint, record
from penstock.checkpoint.ledger import Entry, Ledger, SinkCount, StepCount, TopicFact
from penstock.checkpoint.log import SparkLog
from penstock.errors import BatchUnbalanced, DeadLetterBudget
from penstock.record import Batch, Failure
from penstock.runtime import balance, fingerprint
from penstock.runtime.balance import unbalanced
from penstock.runtime.budget import Spending
from penstock.runtime.culprits import culprits, speaks_of_a_value, without
from penstock.runtime.inlet import RAW, Inlet, Position, all_views, passed, repeated, source_views
from penstock.runtime.one_pass import Shortcut, shortcut
from penstock.runtime.outlet import Outlet
from penstock.runtime.readers import Readers
from penstock.runtime.stateful import KEEPS_STATE, Flow, Replanned
from penstock.runtime.tally import Counted, Handed, Tally
from penstock.runtime.topics import TopicWatch
from penstock.sink.contract import Incoming
from penstock.spec.model import Pipeline
from penstock.transform.enrich import feeds
from penstock.transform.sql import moved, row_for_row
from penstock.transform.steps import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.route.dead_letter import DeadLetters
    from penstock.sink.contract import Sink, Written

Culprits = dict[str, dict[Position, Failure]]
"""By sink: the records that its steps or its condition fail on."""
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
    over: dict[str, str | None] | None = None  # see `_over`; the plan is the same for every batch
    way: Shortcut | str | None = None  # the short way (`one_pass`), or why not; None: not settled yet
    first: bool = True  # no batch has ended since the start: what the operator accepted is for this one
    replay: bool = True  # the next batch may have been written before: after a start, and after a failure
    took: dict[str, float] = field(default_factory=dict)  # seconds, by sink, of the batch that runs
    budget: Spending | None = None  # how many records may die
    spared: dict[str, set[Position]] = field(default_factory=dict)  # by sink: records it holds already (`replay`)
    flow: Flow | None = None  # the steps that keep state between batches
    steps: dict[str, StepCount] = field(default_factory=dict)  # what became of their rows, in the batch that runs

    def process(self, raw: DataFrame, batch_id: int) -> Entry:
        """`raw`: the records of the batch, or what came out of the stateful steps (see `stateful`)."""
        if self.readers.refresh():
            self.read_anew()
            if self.flow is not None:
                raise Replanned  # the columns in the stream are those it was planned with
        if self.flow is None:
            return self._process(raw, batch_id)
        with self.flow.taken(raw, batch_id, self.inlets) as self.transform:
            return self._process(self.flow.read_again(raw.sparkSession, self.log.ranges(batch_id)), batch_id)

    def _process(self, raw: DataFrame, batch_id: int) -> Entry:
        ranges = self.log.ranges(batch_id)
        batch = Batch(self.pipeline.name, self.log.query_id() or "", batch_id, tuple(ranges))
        topics = self.topics.facts(r.topic for r in ranges)
        lost = self.topics.lost(ranges)  # before anything is read
        if self.transform.begin(raw.sparkSession, batch):
            self.over, self.way = None, None
        if self.way is None:
            self.settle(raw.sparkSession)
        spanned = sum(map(len, ranges))
        locate = spanned <= _LOCATED
        aside: Culprits = self.flow.failed(batch_id, {o.sink.name: o.view for o in self.outlets}) if self.flow else {}
        failed = dict(aside)
        if isinstance(self.way, Shortcut):
            counted, written, over = self._short_way(self.way, raw, batch, locate=locate)
        else:
            try:
                counted, written, over = self._through_the_engine(raw, batch, topics, failed, locate=locate)
            except Exception as error:
                found = self._culprits(raw, batch) if speaks_of_a_value(error) else {}
                if not found:
                    raise
                failed = {name: {**aside.get(name, {}), **found.get(name, {})} for name in {**aside, **found}}
                self.replay = True  # some sinks may have been written
                counted, written, over = self._through_the_engine(raw, batch, topics, failed, locate=locate)
        failpoint.reach("after-sinks", batch_id, raw)
        # 3. dead letters
        rejected = _rejected(done for done, _ in written.values())
        sinks = _without_it({name: done for name, (done, _) in written.items()}, failed)
        failing = {where: why for found in failed.values() for where, why in found.items() if where not in rejected}
        self._bury(batch, raw, counted, rejected, failing, sinks, [done.letters for done, _ in written.values()])
        failpoint.reach("after-dead-letters", batch_id, raw)
        # 4. the balance
        by_view = Counter(topics[topic].view for topic, _, _ in (*rejected, *failing))
        counts = {view: replace(found.counts, rejected=by_view[view]) for view, found in counted.items()}
        entry = Entry(
            pipeline=batch.pipeline,
            query=batch.query,
            batch=batch_id,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            start=self.began,
            ranges=ranges,
            topics=topics,
            views=counts,
            sinks={
                name: SinkCount(
                    written=done.rows,
                    dropped=counts[view].passed - done.all - len(failed.get(name, ()))
                    if (view := over[name])
                    else None,
                    fingerprint=which,
                    superseded=done.superseded,
                    rejected=len(done.rejected) + len(failed.get(name, ())),
                    seconds=round(self.took[name], 3),
                )
                for name, (done, which) in written.items()
            },
            lost=lost if sum(c.read for c in counts.values()) < spanned else [],
            accepted=self.accepted if self.first else [],
            stateful=self.steps,
        )
        balance.check(entry)
        # 5. the ledger
        self.ledger.append(entry)
        failpoint.reach("after-ledger", batch_id, raw)
        self.first = self.replay = False
        if self.budget is not None:
            self.budget.spent(entry)
        if self.readers.given_up:  # for this batch; the next one that meets an unknown schema waits again
            self.readers.given_up = False
            self.look_up_anew()
        return entry

    def _culprits(self, raw: DataFrame, batch: Batch) -> Culprits:
        """The records that a step or a condition fails on, for each sink that they are in the way of."""
        from pyspark import StorageLevel

        def rows_of(outlet: Outlet) -> Callable[[DataFrame], DataFrame]:
            return lambda part: outlet.rows(all_views(self.transform, self.inlets, part))

        kept = raw.persist(StorageLevel.MEMORY_AND_DISK)  # read from Kafka once
        try:
            held = repeated(self.inlets, kept)
            found = {
                o.sink.name: culprits(kept, batch.ranges, rows_of(o), held | self.spared.get(o.sink.name, set()))
                for o in self.outlets
            }
        finally:
            kept.unpersist()
        return {name: some for name, some in found.items() if some}

    def _through_the_engine(
        self, raw: DataFrame, batch: Batch, topics: dict[str, TopicFact], failed: Culprits, *, locate: bool
    ) -> tuple[dict[str, Counted], dict[str, tuple[Written, int | None]], dict[str, str | None]]:
        """Steps 1 and 2: what was counted per view, what each sink says, and what each sink is over."""
        # 1. decode and judge
        over = self._over(raw)
        several = len(self.inlets) > 1 or len(self.outlets) > 1 or None in over.values()
        # With a budget rows are counted, and only then written; what steps bury is looked for before they are.
        shared = several or self.budget is not None or self.transform.buries
        tallies = {i.view: Tally(i.contract, i.judged(raw), shared=shared, locate=locate) for i in self.inlets}
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
            self._lacking(made, failed)
            # 2. sinks
            failpoint.reach("before-sinks", batch.id, raw)
            written = {
                o.sink.name: self._into(
                    o.sink, _of_view(batch, topics, over[o.sink.name]), o.rows(sound.get(o.sink.name, made))
                )
                for o in self.outlets
            }
            counted = counted or {view: tally.result() for view, tally in tallies.items()}
            self.steps = self.flow.counts(self.transform, sources, made, batch.id) if self.flow else {}
        finally:
            for tally in tallies.values():
                tally.release()
        return counted, written, over

    def _lacking(self, made: dict[str, DataFrame], failed: Culprits) -> None:
        """Add the records that steps leave out as dead, for each sink that would have got them."""
        for view, some in self.transform.lacking(made).items():
            for outlet in self.outlets if some else ():
                if feeds(view, made[outlet.view]):
                    held = self.spared.get(outlet.sink.name, ())
                    failed.setdefault(outlet.sink.name, {}).update({at: w for at, w in some.items() if at not in held})

    def _short_way(
        self, way: Shortcut, raw: DataFrame, batch: Batch, *, locate: bool
    ) -> tuple[dict[str, Counted], dict[str, tuple[Written, int | None]], dict[str, str | None]]:
        """Steps 1 and 2 in one pass, where no SQL lies between."""
        name, view, began = way.finish.name, way.inlet.view, time.monotonic()
        failpoint.reach("before-sinks", batch.id, raw)
        counted, done, which = way.run(
            failpoint.midway("during-sinks", batch.id, raw),
            batch,
            replay=self.replay,
            locate=locate,
            afford=(lambda found: self._afford(batch, raw, {view: found})) if self.budget is not None else None,
        )
        self.took[name] = time.monotonic() - began
        if done.all != counted.counts.passed and not self._accepts_replay():
            raise unbalanced(batch.id, f"{counted.counts.passed} records passed, sink '{name}' accounts for {done.all}")
        return {view: counted}, {name: (done, which)}, {name: view}

    @property
    def dead_letters_guarantee(self) -> str:
        if isinstance(self.way, Shortcut) and self.way.finish.posts:
            return (
                f"exactly-once: in the transaction of their input partition, together with what sink "
                f"'{self.way.finish.name}' writes of it"
            )
        return self.dead_letters.guarantee

    def way_in_words(self) -> str | None:
        if self.way is None:
            return None
        if isinstance(self.way, Shortcut):
            return "one pass: decode, rules and write in the same Python worker"
        return f"through the engine: {self.way}"

    def read_anew(self) -> None:
        """Make the inlets of the reader schemas of now; what follows from them is settled by the next batch."""
        self.inlets, self.over, self.way = self.make_inlets(), None, None

    def look_up_anew(self) -> None:
        """Make the inlets again with the same columns: only how unknown schemas are looked up is another."""
        self.inlets = self.make_inlets()
        if isinstance(self.way, Shortcut):
            self.way = replace(self.way, inlet=self.inlets[0])

    def settle(self, spark: SparkSession) -> None:
        """Resolve every rule and every step over no rows, and tell the sinks what they will get: what is wrong shows
        before anything is read."""
        sources = source_views(self.inlets, spark.createDataFrame([], RAW))
        made = self.transform.views(sources)
        flow = self.flow.over(self.transform) if self.flow else None
        told = []
        for outlet in self.outlets:
            rows = outlet.rows(made)
            apart = _apart(self.pipeline, rows, sources.values(), self.inlets)
            keys = flow.keys(rows, made) if flow else ()
            told.append(Incoming(outlet.view, rows.schema, apart, keys))
            outlet.sink.suits(told[-1])
        if flow is not None:
            flow.check(spark, self.inlets, self.outlets)
            self.way = KEEPS_STATE
            return
        self.way = shortcut(self.pipeline, self.inlets, self.outlets, told[0]) if told else None

    def _over(self, raw: DataFrame) -> dict[str, str | None]:
        """The source view of which a sink gets every row but those that steps leave out; None where steps do more.

        The rows of such a view can be counted on their way to the sink. A step that stops early (`limit`) or reads
        twice does not see each of them once, so they are then kept, as for several sinks.
        """
        if self.over is None:
            sources = source_views(self.inlets, raw)
            made = self.transform.views(sources)
            rows = {outlet.sink.name: outlet.rows(made) for outlet in self.outlets}
            self.over = {
                name: next((view for view, whole in sources.items() if row_for_row(out, whole)), None)
                for name, out in rows.items()
            }
        return self.over

    def _into(self, sink: Sink, batch: Batch, rows: DataFrame) -> tuple[Written, int | None]:
        """What the sink says became of the rows, and the fingerprint of those it holds."""
        began = time.monotonic()
        handed = Handed(failpoint.midway("during-sinks", batch.id, rows))
        done = sink.write(batch, handed.rows, replay=self.replay)
        count, which = handed.result()
        self.took[sink.name] = time.monotonic() - began
        if done.all != count and self._accepts_replay():
            return done, None
        if done.all != count:
            raise unbalanced(batch.id, f"sink '{sink.name}' got {count} rows and accounts for {done.all}")
        if which is not None:
            which -= sum(fingerprint.of_offset(r.topic, r.partition, r.offset) for r in done.rejected)
        return done, which

    def _afford(self, batch: Batch, raw: DataFrame, counted: dict[str, Counted]) -> None:
        """Called when decode and contract are counted and no sink is written. Raises DeadLetterBudget."""
        if self.budget is not None and not (self.first and DeadLetterBudget.code in self.accepted):
            self.budget.check(batch.id, raw, self.inlets, counted)

    def _accepts_replay(self) -> bool:
        """The operator said that what a batch wrote before the crash counts, whatever its replay makes of it."""
        return self.first and BatchUnbalanced.code in self.accepted

    def _bury(
        self,
        batch: Batch,
        raw: DataFrame,
        counted: dict[str, Counted],
        rejected: dict[Position, Failure],
        failing: dict[Position, Failure],
        sinks: dict[Position, str],
        posted: list[int | None],
    ) -> None:
        """Write the dead letters, unless the one sink there is has sent them along (`posted`)."""
        dead = sum(found.counts.dead for found in counted.values()) + len(rejected) + len(failing)
        held = posted[0] if len(posted) == 1 else None
        if held is None and self.replay:
            held = self.dead_letters.written(batch)
        if held is None and dead:
            parts = [i.dead_rows(raw, counted[i.view]) for i in self.inlets if counted[i.view].counts.dead]
            parts += [i.picked_rows(raw, record.SINK, rejected, sinks) for i in self.inlets if rejected]
            parts += [i.picked_rows(raw, record.TRANSFORM, failing, sinks) for i in self.inlets if failing]
            held = self.dead_letters.write(batch, reduce(lambda a, b: a.unionByName(b), parts))
        if (held or 0) != dead and not self._accepts_replay():
            raise unbalanced(batch.id, f"{dead} records died, {held or 0} dead letters were written")


def _apart(pipeline: Pipeline, rows: DataFrame, sources: Iterable[DataFrame], inlets: Iterable[Inlet]) -> str:
    """Why rows of one input partition do not stay in one task, in their order; empty when they do."""
    if pipeline.source.min_partitions or pipeline.source.max_records_per_partition:
        return "`min_partitions` and `max_records_per_partition` split input partitions into several tasks"
    if any(inlet.contract.compares for inlet in inlets):
        return "a `unique` rule compares the records of a batch"
    if all(moved(rows, source) for source in sources):
        return "its steps join, group, sort or limit rows"
    return ""


def _of_view(batch: Batch, topics: dict[str, TopicFact], view: str | None) -> Batch:
    """The batch as a sink of one source view sees it: with the offsets of that view's topics only."""
    if view is None:
        return batch
    return replace(batch, ranges=tuple(r for r in batch.ranges if topics[r.topic].view == view))


def _rejected(written: Iterable[Written]) -> dict[Position, Failure]:
    """Records that a sink refused, each once: the first sink that refuses one says why."""
    found: dict[Position, Failure] = {}
    for done in written:
        for row in done.rejected:
            found.setdefault((row.topic, row.partition, row.offset), row.why)
    return found


def _without_it(written: dict[str, Written], failed: Culprits) -> dict[Position, str]:
    """For each record that a step or a sink refused: the sinks that do not have it. Others may."""
    found: dict[Position, set[str]] = {}
    for name, done in written.items():
        for row in done.rejected:
            found.setdefault((row.topic, row.partition, row.offset), set()).add(name)
    for name, some in failed.items():
        for where in some:
            found.setdefault(where, set()).add(name)
    return {where: ",".join(sorted(names)) for where, names in found.items()}
