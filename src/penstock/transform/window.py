"""Windows of event time: tumbling, sliding, sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import StepFailed, first_line
from penstock.spec.stateful import WINDOW, WINDOW_TIME, Window, sides
from penstock.spec.types import quoted
from penstock.transform.watermark import interval, timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(view: str, of: Window, source: DataFrame, *, followed: bool) -> DataFrame:
    """`followed`: another stateful step comes after it, which needs `window_time`, the event time of the window."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    read = timed(view, source, sides(of)[0])
    if of.session is not None:
        window = F.session_window(quoted(of.time), interval(of.session))
    else:
        assert of.size is not None
        slide = interval(of.slide) if of.slide else None
        window = F.window(quoted(of.time), interval(of.size), slide)
    inside = "window" if of.session is None else "session_window"  # the engine's names; the spec allows no other such
    start, end = (F.col(f"{inside}.{part}").alias(name) for part, name in zip(("start", "end"), WINDOW, strict=True))
    try:
        made = read.groupBy(window, *(quoted(name) for name in of.by)).agg(
            *(F.expr(what).alias(name) for name, what in of.columns.items())
        )
        also = [F.window_time(inside).alias(WINDOW_TIME)] if followed else []
        columns = [*of.by, *of.columns]
        return made.select(start, end, *also, *(F.col(quoted(name)) for name in columns))
    except PySparkException as error:
        raise StepFailed(
            f"step '{view}' is not made of aggregates over view '{of.from_}'",
            cause=first_line(error),
            next_command=f"correct `by` or `columns` of view '{view}' in the spec",
            facts={"view": view},
        ) from None
