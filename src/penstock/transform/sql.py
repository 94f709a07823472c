"""SQL steps, and what a plan does to the rows it reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Plans made of these nodes give at most one row for each row they read, so what is missing was filtered.
_ROW_FOR_ROW = {"Project", "Filter", "SubqueryAlias", "View", "LocalRelation", "LogicalRDD", "CollectMetrics", "Sort"}
_SHUFFLED = "rows are moved to be joined"
_ASKS = "a subquery gives it a value"
_RANGES = "rows are put into order over all tasks"
_MOVING = {"Sort", _RANGES, _SHUFFLED}
# For ranges the engine computes its input twice: a sample says where they end. What a subquery reads may be the same
# rows once more, or a part of them; and when it has found none, the engine may not read the others at all.
_NOT_ONCE = {_RANGES, _ASKS}


ENRICHED = "_penstock_reference_"  # begins the name of the right side of a join with a reference table

_VIEW = re.compile(r"View \(`([^`]+)`")


def rows(view: str, query: str, made: dict[str, DataFrame]) -> DataFrame:
    """What the query gives over the views made so far, which are temporary views of the session."""
    from pyspark.errors import PySparkException

    spark = next(iter(made.values())).sparkSession
    try:
        return spark.sql(query)
    except PySparkException as error:
        raise StepFailed(
            f"step '{view}' is not a query over the views before it",
            cause=first_line(error),
            next_command=f"correct the SQL of view '{view}' in the spec",
            facts={"view": view},
        ) from None


def row_for_row(rows: DataFrame, source: DataFrame) -> bool:
    """Whether `rows` is `source` with rows left out: then what was left out can be counted, record by record."""
    return _between(rows, source) is not None


def moved(rows: DataFrame, source: DataFrame) -> bool:
    """Whether `rows` takes rows of `source` out of the task, or out of the order, that they are read in."""
    between = _between(rows, source)
    return between is None or not _MOVING.isdisjoint(between)


def read_once(rows: DataFrame, source: DataFrame) -> bool:
    """Whether the engine computes every row of `source` just once on the way to `rows`: then they can be counted as
    they pass."""
    between = _between(rows, source)
    return between is not None and _NOT_ONCE.isdisjoint(between)


def views_in(rows: DataFrame) -> set[str]:
    """The views, in lower case, that a plan reads: those of the session that the engine names in it."""
    plan = rows._jdf.queryExecution().analyzed().toString()
    return {name.lower() for name in _VIEW.findall(plan)}


def columns_behind(rows: DataFrame, condition: str, source: DataFrame) -> set[str]:
    """The columns of `source` that a condition over `rows`, a view made of it, is about; by the names that the plan
    between them gives to what it computes."""
    asked = rows.selectExpr(f"({condition}) as asked")._jdf.queryExecution().analyzed()
    names = {each.exprId(): each.name() for each in elements(source._jdf.queryExecution().analyzed().output())}
    made_of: dict[Any, list[Any]] = {}
    nodes = [asked]
    while nodes:
        node = nodes.pop()
        nodes += elements(node.children())
        for named in elements(node.expressions()):
            if named.nodeName() == "Alias":
                made_of[named.exprId()] = [each.exprId() for each in elements(named.references().toSeq())]
    found, left = set(), [each.exprId() for each in elements(asked.output())]
    while left:
        at = left.pop()
        found |= {names[at]} if at in names else set()
        left += made_of.pop(at, [])
    return found


def elements(seq: Any) -> list[Any]:
    """The elements of a sequence of Scala's."""
    return [seq.apply(i) for i in range(seq.size())]


def _between(rows: DataFrame, source: DataFrame) -> list[str] | None:
    """The kinds of nodes between `rows` and `source`, if all of them keep rows one for one."""
    plan = rows._jdf.queryExecution().analyzed()
    target = source._jdf.queryExecution().analyzed()
    found: list[str] = []
    while not plan.sameResult(target):
        looked_up = _looked_up(plan)
        if looked_up is not None:
            found.append(looked_up)
            plan = plan.children().apply(0)
            continue
        if plan.nodeName() not in _ROW_FOR_ROW or plan.children().size() != 1:
            return None
        found += [plan.nodeName(), *_asked(plan)]
        if plan.nodeName() == "Sort" and getattr(plan, "global")():
            found.append(_RANGES)
        plan = plan.children().apply(0)
    return found


def _asked(plan: Any) -> set[str]:
    """What the subqueries of a node do. One that gives a single value, the same for all rows, leaves these in their
    task; any other is a join in disguise."""
    others = plan.subqueries().size()
    left = elements(plan.expressions()) if others else []
    found = {_ASKS} if others else set()
    while left:
        each = left.pop()
        left += elements(each.children())
        others -= each.nodeName() == "ScalarSubquery" and not each.isCorrelated()
    return found | {_SHUFFLED} if others else found


def _looked_up(plan: Any) -> str | None:
    """Of a join with a reference table, whose key is unique: how the rows get there. None for any other plan."""
    if plan.nodeName() != "Join":
        return None
    right, small = plan.children().apply(1), False
    if right.nodeName() == "ResolvedHint":
        right, small = right.children().apply(0), True
    ours = right.nodeName() == "SubqueryAlias" and str(right.alias()).startswith(ENRICHED)
    return ("broadcast" if small else _SHUFFLED) if ours else None
