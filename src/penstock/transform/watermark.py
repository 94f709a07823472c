"""Event time: the watermark of a view, and which rows come too late for a step.

A row is late when the step it is for has closed what the row belongs to: its window, its session, its key. The engine
drops such rows without saying which; here the same decision is a condition, so that they can be counted and kept.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.errors import StepFailed
from penstock.spec.stateful import AnyStateful, Input, Window, sides
from penstock.spec.types import quoted
from penstock.transform.keyed import say_place
from penstock.transform.sql import row_for_row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def timed(view: str, rows: DataFrame, of: Input) -> DataFrame:
    """Rows that have an event time, with a watermark where the step says how late they may be: then without those that
    are too far ahead of the clock, which the watermark would follow. Raises StepFailed."""
    from pyspark.sql import functions as F

    time = of.time or ""
    kind = dict(rows.dtypes).get(time)
    if kind != "timestamp":
        there = ", ".join(name for name, of in rows.dtypes if of == "timestamp")
        raise StepFailed(
            f"step '{view}' has no event time: '{time}' is " + (f"a {kind}" if kind else "not a column of its view"),
            cause=f"columns that are a timestamp: {there or 'none'}",
            next_command=f"correct `time` of view '{view}', or make a timestamp of it with SQL before the step",
            facts={"view": view},
        )
    kept = rows.where(F.col(quoted(time)).isNotNull())
    if of.late_after is None:
        return kept
    return kept.where(of.in_bound()).withWatermark(time, interval(of.late_after))


def ahead(of: Input, clock_ms: int | None) -> Column:
    """Whether a row is too far ahead of the clock, and therefore not in the stream."""
    from pyspark.sql import functions as F

    return F.lit(False) if of.ahead is None else ~F.coalesce(F.expr(of.in_bound(clock_ms)), F.lit(True))


def traceable(rows: DataFrame, sources: dict[str, DataFrame]) -> bool:
    """Whether each row is of one record, and the only one of it: then the record can be a dead letter for it."""
    return say_place(rows) and any(row_for_row(rows, source) for source in sources.values())


def late(of: AnyStateful, side: int, watermark_ms: int) -> Column | None:
    """Whether a row that has an event time comes too late; None where none can. `side`: as in `sides`.

    With overlapping windows a row is late when it has missed one of its windows.
    """
    from pyspark.sql import functions as F

    time = sides(of)[side].time
    if time is None or not of.drops_late:
        return None
    at, closed = F.unix_micros(F.col(quoted(time))), F.lit(watermark_ms * 1000)
    if not isinstance(of, Window):
        return at <= closed
    if of.session is not None:
        return at + _micros(of.session) <= closed
    assert of.size is not None
    size, slide = _micros(of.size), _micros(of.slide or of.size)
    first = at - size - F.pmod(at - size, F.lit(slide)) + slide  # where the first window that it belongs to begins
    return first + size <= closed


def _micros(span: timedelta) -> int:
    return round(span.total_seconds() * 1_000_000)


def interval(span: timedelta) -> str:
    """As the engine wants it, for watermarks and windows."""
    return f"{round(span.total_seconds() * 1000)} milliseconds"
