"""State per key by a class of the user's: `transformWithState`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed
from penstock.spec.fields import struct_of
from penstock.spec.stateful import State, sides
from penstock.spec.types import quoted
from penstock.transform import python_module
from penstock.transform.keyed import in_order, require_key
from penstock.transform.watermark import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = {"none": "None", "event": "EventTime", "processing": "ProcessingTime"}


def rows(view: str, of: State, source: DataFrame, base: Path, *, ordered: bool) -> DataFrame:
    made = processor(view, of, base)
    columns = struct_of(of.fields).columns()
    require_key(view, of, source)
    read = timed(view, source, sides(of)[0]) if of.time else source
    if not source.isStreaming:
        return source.sparkSession.createDataFrame([], columns)
    grouped = (in_order(of.key, read) if ordered else read).groupBy(*(quoted(name) for name in of.key))
    return grouped.transformWithState(made, columns, of.emit.capitalize(), _TIMES[of.timers])


def processor(view: str, of: State, base: Path) -> Any:
    """An instance of the class that the spec names. Raises StepFailed."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    try:
        made = python_module.load(of.processor, base)()
    except Exception as error:
        raise _unusable(view, of, python_module.said(error)) from error
    if not isinstance(made, StatefulProcessor):
        raise _unusable(view, of, "it is not a pyspark.sql.streaming.StatefulProcessor")
    if wrong := _called_otherwise(made, of):
        raise _unusable(view, of, wrong)
    python_module.by_value(base)
    return made


def _called_otherwise(made: Any, of: State) -> str | None:
    """Which method does not take what Spark calls it with. Without this it would show when the first timer expires."""
    calls: dict[str, tuple[tuple[str, ...], dict[str, None]]] = {
        "init": (("handle",), {}),
        "handleInputRows": (("key", "rows", "timerValues"), {}),
        "close": ((), {}),
    }
    if of.timers != "none":
        calls["handleExpiredTimer"] = (), dict.fromkeys(("key", "timerValues", "expiredTimerInfo"))
    for name, (by_position, by_name) in calls.items():
        try:
            inspect.signature(getattr(made, name)).bind(*by_position, **by_name)
        except TypeError as error:
            code = inspect.unwrap(getattr(made, name)).__code__
            said = f"{name}: {error} ({Path(code.co_filename).name}:{code.co_firstlineno})"
            return f"{said}; Spark calls {name}({', '.join((*by_position, *by_name))})"
    return None


def _unusable(view: str, of: State, cause: str) -> StepFailed:
    return StepFailed(
        f"step '{view}' has no processor: '{of.processor}' cannot be used",
        cause=cause,
        next_command=f"correct `processor` of view '{view}'; it is a file beside the spec, or a module Python can find",
        facts={"view": view},
    )
