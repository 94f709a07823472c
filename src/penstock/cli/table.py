"""Tables that fit the terminal: long names are cut, and columns one can do without are left out.

Piped into another program nothing is cut: it is not the terminal that reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.cli import output
from penstock.record import shortened

_GAP = "  "


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = False  # numbers
    least: int | None = None  # it may be cut down to this many characters
    spare: bool = False  # it may be left out; the last one goes first


def fitting(line: str, within: int | None) -> str:
    """As much of a line as the terminal holds."""
    return line if within is None else shortened(line, within)


def lines(columns: Sequence[Column], rows: Iterable[Sequence[object]], within: int | None) -> list[str]:
    """A header and a line per row, none wider than `within` as long as that can be."""
    texts = [[column.title for column in columns]]
    texts += [[output.clean(str(cell)) for cell in row] for row in rows]
    sizes = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    kept = list(range(len(columns)))
    for i in reversed(range(len(columns))):
        if within is None or _least(columns, sizes, kept) <= within:
            break
        if columns[i].spare:
            kept.remove(i)
    over = 0 if within is None else _total(sizes, kept) - within
    for i in kept:
        least = columns[i].least
        if over > 0 and least is not None:
            smaller = max(min(least, sizes[i]), sizes[i] - over)
            over -= sizes[i] - smaller
            sizes[i] = smaller
    return [_GAP.join(_cell(row[i], sizes[i], columns[i].right) for i in kept).rstrip() for row in texts]


def _least(columns: Sequence[Column], sizes: list[int], kept: list[int]) -> int:
    least = [min(size, column.least or size) for column, size in zip(columns, sizes, strict=True)]
    return _total(least, kept)


def _total(sizes: list[int], kept: list[int]) -> int:
    return sum(sizes[i] for i in kept) + len(_GAP) * (len(kept) - 1)


def _cell(text: str, size: int, right: bool) -> str:
    text = output.cut(text, size)
    return text.rjust(size) if right else text.ljust(size)
