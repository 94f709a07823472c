"""Every example is a good spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spec.case_load import read_tests
from penstock.spec.load import read

EXAMPLES = Path(__file__).parents[3] / "examples"
TESTS = sorted(EXAMPLES.glob("*/*.test.yaml"))
SPECS = sorted({*EXAMPLES.glob("*/*.yaml")} - {*TESTS})


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.name)
def test_example_has_no_mistake(file: Path) -> None:
    pipeline, mistakes = read(file)
    assert pipeline is not None, mistakes
    assert {mistake.code for mistake in mistakes} <= {"reference-unset"}


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_tests_of_an_example_have_no_mistake(file: Path) -> None:
    assert read_tests(file).cases.cases
