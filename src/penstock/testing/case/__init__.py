"""Unit tests of pipelines: cases in YAML, run on the real engine without a broker (docs/testing-pipelines.md).

from penstock.testing import case

for result in case.run("payments.yaml"):
    assert result.passed, result.text()
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.case.result import Result

__all__ = ["run"]


def run(*paths: str | Path) -> Iterator[Result]:
    """The result of each case in some files of tests: named themselves, by their spec, or by a directory.

    One Spark session for all of them, the one this process already has, or a new one that ends with the last case.
    Raises SpecInvalid for mistakes in the files, before anything is started.
    """
    from penstock.spec.case_load import find_tests, read_tests
    from penstock.testing.case.bench import Bench

    files = [read_tests(file) for path in paths for file in find_tests(Path(path))]
    with Bench([each.pipeline for each in files]) as bench:
        for tests in files:
            for each in tests.cases.cases:
                yield bench.tried(tests, each)
