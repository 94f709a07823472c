"""Steps that compute over the rows of one batch, where the same query over a table would see all of them.

Told from the analyzed plan of a step, down to the views it reads: whatever compares, groups, orders or counts rows
there has only those of the batch, and a later batch gives its own result beside it. Reference tables are whole in every
batch, so what is computed of them alone is no matter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spec.steps import Step
from penstock.transform.sql import elements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MEANT = "per: batch"
_Said = tuple[str, str, str]  # what a step does, what that means per batch, and what does it over all batches

_OVER_ALL = "over all batches: a `join` step, or a reference table"
_JOINS = ("joins rows", "a row does not meet its counterpart in another batch", _OVER_ALL)
_ASKS = ("runs a subquery", "it sees only rows of the same batch", _OVER_ALL)
_REPEATS = ("keeps rows of a reference table", "they come out again with every batch", "let the batch's rows lead")
_COMPARES = (
    "compares rows",
    "the same row in two batches comes out twice",
    "over all batches: a `deduplicate` step, or an `upsert` sink, which keeps one row per key",
)
_RANKS = (
    "uses window functions",
    "each batch has its own first row, rank and running total",
    "over all batches: a `window`, `deduplicate` or `state` step, or an `upsert` sink, which keeps one row per key",
)
_ORDERS = (
    "sorts rows",
    "there is no order from one batch to the next",
    "sort where the rows are read",
)
_LIMITS = (
    "limits rows",
    "every batch gives so many again",
    "to leave rows out use `where`; for the newest or largest over time a `window` or `state` step",
)
_GROUPING = ("FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "MapGroups")


@dataclass(frozen=True)
class PerBatch:
    """What a step does with the rows of one batch only."""

    view: str
    does: str
    means: str
    instead: str

    def __str__(self) -> str:
        said = f"step '{self.view}' {self.does} within each batch, not across the stream"
        return f"{said}: {self.means}; {self.instead}; to accept this: `{MEANT}`"


def per_batch(step: Step, rows: DataFrame, made: dict[str, DataFrame], whole: Collection[str]) -> list[PerBatch]:
    """`made`: the views so far; `whole`: those that are reference tables. Empty for other steps than SQL and Python."""
    if step.per is not None or not (step.sql or step.python):
        return []
    reading = _Reading(made, whole)
    plan = rows._jdf.queryExecution().analyzed()
    reading.define(plan)
    found = {said[0]: PerBatch(step.view, *said) for node in reading.nodes(plan) if (said := reading.said(node))}
    if _LIMITS[0] in found:
        found.pop(_ORDERS[0], None)  # the order only says which rows
    return list(found.values())


class _Reading:
    """What the parts of a plan read: rows of the batch, or only what every batch has."""

    def __init__(self, made: dict[str, DataFrame], whole: Collection[str]) -> None:
        self._whole = {name.lower() for name in whole}
        self._names = {name.lower() for name in made}
        self._given = [
            (rows._jdf.queryExecution().analyzed(), name.lower() not in self._whole) for name, rows in made.items()
        ]
        self._defined: dict[int, Any] = {}  # of `with`, by its number

    def define(self, plan: Any) -> None:
        for node in self.nodes(plan):
            if node.nodeName() == "CTERelationDef":
                self._defined[node.id()] = node

    def nodes(self, plan: Any) -> Iterator[Any]:
        """All of them, down to the views."""
        yield plan
        if self._view(plan) is None:
            for child in elements(plan.children()):
                yield from self.nodes(child)

    def of_batch(self, plan: Any) -> bool:
        if (view := self._view(plan)) is not None:
            return view
        if plan.nodeName() == "CTERelationRef":
            return plan.cteId() in self._defined and self.of_batch(self._defined[plan.cteId()].child())
        return any(self.of_batch(each) for each in (*elements(plan.children()), *elements(plan.subqueries())))

    def said(self, node: Any) -> _Said | None:
        """What is to be said of a node; None where it goes row by row, or over reference tables only."""
        if self._view(node) is not None:
            return None
        if any(self.of_batch(query) for query in elements(node.subqueries())):
            return _ASKS
        kind, sides = node.nodeName(), [self.of_batch(each) for each in elements(node.children())]
        if not any(sides):
            return None
        match kind:
            case "Join" | "AsOfJoin":
                return _JOINS if all(sides) else _REPEATS if _keeps_table(node.joinType().toString(), *sides) else None
            case "Aggregate":
                return _groups(node.groupingExpressions())
            case "Distinct" | "Deduplicate" | "Intersect" | "Intersect All" | "Except" | "Except All":
                return _COMPARES
            case "Window":
                return _RANKS
            case "Sort":
                return _ORDERS if getattr(node, "global")() else None
            case "GlobalLimit" | "LocalLimit" | "Offset" | "Tail":
                return _LIMITS
        if kind.startswith("FlatMapCoGroups"):
            return _JOINS if all(sides) else None
        return _groups(node.groupingAttributes()) if kind in _GROUPING else None

    def _view(self, node: Any) -> bool | None:
        """Whether a view of the pipeline has rows of the batch; None for what is no such view."""
        if node.nodeName() == "View":
            name = str(node.desc().identifier().table()).lower()
            return name not in self._whole if name in self._names else None
        # A Python step gets views without their names.
        kind = node.nodeName()
        return next((of for plan, of in self._given if plan.nodeName() == kind and node.sameResult(plan)), None)


def _keeps_table(how: str, left: bool, right: bool) -> bool:
    """Whether a join of rows of the batch (`left` or `right` says which side) also gives rows of the other side, which
    every batch has again."""
    if how in ("LeftOuter", "LeftAnti", "LeftSemi"):
        return right
    return how == "FullOuter" or (how == "RightOuter" and left)


def _groups(keys: Any) -> _Said:
    names = [each.name() for each in elements(keys) if hasattr(each, "name") and "Attribute" in each.nodeName()]
    one = f"one `{', '.join(names)}`" if names else "a group"
    return (
        "groups rows",
        f"{one} in two batches gets two rows" if keys.size() else "every batch gives a row of its own",
        "over all batches: a `window` step; or an `upsert` sink with `order_by`, which keeps one row per key",
    )
