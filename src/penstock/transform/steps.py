"""Views feed views: the steps of a spec in order. Run once per batch over the batch's rows, and once before the start
over no rows. Each kind of step is a module of its own.

Stateful steps run in the stream (`streamed`), which is planned once per start. In a batch their last view is given
(`Moment`); views between them, which only the stream has, are empty here and nobody may read them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.record import Batch, Failure
from penstock.spec.enrich import Enrich
from penstock.spec.python_step import PythonStep
from penstock.spec.stateful import Deduplicate, Join, State, Window, late_views, sides
from penstock.spec.stateful_check import late_view_names
from penstock.spec.steps import Step, stateful_steps
from penstock.spec.types import quoted
from penstock.transform import deduplicate, enrich, join, python, sql, state, window
from penstock.transform.enrich import References
from penstock.transform.per_batch import PerBatch, per_batch
from penstock.transform.watermark import ahead, late, traceable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Moment:
    """What a batch of a pipeline with stateful steps begins with."""

    rows: DataFrame | None  # what the stream gave: the rows of the last stateful view
    watermark_ms: int  # rows at or before it were late
    clock_ms: int  # when the batch was planned


@dataclass(frozen=True)
class Transform:
    """The steps of one pipeline, and what they need to run."""

    steps: tuple[Step, ...]
    base: Path  # the directory of the spec
    references: References | None = None  # the tables that steps look rows up in
    moment: Moment | None = None
    ordered: bool = True  # stateful steps meet the rows of a key by their place in Kafka

    @property
    def keeping(self) -> list[Step]:
        """The steps that keep state, in order."""
        return stateful_steps(self.steps)

    def views(self, sources: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """Every view by name: the sources, then the steps in order. Raises StepFailed naming the step."""
        made = dict(sources)
        if self.references and sources:
            made |= self.references.views(next(iter(sources.values())).sparkSession)
        for name, rows in made.items():
            rows.createOrReplaceTempView(name)
        late_ones, last = late_view_names(self.steps), self.keeping[-1:]
        for step in self.steps:
            if late_ones and step == self.keeping[0]:
                made |= self._late(step, made, sources)
            given = self.moment.rows if self.moment and [step] == last else None
            made[step.view] = self._rows(step, made) if given is None else given
            if step.enrich and step.enrich.missing:
                enrich.require_one_row_each(step.view, step.enrich, made, sources)
            made[step.view].createOrReplaceTempView(step.view)
        return made

    def per_batch(self, made: dict[str, DataFrame], tables: Collection[str]) -> list[PerBatch]:
        """What steps compute over the rows of one batch only, where the spec does not say that it is meant. `made`: all
        views over the rows of a batch; `tables`: those of them that are reference tables."""
        steps = {step.view for step in self.steps}
        found, before = [], {name: rows for name, rows in made.items() if name not in steps}
        for step in self.steps:
            found += per_batch(step, made[step.view], before, tables)
            before[step.view] = made[step.view]
        return found

    def streamed(self, sources: dict[str, DataFrame]) -> DataFrame:
        """The last stateful view over streams: the plan of the query, up to where batches are handed over."""
        last = self.steps.index(self.keeping[-1])
        stream = replace(self, steps=self.steps[: last + 1], moment=None)
        return stream.views(sources)[self.keeping[-1].view]

    def heard_by(self, watch: Any) -> None:
        if self.references is not None:
            self.references.heard_by(watch)

    def begin(self, spark: SparkSession, batch: Batch) -> bool:
        """Called when a batch begins, and at no other time: whether what steps look up is another one from here on."""
        return self.references is not None and self.references.begin(spark, batch)

    @property
    def buries(self) -> tuple[str, ...]:
        """The views whose steps leave rows out as dead; `lacking` says which."""
        return tuple(step.view for step in self.steps if step.enrich and step.enrich.missing)

    def lacking(self, view: str, made: dict[str, DataFrame]) -> dict[enrich.Where, Failure]:
        """The records that the step of a view, one of `buries`, leaves out as dead."""
        how = next(step.enrich for step in self.steps if step.view == view)
        assert how is not None and self.references is not None
        return enrich.lacking(view, how, made, self.references)

    def _rows(self, step: Step, made: dict[str, DataFrame]) -> DataFrame:
        def view(name: str) -> DataFrame:
            return next(rows for each, rows in made.items() if each.lower() == name.lower())

        def none_of(name: str) -> DataFrame:
            """The view in the stream; in a batch no rows of it, for its columns."""
            from pyspark.sql import functions as F

            rows = view(name)
            return rows if rows.isStreaming else rows.where(F.lit(False))

        match step:
            case Step(sql=str(query)):
                return sql.rows(step.view, query, made)
            case Step(python=PythonStep() as called):
                return python.rows(step.view, called, self.base, made)
            case Step(enrich=Enrich() as how):
                assert self.references is not None  # the spec names the table
                return enrich.rows(step.view, how, made, self.references)
            case Step(window=Window() as of):
                return window.rows(step.view, of, none_of(of.from_), followed=step != self.keeping[-1])
            case Step(deduplicate=Deduplicate() as of):
                return deduplicate.rows(step.view, of, none_of(of.from_), ordered=self.ordered)
            case Step(join=Join() as of):
                return join.rows(step.view, of, none_of(of.left.from_), none_of(of.right.from_))
            case Step(state=State() as of):
                return state.rows(step.view, of, none_of(of.from_), self.base, ordered=self.ordered)
        raise AssertionError(step)

    def _late(self, step: Step, made: dict[str, DataFrame], sources: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """The rows that came too late for the step, or have no event time, as views of their own. With them those too
        far ahead of the clock that do not say which record they are of: of the others the record is a dead letter."""
        from pyspark.sql import functions as F

        assert step.stateful is not None
        found = {}
        watermark, clock = (self.moment.watermark_ms, self.moment.clock_ms) if self.moment else (0, None)
        for at, (name, of) in enumerate(zip(late_views(step.view, step.stateful), sides(step.stateful), strict=True)):
            rows = next(rows for each, rows in made.items() if each.lower() == of.view.lower())
            if rows.isStreaming or dict(rows.dtypes).get(of.time or "") != "timestamp":
                continue  # in the stream they are dropped; a time that is none is said by the step
            too_late, untimed = late(step.stateful, at, watermark), F.col(quoted(of.time or "")).isNull()
            missed, is_ahead = untimed if too_late is None else untimed | too_late, ahead(of, clock)
            found[name] = rows.where(missed & ~is_ahead if traceable(rows, sources) else missed | is_ahead)
            found[name].createOrReplaceTempView(name)
        return found
