"""The pytest plugin: every case of a `*.test.yaml` file is a test. It comes with Penstock; `-p no:penstock` is without.

Imported by every run of pytest where Penstock is installed, so it imports nothing before it meets such a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.spec.case import Case
    from penstock.spec.case_load import TestFile
    from penstock.testing.case.bench import Bench
    from penstock.testing.case.result import Result

_PATTERNS = ("*.test.yaml", "*.test.yml")
_BENCH = pytest.StashKey["Bench"]()
_WIDTH = 80


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if any(file_path.match(pattern) for pattern in _PATTERNS):
        collector: pytest.Collector = CasesFile.from_parent(parent, path=file_path)
        return collector
    return None


def pytest_unconfigure(config: pytest.Config) -> None:
    bench = config.stash.get(_BENCH, None)
    if bench is not None:
        bench.close()


class CasesFile(pytest.File):
    """A file of tests."""

    def collect(self) -> Iterator[pytest.Item]:
        from penstock.errors import PenstockError
        from penstock.spec.case_load import read_tests

        try:
            tests = read_tests(self.path)
        except PenstockError as error:
            raise self.CollectError(_said(error)) from None
        for case in tests.cases.cases:
            yield CaseItem.from_parent(self, name=case.name, tests=tests, case=case)


class CaseItem(pytest.Item):
    """One case. All cases of a run share one Spark session."""

    def __init__(self, *, tests: TestFile, case: Case, **rest: Any) -> None:
        super().__init__(**rest)
        self.tests, self.case = tests, case

    def runtest(self) -> None:
        result = self._bench().tried(self.tests, self.case)
        if not result.passed:
            raise CaseFailed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from penstock.errors import PenstockError

        if isinstance(excinfo.value, CaseFailed):
            return f"{self.path.name}:{self.tests.line(self.case)}: {self.case.name}\n{excinfo.value}"
        if isinstance(excinfo.value, PenstockError):
            return _said(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.tests.line(self.case) - 1, self.name

    def _bench(self) -> Bench:
        from penstock.testing.case.bench import Bench

        if _BENCH not in self.config.stash:
            items = (item for item in self.session.items if isinstance(item, CaseItem))
            self.config.stash[_BENCH] = Bench(item.tests.pipeline for item in items)
        return self.config.stash[_BENCH]


class CaseFailed(AssertionError):
    def __init__(self, result: Result) -> None:
        super().__init__(result.text(_WIDTH))


def _said(error: Any) -> str:
    parts = [f"error[{error.code}]: {error.what}"]
    parts += [f"  cause: {error.cause}"] if error.cause else []
    parts += [f"  next:  {error.next_command}"] if error.next_command else []
    return "\n".join(parts)
