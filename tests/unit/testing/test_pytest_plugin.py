"""The pytest plugin as every run of pytest meets it; what it does with tests is in tests/integration/test_cases.py"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_plugin_is_an_entry_point_and_loads_nothing_of_penstock_or_the_engine() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert named == {"penstock": "penstock.testing.pytest_plugin"}
    program = f"import pytest, sys\nx = set(sys.modules)\nimport {named['penstock']}\nprint(*(set(sys.modules) - x))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) <= {"penstock", "penstock.testing", "penstock.testing.pytest_plugin"}


def test_files_of_another_name_are_not_collected(tmp_path: Path) -> None:
    for name in ("spec.yaml", "test.yaml", "test_spec.yaml", "a.test.yaml.txt"):
        (tmp_path / name).write_text("cases: []")
    (tmp_path / "test_something.py").write_text("def test_it(): pass")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "penstock.testing.pytest_plugin", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith("1 passed"), done.stdout
