"""The dry run of a replay: what would become of the letters now. Nothing is written, nothing is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.batch.bisect import speaks_of_a_value, without
from penstock.batch.counts import Tally
from penstock.batch.failing import failing, lacking
from penstock.batch.failure import translate
from penstock.batch.output import Outlet
from penstock.batch.source_view import Inlet, source_views
from penstock.checkpoint.home import Home
from penstock.deadletters import replays
from penstock.deadletters.dead_letter import DeadLetter
from penstock.deadletters.reason import pattern
from penstock.deadletters.replays import Chosen
from penstock.lifecycle.replay.raw import raw
from penstock.lifecycle.replay.run import spared_by
from penstock.plan import build
from penstock.record import TRANSFORM, Failure, OffsetRange, Position
from penstock.spark import session
from penstock.spec.model import Pipeline
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
    home = Home.of(pipeline)
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
            trial.died(_place(row), row["stage"], Failure(row["error_class"], row["reason"]))
    each = tuple(OffsetRange(t, p, o, o + 1) for t, p, o in sorted(chosen.position for chosen, _ in batch))
    dead: dict[Position, Failure] = {}
    for outlet in outlets:
        name = outlet.sink.name
        left_out = spared.get(name, set())
        try:
            trial.rows[name] += outlet.rows(_views(transform, inlets, records, left_out)).count()
        except Exception as error:
            blamed = failing(transform, inlets, [outlet], records, each, spared) if speaks_of_a_value(error) else {}
            if not blamed:
                raise
            dead |= blamed[name]
            left_out = left_out | set(blamed[name])
            trial.rows[name] += outlet.rows(_views(transform, inlets, records, left_out)).count()
        if transform.buries:
            dead |= lacking(transform, [(outlet, _views(transform, inlets, records, left_out))]).get(name, {})
    for where, why in dead.items():
        trial.died(where, TRANSFORM, why)
    trial.passed -= len(dead)


def _views(
    transform: Transform, inlets: list[Inlet], records: DataFrame, left_out: set[Position]
) -> dict[str, DataFrame]:
    sources = source_views(inlets, records)
    if left_out:
        sources = {view: without(rows, left_out) for view, rows in sources.items()}
    return transform.views(sources)


def _place(row: Any) -> Position:
    return row["topic"], row["partition"], row["offset"]
