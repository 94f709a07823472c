"""Bounded runs: a range of offsets through the same spec, once (S3).

A backfill is a query of its own, under `<checkpoint>/backfill/<name>`:

    1. The range is resolved to offsets, cut into batches of `rate.max_offsets`, and written down in the form of Spark's
       own checkpoint. A crash before the last of that leaves nothing.
    2. Each batch goes the way of a batch of the stream: the same steps, a ledger entry at the end.
    3. Its commit is written.

After a crash the same command goes on with the first batch that has no commit; what that batch had written already is
found by query and batch, as in the stream. A backfill that is complete does nothing when it is asked for again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.checkpoint import own_log
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import Positions, SparkLog
from penstock.errors import BadArgument, TableOfAnotherQuery
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.lifecycle import preconditions
from penstock.lifecycle.restart import Perseverance
from penstock.lifecycle.retry_policy import Patience
from penstock.lifecycle.stream import prepare
from penstock.plan import build
from penstock.record import BACKFILL
from penstock.source import kafka as source
from penstock.source import parse_position, start
from penstock.source.subscription import subscribe
from penstock.spark import session
from penstock.spec.model import Pipeline
from penstock.spec.start import LATEST
from penstock.transform.state_limits import require_none
from penstock.watch import CHECKING, ENGINE, RESOLVING, StopRequest, Watch

_ANOTHER = "begin another one: penstock run FILE --from POSITION --to POSITION --as NAME"


@dataclass(frozen=True)
class Range:
    """What was asked for, as it was written: `earliest`, `latest`, a time, or `topic:partition=offset,...`."""

    first: str
    end: str

    @property
    def name(self) -> str:
        """The backfill's name, when the user gives none: the same range has the same one."""
        return uuid.uuid5(uuid.NAMESPACE_OID, json.dumps([self.first, self.end])).hex[:12]


def run(
    pipeline: Pipeline,
    wanted: Range,
    name: str | None = None,
    *,
    watch: Watch | None = None,
    stop: StopRequest | None = None,
) -> Home:
    """Run every batch of the range that is not committed yet. Returns where its ledger is."""
    watch, stop = watch or Watch(), stop or StopRequest()
    require_none(pipeline, "a backfill")
    home = Home.of(pipeline).backfill(name or wanted.name)
    with home.held():
        watch.starting(CHECKING)
        log = SparkLog(home.spark)
        if log.query_id() is None:
            id_ = {"id": f"{BACKFILL}{uuid.uuid4()}", "range": [wanted.first, wanted.end]}
            with own_log.written_down(home.spark, id_, *_resolved(pipeline, wanted)):
                pass
        _same_range(home.spark, wanted)
        preconditions.check(home, pipeline.name, frozenset())
        made = build.assembly(pipeline, home)
        assembly = replace(made, flow=None, topics=replace(made.topics, instead=_ANOTHER))
        prepare(assembly, frozenset({TableOfAnotherQuery.code}))  # the stream's own rows are there, of course
        planned, committed = log.planned(), log.committed()
        if planned is None or committed == planned:
            return home
        watch.starting(ENGINE)
        spark = session.start(pipeline, home.logs, waiting=watch.waiting)
        watch.starting(RESOLVING)
        bear = Perseverance(home, watch, stop, Patience.of(pipeline), Disks.of(pipeline, home))
        bear.listen(assembly)
        assembly.settle(spark)
        for said in assembly.warnings(spark):
            watch.warn(said)
        watch.bounded(log.start() if committed is None else log.end_of(committed), log.end_of(planned))
        watch.started(pipeline, home)
        bear.run_each(
            range(0 if committed is None else committed + 1, planned + 1),
            assembly,
            lambda _, number: source.bounded(spark, pipeline, log.ranges(number), whole=False),
            lambda number: own_log.commit(home.spark, number),
        )
    return home


def _resolved(pipeline: Pipeline, wanted: Range) -> tuple[Positions, list[Positions]]:
    """Where the range begins, and where each of its batches ends."""
    config = client_config(pipeline)
    stream = Ledger(Home.of(pipeline).ledger).last()
    topics = subscribe(config, pipeline.source, stream.topics if stream else ()).topics  # none that are held back
    partitions = start.partitions_of(pipeline.source, topics)
    counts = {name: facts.partitions for name, facts in topics.items()}
    marks, stable = admin.watermarks(config, counts), admin.stable_ends(config, counts)
    begins, ends = parse_position.parsed(wanted.first, "earliest"), parse_position.parsed(wanted.end, "latest")
    named = begins.places() | ends.places()  # where partitions are named, no others are read
    since, until = begins.timestamp, ends.timestamp
    if isinstance(since, int) and isinstance(until, int) and since > until:
        raise BadArgument(
            "the range ends before it begins",
            cause=f"it goes from {wanted.first} to {wanted.end}",
            next_command="give --to a time that is not before --from",
        )
    first = start.resolve(config, begins, partitions)
    last = start.resolve(config, ends, partitions)
    read = [where for where in first if not named or where in named]
    at = {where: parse_position.within(marks[where], first[where], where) for where in read}
    if ends.timestamp is not None:  # no record is as new: all are wanted, also those of a transaction that is open
        last = {where: marks[where][1] if offset == LATEST else offset for where, offset in last.items()}
    end = {where: parse_position.readable(marks[where], stable[where], last[where], where) for where in read}
    for where in sorted(begins.places() & ends.places()):
        if end[where] < at[where]:
            raise BadArgument(
                f"the range of {where[0]}-{where[1]} ends before it begins",
                cause=f"it begins at offset {at[where]} and ends at {end[where]}",
                next_command="give --to an offset that is not below --from",
            )
    end = {where: max(offset, at[where]) for where, offset in end.items()}
    return at, list(_cut(at, end, pipeline.rate.max_offsets))


def _cut(at: Positions, end: Positions, most: int) -> Iterator[Positions]:
    """Ends of batches of at most `most` offsets (at least one of each partition), in proportion to what is left."""
    while any(at[where] < end[where] for where in end):
        left = {where: end[where] - at[where] for where in end}
        share = min(1.0, most / sum(left.values()))
        at = {where: min(end[where], at[where] + max(1, int(left[where] * share))) for where in end}
        yield at


def _same_range(spark: Path, wanted: Range) -> None:
    before = json.loads((spark / "metadata").read_text())["range"]
    if before != [wanted.first, wanted.end]:
        raise BadArgument(
            "there is a backfill of that name with another range",
            cause=f"it goes from {before[0]} to {before[1]}",
            next_command="give the new one another name: --as NAME",
        )
