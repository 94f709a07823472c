"""Joins of two streams, with bounds in event time: without them nothing could ever be forgotten."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from penstock.errors import StepFailed, first_line
from penstock.spec.stateful import Join, sides
from penstock.spec.types import quoted
from penstock.transform.watermark import interval, timed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TYPES = {"inner": "inner", "left": "left_outer", "right": "right_outer", "full": "full_outer"}


def rows(view: str, of: Join, left: DataFrame, right: DataFrame) -> DataFrame:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    inputs = zip((left, right), sides(of), strict=True)
    one, other = (timed(view, rows, each).alias(each.view) for rows, each in inputs)
    try:
        made = one.join(other, _condition(of), _TYPES[of.type])
        return made.select(*(F.expr(what).alias(name) for name, what in of.columns.items()))
    except PySparkException as error:
        raise StepFailed(
            f"step '{view}' is not a join of views '{of.left.from_}' and '{of.right.from_}'",
            cause=first_line(error),
            next_command=f"correct `on` or `columns` of view '{view}' in the spec",
            facts={"view": view},
        ) from None


def _condition(of: Join) -> Column:
    from pyspark.sql import functions as F

    left, right = quoted(of.left.from_), quoted(of.right.from_)
    if isinstance(of.on, str):
        same = F.expr(of.on)
    else:
        equal = [F.col(f"{left}.{quoted(name)}") == F.col(f"{right}.{quoted(name)}") for name in of.on]
        same = reduce(lambda a, b: a & b, equal)
    first, second = f"{left}.{quoted(of.left.time)}", f"{right}.{quoted(of.right.time)}"
    earliest = f" - interval {interval(of.before)}" if of.before else ""
    bounds = f"{second} >= {first}{earliest} and {second} <= {first} + interval {interval(of.within)}"
    within = same & F.expr(bounds)
    if of.type != "full":
        return within
    # The engine compares keys in its state byte by byte, and one null is the same bytes as another. It leaves rows with
    # such a key out beforehand, but not in a full join, in which they are rows without a counterpart.
    return within & F.coalesce(same, F.lit(False))
