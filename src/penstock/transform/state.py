"""State per key by a class of the user's: `transformWithState`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed
from penstock.spec.fields import struct_of
from penstock.spec.stateful import State
from penstock.spec.types import quoted
from penstock.transform import python_module
from penstock.transform.keyed import require_key
from penstock.transform.watermark import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = {"none": "None", "event": "EventTime", "processing": "ProcessingTime"}


def rows(view: str, of: State, source: DataFrame, base: Path) -> DataFrame:
    made = processor(view, of, base)
    columns = struct_of(of.fields).columns()
    require_key(view, of, source)
    read = timed(view, source, of.time, of.late_after) if of.time else source
    if not source.isStreaming:
        return source.sparkSession.createDataFrame([], columns)
    grouped = read.groupBy(*(quoted(name) for name in of.key))
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
    python_module.by_value(base)
    return made


def _unusable(view: str, of: State, cause: str) -> StepFailed:
    return StepFailed(
        f"step '{view}' has no processor: '{of.processor}' cannot be used",
        cause=cause,
        next_command=f"correct `processor` of view '{view}'; it is a file beside the spec, or a module Python can find",
        facts={"view": view},
    )
