"""SQL steps: views feed views. Run once per batch over the batch's rows, and once before the start over no rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import StepFailed, first_line
from penstock.spec.model import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Plans made of these nodes give at most one row for each row they read, so what is missing was filtered.
_ROW_FOR_ROW = {"Project", "Filter", "SubqueryAlias", "View", "LocalRelation", "LogicalRDD", "CollectMetrics", "Sort"}


def views(sources: dict[str, DataFrame], steps: Iterable[Step]) -> dict[str, DataFrame]:
    """Every view by name: the sources, then the steps in order. Raises StepFailed naming the step."""
    from pyspark.errors import PySparkException

    made = dict(sources)
    for name, rows in sources.items():
        rows.createOrReplaceTempView(name)
    for step in steps:
        spark = next(iter(sources.values())).sparkSession
        try:
            made[step.view] = spark.sql(step.sql)
            made[step.view].createOrReplaceTempView(step.view)
        except PySparkException as error:
            raise StepFailed(
                f"step '{step.view}' is not a query over the views before it",
                cause=first_line(error),
                next_command=f"correct the SQL of view '{step.view}' in the spec",
                facts={"view": step.view},
            ) from None
    return made


def row_for_row(rows: DataFrame, source: DataFrame) -> bool:
    """Whether `rows` is `source` with rows left out: then what was left out can be counted, record by record."""
    return _between(rows, source) is not None


def moved(rows: DataFrame, source: DataFrame) -> bool:
    """Whether `rows` takes rows of `source` out of the task, or out of the order, that they are read in."""
    between = _between(rows, source)
    return between is None or "Sort" in between


def _between(rows: DataFrame, source: DataFrame) -> list[str] | None:
    """The kinds of nodes between `rows` and `source`, if all of them keep rows one for one."""
    plan = rows._jdf.queryExecution().analyzed()
    target = source._jdf.queryExecution().analyzed()
    found: list[str] = []
    while not plan.sameResult(target):
        if plan.nodeName() not in _ROW_FOR_ROW or plan.children().size() != 1:
            return None
        found.append(plan.nodeName())
        plan = plan.children().apply(0)
    return found
