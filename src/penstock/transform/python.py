"""Python steps: a function of the user's makes a DataFrame of DataFrames.

The module is imported here, in the driver, and sent to the Python workers (`addPyFile`), where its UDFs are imported
again: the same on this machine and on a cluster. Modules of the spec's directory that it imports are sent along.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed, first_line
from penstock.record import KAFKA
from penstock.spec.python_file import file_of
from penstock.spec.python_step import PythonStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_sent: dict[tuple[str, str], bytes] = {}  # by application and file name: what its workers have
_bases: set[str] = set()  # directories of specs that this process has imported from
_loaded: set[str] = set()  # modules that were imported from the directory of a spec
_files: set[str] = set()  # of the modules that steps are in, as tracebacks of workers end with them
_ENGINE = re.compile(r"[/\\](pyspark|py4j)[/\\]")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>.+)$')
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$")
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
        raise _failed(view, step, _said(error), f"correct {step.function}; view '{view}' in the spec") from None
    return _checked(view, step, given, result)


def blame(text: str) -> str | None:
    """What a worker said, in one line, where it was a function of the user's that raised; else None."""
    if "penstock.errors." in text:
        return None
    lines = text.split("\n")
    frames = [(i, found) for i, line in enumerate(lines) if (found := _FRAME.match(line)) and _is_step(found["file"])]
    if not frames:
        return None
    last, frame = frames[-1]
    raised = next(
        (found for line in lines[last + 1 :] if not line.startswith(" ") and (found := _RAISED.match(line))), None
    )
    if raised is None or raised["kind"].split(".")[-1] in _NOT_OF_A_VALUE:
        return None
    said = f"{raised['kind']}: {raised['text']}" if raised["text"] else raised["kind"]
    return f"{said} ({Path(frame['file']).name}:{frame['line']}, in {frame['name']})"


def _is_step(file: str) -> bool:
    """Whether a file that a worker names is one of theirs, and not one of the engine's or ours that ends alike."""
    if not any(file == name or file.endswith(f"/{name}") for name in _files):
        return False
    for package in ("penstock", "pyspark"):
        home = Path(importlib.import_module(package).__file__ or "").parent
        inside = re.split(rf"/{package}(?:\.zip/{package})?/", file)[-1]
        if inside != file and (home / inside).is_file():
            return False
    return True


def _function(view: str, step: PythonStep, base: Path, spark: SparkSession) -> Callable[..., Any]:
    file = file_of(step.module, base)
    try:
        module = _imported(step.module, base, file)
    except Exception as error:
        cause = _said(error)
        raise _failed(view, step, cause, f"correct {step.module}; view '{view}' in the spec") from None
    found = getattr(module, step.name, None)
    if not callable(found):
        what = "is not a function" if found is not None else "is not there"
        raise _failed(view, step, f"'{step.name}' {what}", f"correct `function` of view '{view}' in the spec")
    if module.__file__:
        _files.add("/".join(Path(module.__file__).parts[-len(step.module.split(".")) :]))
    if file is not None:
        _send(spark, base)
    return found  # type: ignore[no-any-return]


def _imported(name: str, base: Path, file: Path | None) -> ModuleType:
    """The module; one of the spec's directory comes from there, or not at all."""
    if file is None:
        return importlib.import_module(name)
    known = sys.modules.get(name)
    if known is not None and Path(known.__file__ or "").resolve() == file.resolve():
        return known
    if known is not None and name not in _loaded:
        raise ImportError(f"another module is called '{name}': give {file.name} another name")
    sys.modules.pop(name, None)
    _look_in(base)
    module = importlib.import_module(name)
    if Path(module.__file__ or "").resolve() != file.resolve():
        del sys.modules[name]
        raise ImportError(f"an installed module is called '{name}' too: give {file.name} another name")
    _loaded.add(name)
    return module


def _look_in(base: Path) -> None:
    """Make modules of this directory importable; those of another spec's directory no longer are."""
    for other in [path for path in sys.path if path in _bases and path != str(base)]:
        sys.path.remove(other)
        for name, module in list(sys.modules.items()):
            file = file_of(name, Path(other))
            if file is not None and getattr(module, "__file__", None) == str(file):
                del sys.modules[name]
    if str(base) not in sys.path:
        sys.path.append(str(base))  # last, so that no file beside a spec stands in for a library
    _bases.add(str(base))
    importlib.invalidate_caches()


def _send(spark: SparkSession, base: Path) -> None:
    """Every module of the spec's directory that is imported by now, each once."""
    context = spark.sparkContext
    inside = base.resolve()
    for name, module in sorted(sys.modules.items()):
        file = file_of(name, inside)
        if file is None or Path(getattr(module, "__file__", None) or "").resolve() != file.resolve():
            continue
        content = file.read_bytes()
        key = (str(context.applicationId), name)
        if _sent.get(key) == content:
            continue
        if key in _sent:
            raise StepFailed(
                f"module '{name}' has changed while its pipeline runs",
                cause=f"{file} is not what the workers were sent",
                next_command="start again: penstock run FILE",
            )
        _sent[key] = content
        package = inside / name.split(".")[0]
        context.addPyFile(str(_zipped(package) if package.is_dir() else file))


def _zipped(package: Path) -> Path:
    import shutil
    import tempfile

    made = shutil.make_archive(
        str(Path(tempfile.mkdtemp(prefix="penstock-python-")) / package.name), "zip", package.parent, package.name
    )
    return Path(made)


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


def _said(error: Exception) -> str:
    """The exception in one line, with the deepest place in a file that is not the engine's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _ENGINE.search(f.filename)]
    place = next((f for f in reversed(frames) if f.filename != __file__ and not f.filename.startswith("<")), None)
    text = f"{type(error).__name__}: {first_line(error)}" if first_line(error) else type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{text} ({Path(error.filename or '').name}:{error.lineno})"
    return f"{text} ({Path(place.filename).name}:{place.lineno})" if place else text
