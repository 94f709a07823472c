"""The path of a record, top to bottom: source -> decode -> contract -> transform -> sinks, dead letters, ledger.

One batch is `Assembly.process`. Its steps, and why a crash between any two of them loses and repeats nothing:

    1. decode and judge every record; nothing is written
    2. sinks, each whole and once: a replay finds the batch already there
    3. dead letters, whole and once: a replay finds them already there
    4. the balance: read = passed + dead + dropped, sinks and dead letters hold what was handed to them
    5. the ledger entry, synced
    6. Spark commits the batch; until then it runs the same offsets under the same batch id again

Kafka is read once per batch: the counts of step 4 are taken while the sink writes. Only a batch that has dead letters
is read a second time, to fetch their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING

from penstock.checkpoint.ledger import Entry, Ledger, SinkCount
from penstock.checkpoint.log import SparkLog
from penstock.errors import BatchUnbalanced
from penstock.record import Batch
from penstock.runtime import balance, failpoint
from penstock.runtime.balance import unbalanced
from penstock.runtime.inlet import Inlet, passed
from penstock.runtime.tally import Counted, Handed, Tally
from penstock.runtime.topics import TopicWatch
from penstock.spec.model import Pipeline
from penstock.transform.sql import row_for_row, views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.route.dead_letter import DeadLetters
    from penstock.sink.contract import Sink

_LOCATED = 1_000_000  # offsets: in larger batches the positions of dead records could fill the driver


@dataclass
class Assembly:
    """Everything a batch meets. Made once per start of the query; `process` is called by Spark, batch by batch."""

    pipeline: Pipeline
    inlets: list[Inlet]
    sinks: dict[str, Sink]
    dead_letters: DeadLetters
    log: SparkLog
    ledger: Ledger
    topics: TopicWatch
    accepted: list[str] = field(default_factory=list)  # what the operator accepted for this start
    over: dict[str, str | None] | None = None  # see `_over`; the plan is the same for every batch
    first: bool = True  # only the first batch after a start can have been written before

    def process(self, raw: DataFrame, batch_id: int) -> Entry:
        batch = Batch(self.pipeline.name, self.log.query_id() or "", batch_id)
        ranges = self.log.ranges(batch_id)
        topics = self.topics.facts(r.topic for r in ranges)
        spanned = sum(map(len, ranges))
        locate = spanned <= _LOCATED
        # 1. decode and judge
        over = self._over(raw)
        shared = len(self.inlets) > 1 or len(self.sinks) > 1 or None in over.values()
        tallies = {i.view: Tally(i.contract, i.judged(raw), shared=shared, locate=locate) for i in self.inlets}
        sources = {inlet.view: passed(tallies[inlet.view].rows) for inlet in self.inlets}
        made = views(sources, self.pipeline.transform)
        try:
            # 2. sinks
            failpoint.reach("before-sinks", batch_id, raw)
            from_ = {name: made[self.pipeline.sinks[name].from_] for name in self.sinks}
            handed = {name: self._into(sink, batch, from_[name]) for name, sink in self.sinks.items()}
            counted = {view: tally.result() for view, tally in tallies.items()}
            failpoint.reach("after-sinks", batch_id, raw)
        finally:
            for tally in tallies.values():
                tally.release()
        # 3. dead letters
        self._bury(batch, raw, counted)
        failpoint.reach("after-dead-letters", batch_id, raw)
        # 4. the balance
        counts = {view: found.counts for view, found in counted.items()}
        entry = Entry(
            pipeline=batch.pipeline,
            query=batch.query,
            batch=batch_id,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            start=self.pipeline.source.start_text(),
            ranges=ranges,
            topics=topics,
            views=counts,
            sinks={
                name: SinkCount(rows, counts[view].passed - rows if (view := over[name]) else None, fingerprint)
                for name, (rows, fingerprint) in handed.items()
            },
            lost=self.topics.lost(ranges) if sum(c.read for c in counts.values()) < spanned else [],
            accepted=self.accepted if self.first else [],
        )
        balance.check(entry)
        # 5. the ledger
        self.ledger.append(entry)
        failpoint.reach("after-ledger", batch_id, raw)
        self.first = False
        return entry

    def _over(self, raw: DataFrame) -> dict[str, str | None]:
        """The source view of which a sink gets every row but those that steps leave out; None where steps do more.

        The rows of such a view can be counted on their way to the sink. A step that stops early (`limit`) or reads
        twice does not see each of them once, so they are then kept, as for several sinks.
        """
        if self.over is None:
            sources = {inlet.view: passed(inlet.judged(raw)) for inlet in self.inlets}
            made = views(sources, self.pipeline.transform)
            self.over = {
                name: next((view for view, rows in sources.items() if row_for_row(made[sink.from_], rows)), None)
                for name, sink in self.pipeline.sinks.items()
            }
        return self.over

    def _into(self, sink: Sink, batch: Batch, rows: DataFrame) -> tuple[int, int | None]:
        """Hand the rows to a sink, or in a replay only count them; either way every row is seen once."""
        handed = Handed(failpoint.midway("during-sinks", batch.id, rows))
        held = sink.written(batch) if self.first else None
        if held is None:
            held = sink.write(batch, handed.rows)
        else:
            handed.rows.write.format("noop").mode("overwrite").save()
        count, fingerprint = handed.result()
        if held != count and self._accepts_replay():
            return held, None
        if held != count:
            raise unbalanced(batch.id, f"sink '{sink.name}' got {count} rows and holds {held}")
        return count, fingerprint

    def _accepts_replay(self) -> bool:
        """The operator said that what a batch wrote before the crash counts, whatever its replay makes of it."""
        return self.first and BatchUnbalanced.code in self.accepted

    def _bury(self, batch: Batch, raw: DataFrame, counted: dict[str, Counted]) -> None:
        dead = sum(found.counts.dead for found in counted.values())
        held = self.dead_letters.written(batch) if self.first else None
        if held is None and dead:
            parts = [i.dead_rows(raw, counted[i.view]) for i in self.inlets if counted[i.view].counts.dead]
            held = self.dead_letters.write(batch, reduce(lambda a, b: a.unionByName(b), parts))
        if (held or 0) != dead and not self._accepts_replay():
            raise unbalanced(batch.id, f"{dead} records died, {held or 0} dead letters were written")
