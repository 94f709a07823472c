"""Steps that are run beside the record: the row that SQL makes of it, as one column, null where it makes none.

In a batch a step leaves rows out, and what it left out is looked up again. A stream that is sent on record by record
has nowhere to look it up: every record must still be there at the end, to be sent, to become a dead letter or to be
counted as dropped. So the plan of the steps is taken apart and put together again over the same rows: each condition
becomes a flag, each projection a struct, and a failure (a division by zero, a cast) the flag `failed` instead of an
error that would stop the stream. Projections and conditions are all there can be: a plan with anything else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import NotInRealTime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_THROUGH = ("SubqueryAlias", "View")  # they only give names
_LIKELY = {
    "Aggregate": "it groups rows",
    "Join": "it joins",
    "GlobalLimit": "it limits rows",
    "Distinct": "it compares rows",
    "Deduplicate": "it compares rows",
    "Sort": "it sorts rows",
    "Window": "it computes over several rows",
    "Generate": "it makes several rows of one",
    "Union": "it puts rows together",
}


@dataclass(frozen=True)
class Carried:
    """`rows` with two more columns: the struct `made`, null for a record that no row is made of, and `failed`."""

    rows: DataFrame
    made: str
    failed: str


def carried(over: DataFrame, base: DataFrame, result: DataFrame, name: str, view: str) -> Carried:
    """`over`: the rows of `base` with columns added; `result`: a chain of steps over `base`, the last of which makes
    `view`, for sink `name`. Called once per start.

    Raises NotInRealTime for steps that are more than projections and conditions.
    """
    chain, source = _chain(base, result, name, view)
    return _Chain(over, base, name).put_together(chain, source)


def _chain(base: DataFrame, result: DataFrame, name: str, view: str) -> tuple[list[Any], Any]:
    """The nodes between `base` and `result`, from below, and `base` as it is seen from there."""
    spark: Any = base.sparkSession
    queries = spark._jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression
    plan, target = (frame._jdf.queryExecution().analyzed() for frame in (result, base))
    found: list[Any] = []
    while not plan.sameResult(target):
        kind = plan.nodeName()
        if kind == "View":  # what is below it is in the step of that view
            view = plan.desc().identifier().table()
        if kind not in ("Project", "Filter", *_THROUGH) or plan.children().size() != 1:
            cause = f"{_LIKELY.get(kind, 'it does more than to choose columns and rows')} ({kind}); records are sent "
            cause += "on one by one, and each can become one record at most"
            raise _refused(name, view, kind, cause)
        if kind not in _THROUGH:
            if any(queries.hasSubquery(each) for each in _expressions(plan)):
                cause = "a query inside a query would have to see all records; here there is one at a time"
                raise _refused(name, view, "Subquery", cause)
            found.append(plan)
        plan = plan.children().apply(0)
    return found[::-1], plan


def _expressions(node: Any) -> list[Any]:
    """What a condition or a projection computes."""
    return [node.condition()] if node.nodeName() == "Filter" else _listed(node.projectList())


def _refused(name: str, view: str, node: str, cause: str) -> NotInRealTime:
    return NotInRealTime(
        f"the steps before sink '{name}' are not for real-time mode",
        cause=cause,
        next_command="leave it to a pipeline with `trigger: continuous`, or write the step as a plain select",
        facts={"sink": name, "view": view, "node": node},
    )


class _Chain:
    def __init__(self, over: DataFrame, base: DataFrame, name: str) -> None:
        spark: Any = over.sparkSession
        self._spark: SparkSession = spark
        self._jvm: Any = spark._jvm
        self._name = name
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._e, self._l = catalyst.expressions, catalyst.plans.logical
        self._plan = over._jdf.queryExecution().analyzed()
        self._kept_columns = _listed(self._plan.output())
        self._base = _listed(base._jdf.queryExecution().analyzed().output())
        self._columns: list[Any] = []  # of the node that was last put on

    def put_together(self, chain: list[Any], source: Any) -> Carried:
        self._columns = [
            mine if mine.exprId().equals(seen.exprId()) else self._alias(mine, seen.name(), seen.exprId())
            for mine, seen in zip(self._base, _listed(source.output()), strict=True)
        ]
        kept, failed = self._alias(self._literal(True), "kept"), self._alias(self._literal(False), "failed")
        self._project([*self._columns, kept, failed])
        self._columns = [_attribute(each) for each in self._columns]
        kept, failed = _attribute(kept), _attribute(failed)
        for node in chain:
            put_on = self._filter if node.nodeName() == "Filter" else self._select
            kept, failed = put_on(_expressions(node), kept, failed)
        row = self._struct([(each.name(), each) for each in self._columns])
        made = self._alias(self._if(kept, row), f"_made_{self._name}")
        gone = self._alias(failed, f"_failed_{self._name}")
        self._project([made, gone])
        from pyspark.sql import DataFrame

        frame = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session(), self._plan)
        return Carried(DataFrame(frame, self._spark), made.name(), gone.name())

    def _filter(self, wanted: list[Any], kept: Any, failed: Any) -> tuple[Any, Any]:
        e = self._e
        tried = self._tried(wanted, kept, failed)
        held = e.And(kept, e.EqualNullSafe(e.GetStructField(tried, 0, self._none()), self._literal(True)))
        return self._flags(self._columns, held, kept, failed, tried)

    def _select(self, wanted: list[Any], kept: Any, failed: Any) -> tuple[Any, Any]:
        e = self._e
        plain = {i for i, each in enumerate(wanted) if each.getClass().getSimpleName() == "AttributeReference"}
        if len(plain) == len(wanted):
            self._columns = wanted
            return kept, failed
        made = [i for i in range(len(wanted)) if i not in plain]
        tried = self._tried([wanted[i].child() for i in made], kept, failed)
        columns = [
            each
            if i in plain
            else self._alias(e.GetStructField(tried, made.index(i), self._none()), each.name(), each.exprId())
            for i, each in enumerate(wanted)
        ]
        return self._flags(columns, e.And(kept, e.IsNotNull(tried)), kept, failed, tried)

    def _tried(self, wanted: list[Any], kept: Any, failed: Any) -> Any:
        """A struct of some expressions, computed for rows that are kept; null where one of them fails."""
        struct = self._struct([(str(i), each) for i, each in enumerate(wanted)])
        tried = self._alias(self._if(kept, self._e.TryEval(struct)), "tried")
        self._project([*self._columns, kept, failed, tried])
        return _attribute(tried)

    def _flags(self, columns: list[Any], held: Any, kept: Any, failed: Any, tried: Any) -> tuple[Any, Any]:
        e = self._e
        now = self._alias(held, "kept")
        gone = self._alias(e.Or(failed, e.And(kept, e.IsNull(tried))), "failed")
        self._project([*columns, now, gone])
        self._columns = [_attribute(each) for each in columns]
        return _attribute(now), _attribute(gone)

    def _project(self, columns: list[Any]) -> None:
        """The columns that are carried along, and these, each once."""
        every = {str(each.exprId()): each for each in (*self._kept_columns, *columns)}
        self._plan = self._l.Project(self._seq(every.values()), self._plan)

    def _struct(self, named: list[tuple[str, Any]]) -> Any:
        return self._e.CreateNamedStruct(
            self._seq(part for name, each in named for part in (self._literal(name), each))
        )

    def _if(self, condition: Any, then: Any) -> Any:
        """Branches are computed only where they are taken; what stands in one is not computed ahead."""
        return self._e.If(condition, then, self._e.Literal(None, then.dataType()))

    def _literal(self, value: bool | str) -> Any:
        types = self._jvm.org.apache.spark.sql.types.DataTypes
        if isinstance(value, bool):
            return self._e.Literal(value, types.BooleanType)
        return self._e.Literal(self._jvm.org.apache.spark.unsafe.types.UTF8String.fromString(value), types.StringType)

    def _alias(self, child: Any, name: str, id_: Any = None) -> Any:
        id_ = self._e.NamedExpression.newExprId() if id_ is None else id_
        return self._e.Alias(child, name, id_, self._seq([]), self._none(), self._seq([]))

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()

    def _seq(self, items: Any) -> Any:
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(items))

    def _session(self) -> Any:
        return self._spark._jsparkSession


def _attribute(named: Any) -> Any:
    return named.toAttribute()


def _listed(seq: Any) -> list[Any]:
    return [seq.apply(i) for i in range(seq.size())]
