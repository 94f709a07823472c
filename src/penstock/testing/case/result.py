"""What came of a case: passed, or what is different from what it expects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.testing.case.values import as_json

Row = dict[str, Any]


@dataclass
class Outcome:
    """What came out of a case."""

    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # of sinks, and of views as `view NAME`
    letters: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    error: PenstockError | None = None


@dataclass(frozen=True)
class Pair:
    """A row that was expected and the one that came, either of which may be missing; the columns that differ."""

    expected: Row | None
    got: Row | None
    differ: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return self.expected is not None and self.got is not None and not self.differ


@dataclass(frozen=True)
class Difference:
    """Rows of one sink or view, or dead letters, that are not as expected."""

    of: str  # sink lake; dead letters
    columns: tuple[str, ...]  # that are compared, or worth showing
    pairs: tuple[Pair, ...]

    @property
    def expected(self) -> int:
        return sum(pair.expected is not None for pair in self.pairs)

    @property
    def got(self) -> int:
        return sum(pair.got is not None for pair in self.pairs)

    def as_dict(self) -> dict[str, Any]:
        return {
            "of": self.of,
            "expected": self.expected,
            "got": self.got,
            "missing": [as_json(pair.expected) for pair in self.pairs if pair.got is None],
            "unexpected": [as_json(_only(pair.got, self.columns)) for pair in self.pairs if pair.expected is None],
            "different": [
                {"expected": as_json(pair.expected), "got": as_json(_only(pair.got, self.columns)), "in": pair.differ}
                for pair in self.pairs
                if pair.expected is not None and pair.got is not None and pair.differ
            ],
        }


@dataclass(frozen=True)
class Result:
    file: Path
    line: int
    name: str
    seconds: float = 0.0
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()  # what else is not as expected: counts, an error
    error: PenstockError | None = None  # that nobody expected

    @property
    def passed(self) -> bool:
        return not self.differences and not self.notes and self.error is None

    def text(self, width: int = 80) -> str:
        """What is wrong, for people; empty for a case that passed."""
        from penstock.testing.case.text import lines

        return "\n".join(lines(self, width))

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "file": str(self.file),
            "line": self.line,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "differences": [each.as_dict() for each in self.differences],
            "notes": list(self.notes),
            "error": self.error.as_dict() if self.error else None,
        }


def _only(row: Row | None, columns: tuple[str, ...]) -> Row | None:
    return None if row is None else {name: row[name] for name in columns if name in row}
