"""Every example is a good spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spec.load import read

EXAMPLES = Path(__file__).parents[3] / "examples"
SPECS = sorted(EXAMPLES.glob("*/*.yaml"))


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.name)
def test_example_has_no_mistake(file: Path) -> None:
    pipeline, mistakes = read(file)
    assert pipeline is not None, mistakes
    assert {mistake.code for mistake in mistakes} <= {"reference-unset"}
