"""Python steps: a function of the user's makes a DataFrame of DataFrames. Where its module is: `python_module`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed, from_worker
from penstock.record import KAFKA
from penstock.spec.python_file import file_of
from penstock.spec.python_step import PythonStep
from penstock.transform import python_module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TRACEBACK = re.compile(
    r"(?:^|(?<=: ))Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)+)(?P<raised>\S.*)$", re.MULTILINE
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
# Nothing that a record could be blamed for.
_NOT_OF_A_VALUE = ("ImportError", "ModuleNotFoundError", "MemoryError", "SystemExit", "KeyboardInterrupt")
_MANY_TO_ONE = {"Aggregate", "Distinct", "Deduplicate", "FlatMapGroupsInPandas", "FlatMapCoGroupsInPandas"}


def rows(view: str, step: PythonStep, base: Path, made: dict[str, DataFrame]) -> DataFrame:
    """What the function gives for the views made so far. Raises StepFailed."""
    lowered = {name.lower(): rows for name, rows in made.items()}
    missing = [name for name in step.from_ if name.lower() not in lowered]
    if missing:
        raise _failed(view, step, f"no view '{missing[0]}' before it", f"correct `from` of view '{view}' in the spec")
    given = [lowered[name.lower()] for name in step.from_]
    function = _function(view, step, base, given[0].sparkSession)
    try:
        result = function(*given)
    except Exception as error:
        cause = python_module.said(error)
        raise _failed(view, step, cause, f"correct {step.function}; view '{view}' in the spec") from None
    return _checked(view, step, given, result)


def worker_raised(text: str) -> list[str]:
    """The exceptions that a Python worker ended with, each in one line, the cause of another one before it. What stands
    behind the first can be quoted from a record."""
    return [found["raised"] for found in _TRACEBACK.finditer(text)]


def blame(text: str) -> str | None:
    """What a worker said, in one line, where it was a function of the user's that raised, and a record can be to blame
    for it; else None."""
    found = _raised(text, python_module.files)
    return None if found is None or found[0].split(".")[-1] in _NOT_OF_A_VALUE else found[1]


def raised_in(module: str, text: str) -> str | None:
    """What a worker said, in one line, where it was raised in this module of the user's, whatever it was; else None."""
    path = module.replace(".", "/")
    found = _raised(text, (f"{path}.py", f"{path}/__init__.py"))
    return found[1] if found else None


def _raised(text: str, files: Collection[str]) -> tuple[str, str] | None:
    """The kind of an exception, and all of it in one line with its place in one of these files.

    Its message may quote a record, tracebacks and all. What stands in the text before it cannot be a record's: so the
    kind is that of the first exception, and only the words are those of the last one that was raised in these files.
    """
    if from_worker(text):
        return None
    found = list(_TRACEBACK.finditer(text))
    raised = [(frame, each["raised"]) for each in found if (frame := _deepest(each["frames"], files))]
    if not raised:
        return None
    frame, said = raised[-1]
    kind = found[0]["raised"].split(":")[0]
    return kind, f"{said} ({Path(frame['file']).name}:{frame['line']}, in {frame['name']})"


def _deepest(frames: str, files: Collection[str]) -> re.Match[str] | None:
    """The last of these frames that is in one of these files."""
    lines = map(_FRAME.match, reversed(frames.split("\n")))
    return next((frame for frame in lines if frame and _is_step(frame["file"], files)), None)


def _is_step(file: str, files: Collection[str]) -> bool:
    """Whether a file that a worker names is one of these, and not one of the engine's or ours that ends alike."""
    if not any(file == name or file.endswith(f"/{name}") for name in files):
        return False
    for package in ("penstock", "pyspark"):
        home = Path(importlib.import_module(package).__file__ or "").parent
        inside = re.split(rf"/{package}(?:\.zip/{package})?/", file)[-1]
        if inside != file and (home / inside).is_file():
            return False
    return True


def _function(view: str, step: PythonStep, base: Path, spark: SparkSession) -> Callable[..., Any]:
    try:
        found = python_module.load(step.function, base)
    except Exception as error:
        cause = python_module.said(error)
        raise _failed(view, step, cause, f"correct {step.function}; view '{view}' in the spec") from None
    if not callable(found):
        cause = f"'{step.name}' is not a function"
        raise _failed(view, step, cause, f"correct `function` of view '{view}' in the spec")
    if file_of(step.module, base) is not None:
        python_module.send(spark, base)
    return found  # type: ignore[no-any-return]


def _checked(view: str, step: PythonStep, given: list[DataFrame], result: object) -> DataFrame:
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        kind = "nothing" if result is None else f"a {type(result).__name__}"
        raise _failed(view, step, f"it gives {kind}, not a DataFrame", f"let {step.function} return a DataFrame")
    if all(KAFKA in rows.columns for rows in given) and KAFKA not in result.columns and not _groups(result):
        raise _failed(
            view,
            step,
            f"it has no column `{KAFKA}`: which record a row came from would not be known any more",
            f"let {step.function} keep `{KAFKA}`; to leave it out on purpose: a SQL step after it",
        )
    return result


def _groups(rows: DataFrame) -> bool:
    """Whether rows are made of several: then there is no one record that they came from."""
    plan = rows._jdf.queryExecution().analyzed()
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.nodeName() in _MANY_TO_ONE:
            return True
        waiting += [node.children().apply(i) for i in range(node.children().size())]
    return False


def _failed(view: str, step: PythonStep, cause: str, next_command: str) -> StepFailed:
    return StepFailed(
        f"step '{view}': {step.function} does not give a view",
        cause=cause,
        next_command=next_command,
        facts={"view": view, "function": step.function},
    )
