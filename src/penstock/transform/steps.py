"""Views feed views: the steps of a spec in order. Run once per batch over the batch's rows, and once before the start
over no rows. Each kind of step is a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spec.steps import Step
from penstock.transform import sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Transform:
    """The steps of one pipeline, and what they need to run."""

    steps: tuple[Step, ...]
    base: Path  # the directory of the spec

    def views(self, sources: dict[str, DataFrame]) -> dict[str, DataFrame]:
        """Every view by name: the sources, then the steps in order. Raises StepFailed naming the step."""
        made = dict(sources)
        for name, rows in sources.items():
            rows.createOrReplaceTempView(name)
        for step in self.steps:
            made[step.view] = self._rows(step, made)
            made[step.view].createOrReplaceTempView(step.view)
        return made

    def _rows(self, step: Step, made: dict[str, DataFrame]) -> DataFrame:
        match step:
            case Step(sql=str(query)):
                return sql.rows(step.view, query, made)
        raise AssertionError(step)
