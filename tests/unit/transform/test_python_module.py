"""Modules that a spec names: found beside it or installed, never mixed up, and whole where they are taken."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from pyspark import cloudpickle

from penstock.errors import StepFailed
from penstock.transform import python_module


@pytest.fixture
def name() -> str:
    return f"beside_{uuid.uuid4().hex[:8]}"


def written(directory: Path, file: str, text: str) -> None:
    place = directory / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def test_module_in_a_directory_below_the_spec_and_one_that_is_installed(tmp_path: Path, name: str) -> None:
    written(tmp_path, f"{name}/steps.py", "def one():\n    return 1\n")
    assert python_module.load(f"{name}.steps:one", tmp_path)() == 1
    assert python_module.load("json:loads", tmp_path)("1") == 1


def test_modules_of_one_name_beside_two_specs_are_two(tmp_path: Path, name: str) -> None:
    for which in ("one", "two"):
        written(tmp_path, f"{which}/{name}.py", f"from {name}_word import WORD\n\n\ndef said():\n    return WORD\n")
        written(tmp_path, f"{which}/{name}_word.py", f"WORD = '{which}'\n")
    for which in ("one", "two", "one"):
        assert python_module.load(f"{name}:said", tmp_path / which)() == which


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'one' is not there"),
        ("one = {}['x']\n", "KeyError: 'x' ({file}:1)"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found' ({file}:1)"),
        ("def one(:\n", "SyntaxError: invalid syntax ({file}:1)"),
    ],
)
def test_what_is_wrong_with_a_module_is_one_line_with_its_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    written(tmp_path, f"{name}.py", text)
    with pytest.raises((LookupError, ImportError, SyntaxError)) as raised:
        python_module.load(f"{name}:one", tmp_path)
    assert python_module.said(raised.value) == said.format(file=f"{name}.py")


def test_file_that_is_called_as_a_library_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "json.py", "def loads():\n    return 'mine'\n")
    with pytest.raises(ImportError, match=r"give json\.py another name"):
        python_module.load("json:loads", tmp_path)


def test_second_module_of_one_name_reaches_the_workers_by_value(tmp_path: Path, name: str) -> None:
    """Two specs that are tested in one application: its workers can have one file of a name only."""
    for which in ("one", "two"):
        written(tmp_path, f"{which}/{name}.py", f"def said():\n    return '{which}'\n")
    python_module.load(f"{name}:said", tmp_path / "one")
    assert python_module.unsent(name, tmp_path / "one") == [tmp_path / "one" / f"{name}.py"]
    other = python_module.load(f"{name}:said", tmp_path / "two")
    assert python_module.unsent(name, tmp_path / "two") == []
    assert said_by_a_worker(cloudpickle.dumps(other), tmp_path / "one") == "two"  # type: ignore[no-untyped-call]
    first = python_module.load(f"{name}:said", tmp_path / "one")
    assert python_module.unsent(name, tmp_path / "one") == []  # they have it
    assert said_by_a_worker(cloudpickle.dumps(first), tmp_path / "one") == "one"  # type: ignore[no-untyped-call]


def test_module_that_changes_while_its_pipeline_runs_is_refused(tmp_path: Path, name: str) -> None:
    written(tmp_path, f"{name}.py", "def said():\n    return 1\n")
    python_module.load(f"{name}:said", tmp_path)
    assert python_module.unsent(name, tmp_path) == [tmp_path / f"{name}.py"]
    written(tmp_path, f"{name}.py", "def said():\n    return 2\n")
    with pytest.raises(StepFailed, match="has changed while its pipeline runs"):
        python_module.unsent(name, tmp_path)


def said_by_a_worker(pickled: bytes, directory: Path) -> str:
    """What a function says in a process that has the modules of one directory."""
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)())"
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickled, capture_output=True, cwd=directory, check=True
    )
    return done.stdout.decode().strip()


def test_what_is_pickled_by_value_needs_neither_its_module_nor_those_it_imports(tmp_path: Path, name: str) -> None:
    written(tmp_path, f"{name}_word.py", "WORD = 'here'\n")
    text = f"import {name}_word as word\n\n\nclass Says:\n    def said(self):\n        return word.WORD\n"
    written(tmp_path, f"{name}.py", text)
    made = python_module.load(f"{name}:Says", tmp_path)()
    python_module.by_value(tmp_path)
    pickled = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).said())"
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, cwd="/", check=False)
    assert done.stdout == b"here\n", done.stderr.decode()
