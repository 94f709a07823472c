"""State per key by a class of the user's: `transformWithState`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed, first_line
from penstock.spec.fields import struct_of
from penstock.spec.stateful import State
from penstock.spec.types import quoted
from penstock.transform.keyed import require_key
from penstock.transform.watermark import timed

if TYPE_CHECKING:
    from types import ModuleType

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

    where, name = of.processor.rsplit(":", 1)
    try:
        module = _file(base / where) if where.endswith(".py") else importlib.import_module(where)
        made = getattr(module, name)()
    except Exception as error:
        raise _unusable(view, of, f"{type(error).__name__}: {first_line(error)}") from error
    if not isinstance(made, StatefulProcessor):
        raise _unusable(view, of, "it is not a pyspark.sql.streaming.StatefulProcessor")
    return made


def _file(path: Path) -> ModuleType:
    """A module that workers need not find: it is sent to them whole."""
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(f"penstock_state_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _unusable(view: str, of: State, cause: str) -> StepFailed:
    return StepFailed(
        f"step '{view}' has no processor: '{of.processor}' cannot be used",
        cause=cause,
        next_command=f"correct `processor` of view '{view}'; it is a file beside the spec, or a module Python can find",
        facts={"view": view},
    )
