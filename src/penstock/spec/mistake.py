"""A mistake in a spec: where it is, what is wrong, and what is allowed instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Path = tuple[str | int, ...]
"""Keys and list positions from the top of a file down to a value."""


@dataclass(frozen=True)
class Mistake:
    """One line of `penstock check`. `code` is stable; the prose is not. A warning never fails a check."""

    file: str
    line: int
    column: int
    path: str
    code: str
    message: str
    hint: str | None = None
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}: "
        what = f"{self.path}: {self.message}" if self.path else self.message
        level = "warning: " if self.level == "warning" else ""
        return where + level + what + (f"; {self.hint}" if self.hint else "")

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def dotted(path: Path) -> str:
    """`('contract', 'payments', 0, 'rule')` as `contract.payments[0].rule`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def instead(word: str, allowed: Iterable[str]) -> str | None:
    """The nearest allowed word, or all of them when none is near."""
    words = list(allowed)
    return near(word, words) or (f"allowed: {', '.join(words)}" if words else None)


def near(word: str, allowed: Iterable[str]) -> str | None:
    meant = nearest(word, allowed)
    return f"did you mean '{meant}'?" if meant else None


def nearest(word: str, allowed: Iterable[str], cutoff: float = 0.6) -> str | None:
    lowered = {each.lower(): each for each in allowed}
    close = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=cutoff)
    return lowered[close[0]] if close else None
