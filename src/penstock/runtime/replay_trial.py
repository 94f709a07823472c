"""The dry run of a replay: what would become of the letters now. Nothing is written, nothing is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.record import CONTRACT, DECODE, TRANSFORM, Failure, OffsetRange
from penstock.route.dead_letter import DeadLetter
from penstock.route.reason import pattern
from penstock.runtime import build, replays, session
from penstock.runtime.culprits import culprits, speaks_of_a_value, without
from penstock.runtime.failure import translate
from penstock.runtime.inlet import Inlet, Position, all_views, repeated, source_views
from penstock.runtime.letters_raw import raw
from penstock.runtime.outlet import Outlet
from penstock.runtime.replay import spared_by
from penstock.runtime.replays import Chosen
from penstock.runtime.tally import Tally
from penstock.spec.model import Pipeline
from penstock.transform.enrich import feeds
from penstock.transform.steps import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Group = tuple[str, str, str]
"""Stage, error class, reason without what differs from record to record."""


@dataclass
class Trial:
    """What sinks would refuse is not known before they are written."""

    letters: int = 0
    passed: int = 0
    dropped: int = 0
    dead: Counter[Group] = field(default_factory=Counter)
    sample: dict[Group, str] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)  # per sink

    def died(self, where: Position, stage: str, why: Failure) -> None:
        group = (stage, why.error_class, pattern(why.reason))
        self.dead[group] += 1
        self.sample.setdefault(group, f"{where[0]}:{where[1]}:{where[2]}: {why.reason}")


def tried(pipeline: Pipeline, chosen: Iterable[tuple[Chosen, DeadLetter]]) -> Trial:
    """Decode, rules, steps and conditions, in batches as a replay would make them."""
    home = build.home(pipeline)
    trial = Trial()
    batches = list(replays.cut(chosen))
    if not batches:
        return trial
    spark = session.start(pipeline, home.logs)
    transform, inlets, outlets = build.transform(pipeline), build.inlets(pipeline), build.outlets(pipeline)
    for batch in batches:
        try:
            _try(transform, spark, inlets, outlets, batch, trial)
        except Exception as error:
            raise translate(error, home.logs / session.LOG_NAME) from error
    return trial


def _try(
    transform: Transform,
    spark: SparkSession,
    inlets: list[Inlet],
    outlets: list[Outlet],
    batch: list[tuple[Chosen, DeadLetter]],
    trial: Trial,
) -> None:
    records = raw(spark, [letter for _, letter in batch])
    spared = spared_by(chosen for chosen, _ in batch)
    trial.letters += len(batch)
    for inlet in inlets:
        tally = Tally(inlet.contract, inlet.judged(records), shared=True, locate=False)
        try:
            counted = tally.result()
        finally:
            tally.release()
        trial.passed += counted.counts.passed
        trial.dropped += sum(counted.counts.dropped.values())
        for row in inlet.dead_rows(records, counted).collect() if counted.counts.dead else ():
            stage = DECODE if row["stage"] == DECODE else CONTRACT
            trial.died(_place(row), stage, Failure(row["error_class"], row["reason"]))
    failing: dict[Position, Failure] = {}
    for outlet in outlets:
        left_out = spared.get(outlet.sink.name, set())
        try:
            trial.rows[outlet.sink.name] += _rows(transform, inlets, outlet, records, left_out).count()
        except Exception as error:
            found = _culprits(transform, inlets, outlet, records, batch, left_out) if speaks_of_a_value(error) else {}
            if not found:
                raise
            failing |= found
            trial.rows[outlet.sink.name] += _rows(transform, inlets, outlet, records, left_out | set(found)).count()
    failing |= _lacking(transform, inlets, outlets, records, spared)
    for where, why in failing.items():
        trial.died(where, TRANSFORM, why)
    trial.passed -= len(failing)


def _lacking(
    transform: Transform,
    inlets: list[Inlet],
    outlets: list[Outlet],
    records: DataFrame,
    spared: dict[str, set[Position]],
) -> dict[Position, Failure]:
    """Records that a step would leave out as dead, where a sink is to get them."""
    if not transform.buries:
        return {}
    made = all_views(transform, inlets, records)
    found: dict[Position, Failure] = {}
    for view, some in transform.lacking(made).items():
        for outlet in outlets:
            held = spared.get(outlet.sink.name, ())
            if feeds(view, made[outlet.view]):
                found |= {at: why for at, why in some.items() if at not in held}
    return found


def _rows(
    transform: Transform, inlets: list[Inlet], outlet: Outlet, records: DataFrame, left_out: set[Position]
) -> DataFrame:
    sources = source_views(inlets, records)
    if left_out:
        sources = {view: without(rows, left_out) for view, rows in sources.items()}
    return outlet.rows(transform.views(sources))


def _culprits(
    transform: Transform,
    inlets: list[Inlet],
    outlet: Outlet,
    records: DataFrame,
    batch: list[tuple[Chosen, DeadLetter]],
    held: set[Position],
) -> dict[Position, Failure]:
    each = tuple(OffsetRange(t, p, o, o + 1) for t, p, o in sorted(chosen.position for chosen, _ in batch))
    held = held | repeated(inlets, records)
    return culprits(records, each, lambda part: outlet.rows(all_views(transform, inlets, part)), held)


def _place(row: Any) -> Position:
    return row["topic"], row["partition"], row["offset"]
