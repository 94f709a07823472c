"""Views feed views: the steps of a spec in order. Run once per batch over the batch's rows, and once before the start
over no rows. Each kind of step is a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.record import Batch, Failure
from penstock.spec.enrich import Enrich
from penstock.spec.python_step import PythonStep
from penstock.spec.steps import Step
from penstock.transform import enrich, python, sql
from penstock.transform.enrich import References

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Transform:
    """The steps of one pipeline, and what they need to run."""

    steps: tuple[Step, ...]
    base: Path  # the directory of the spec
    references: References | None = None  # the tables that steps look rows up in

    def views(self, sources: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """Every view by name: the sources, then the steps in order. Raises StepFailed naming the step."""
        made = dict(sources)
        if self.references and sources:
            made |= self.references.views(next(iter(sources.values())).sparkSession)
        for name, rows in made.items():
            rows.createOrReplaceTempView(name)
        for step in self.steps:
            made[step.view] = self._rows(step, made)
            if step.enrich and step.enrich.missing:
                enrich.require_one_row_each(step.view, step.enrich, made, sources)
            made[step.view].createOrReplaceTempView(step.view)
        return made

    def heard_by(self, watch: Any) -> None:
        if self.references is not None:
            self.references.heard_by(watch)

    def begin(self, spark: SparkSession, batch: Batch) -> bool:
        """Called when a batch begins, and at no other time: whether what steps look up is another one from here on."""
        return self.references is not None and self.references.begin(spark, batch)

    @property
    def buries(self) -> bool:
        """Whether a step leaves rows out whose records are dead; `lacking` says which."""
        return any(step.enrich and step.enrich.missing for step in self.steps)

    def lacking(self, made: dict[str, DataFrame]) -> dict[str, dict[enrich.Where, Failure]]:
        """By view: the records that its step leaves out as dead."""
        return {
            step.view: enrich.lacking(step.view, step.enrich, made, self.references)
            for step in self.steps
            if step.enrich and step.enrich.missing and self.references is not None
        }

    def _rows(self, step: Step, made: dict[str, DataFrame]) -> DataFrame:
        match step:
            case Step(sql=str(query)):
                return sql.rows(step.view, query, made)
            case Step(python=PythonStep() as called):
                return python.rows(step.view, called, self.base, made)
            case Step(enrich=Enrich() as how):
                assert self.references is not None  # the spec names the table
                return enrich.rows(step.view, how, made, self.references)
        raise AssertionError(step)
