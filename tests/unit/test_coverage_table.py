"""docs/coverage.md names things that are there: an example, and the tests that together prove the row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in (ROOT / "docs/coverage.md").read_text().splitlines()
    if re.match(r"\| [A-Z]\d+ \|", line)
]


def functions_in(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_row_is_there_once() -> None:
    ids = [row[0].strip("| ") for row in ROWS]
    assert len(ids) > 40
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("| "))
def test_example_and_tests_of_a_row_are_there(row: list[str]) -> None:
    _, _, example, tests = row
    assert (ROOT / example).is_file()
    for test in tests.strip("| ").split("<br>"):
        file, _, name = test.strip().partition("::")
        assert name in functions_in(ROOT / file), test
