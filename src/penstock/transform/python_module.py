"""Modules that a spec names, as `module:name`: a file in the directory of the spec, or an installed one.

A module is imported here, in the driver. How it gets to the Python workers depends on what is named:

- Functions of Python steps: its file is sent (`addPyFile`), so a worker imports it once and keeps what it keeps.
  Modules of the spec's directory that it imports are sent along. The same on this machine and on a cluster.
- Classes that keep state: by value, with those same modules. The engine also asks the class in a Python process of its
  own beside the driver, and that one has none of the files that were sent.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.errors import StepFailed, first_line
from penstock.spec.python_file import file_of
from penstock.spec.python_step import parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

files: set[str] = set()  # of the modules that were named, as tracebacks of workers end with them
_sent: dict[tuple[str, str], tuple[Path, bytes]] = {}  # by application and module: what its workers have, from where
_bases: set[str] = set()  # directories of specs that this process has imported from
_loaded: set[str] = set()  # modules that were imported from the directory of a spec
_SENT_COPIES = re.compile(r"[/\\]userFiles-[0-9a-f-]+")
_ENGINE = re.compile(r"[/\\](pyspark|py4j)[/\\]")


class NotThere(LookupError):
    """The module has no such name."""


def load(written: str, base: Path) -> Any:
    """What `module:name` names. Raises whatever its import raises, and NotThere."""
    name, attribute = parts(written)
    module = _imported(name, base, file_of(name, base))
    if module.__file__:
        files.add("/".join(Path(module.__file__).parts[-len(name.split(".")) :]))
    if not hasattr(module, attribute):
        raise NotThere(f"'{attribute}' is not there")
    return getattr(module, attribute)


def send(spark: SparkSession, base: Path) -> None:
    """Every module of the spec's directory that is imported by now, each once."""
    context = spark.sparkContext
    for file in unsent(str(context.applicationId), base):
        context.addPyFile(str(file))


def unsent(application: str, base: Path) -> list[Path]:
    """The files that the workers of an application lack, which are taken for sent from now on.

    None where they have files of these names from another directory, as when two specs are tested together: a worker
    cannot have two modules of one name, so those of this directory are pickled by value instead.
    """
    inside = base.resolve()
    modules = [(name, file) for name, _, file in _imported_from(inside)]
    if any(_sent.get((application, name), (inside, b""))[0] != inside for name, _ in modules):
        by_value(base)
        return []
    files = []
    for name, file in modules:
        content, known = file.read_bytes(), _sent.get((application, name))
        if known is not None and known[1] != content:
            raise StepFailed(
                f"module '{name}' has changed while its pipeline runs",
                cause=f"{file} is not what the workers were sent",
                next_command="start again: penstock run FILE",
            )
        if known is None:
            _sent[application, name] = inside, content
            package = inside / name.split(".")[0]
            files.append(_zipped(package) if package.is_dir() else file)
    return files


def by_value(base: Path) -> None:
    """From now on what is pickled takes the modules of the spec's directory along."""
    from pyspark import cloudpickle

    for _, module, _ in _imported_from(base.resolve()):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def said(error: Exception) -> str:
    """The exception in one line, with the deepest place in a file that is not the engine's."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _ENGINE.search(f.filename)]
    place = next((f for f in reversed(frames) if not _is_ours(f.filename)), None)
    text = f"{type(error).__name__}: {first_line(error)}" if first_line(error) else type(error).__name__
    if isinstance(error, NotThere):
        return first_line(error)
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename or '').name}:{error.lineno})"
    return f"{text} ({Path(place.filename).name}:{place.lineno})" if place else text


def _is_ours(file: str) -> bool:
    return Path(file).parent == Path(__file__).parent or file.startswith("<") or file == importlib.__file__


def _imported(name: str, base: Path, file: Path | None) -> ModuleType:
    """The module; one of the spec's directory comes from there, or not at all."""
    if file is None:
        return importlib.import_module(name)
    known = sys.modules.get(name)
    if known is not None and Path(known.__file__ or "").resolve() == file.resolve():
        return known
    if known is not None and name not in _loaded:
        raise ImportError(f"another module is called '{name}': give {file.name} another name")
    _look_in(base)
    sys.modules.pop(name, None)
    with _without_copies():
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
        for name, module, _ in list(_imported_from(Path(other))):
            with suppress(ValueError):  # one that was never sent by value
                _unregister(module)
            del sys.modules[name]
    if str(base) not in sys.path:
        sys.path.append(str(base))  # last, so that no file beside a spec stands in for a library
    _bases.add(str(base))
    importlib.invalidate_caches()


@contextmanager
def _without_copies() -> Iterator[None]:
    """The engine has what it sends to workers in a directory that is on the path of the driver too. A module in there
    may be that of another spec."""
    copies = [path for path in sys.path if _SENT_COPIES.search(path)]
    sys.path[:] = [path for path in sys.path if path not in copies]
    try:
        yield
    finally:
        sys.path[1:1] = copies


def _unregister(module: ModuleType) -> None:
    from pyspark import cloudpickle

    cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _imported_from(base: Path) -> Iterator[tuple[str, ModuleType, Path]]:
    """Modules of a directory that this process has imported, with their files."""
    for name, module in sorted(sys.modules.items()):
        file = file_of(name, base)
        there = getattr(module, "__file__", None)
        if file is not None and there and Path(there).resolve() == file.resolve():
            yield name, module, file


def _zipped(package: Path) -> Path:
    import shutil
    import tempfile

    made = shutil.make_archive(
        str(Path(tempfile.mkdtemp(prefix="penstock-python-")) / package.name), "zip", package.parent, package.name
    )
    return Path(made)
