"""A result as text: rows that were expected against rows that came, one above the other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from penstock.testing.case.result import Difference, Pair, Result, Row
from penstock.testing.case.values import shown

_MOST_EQUAL = 3  # rows as expected that are shown around those that are not
_GAP = "  "
_EXPECTED, _GOT, _BOTH = "- ", "+ ", "  "


def lines(result: Result, width: int) -> Iterator[str]:
    for note in result.notes:
        yield from _wrapped(note, width)
    if result.error is not None:
        yield from _wrapped(f"error[{result.error.code}]: {result.error.what}", width)
        if result.error.cause:
            yield from _wrapped(f"  cause: {result.error.cause}", width, "    ")
        if result.error.next_command:
            yield from _wrapped(f"  next:  {result.error.next_command}", width, "    ")
    for difference in result.differences:
        yield from _difference(difference, width)


def _difference(difference: Difference, width: int) -> Iterator[str]:
    yield f"{difference.of}: {difference.expected} expected (-), {difference.got} got (+)"
    table = list(_table(difference))
    if all(len(line) <= width - 2 for line in table):
        yield from (f"  {line}".rstrip() for line in table)
    else:
        for line in _upright(difference, width - 2):
            yield f"  {line}".rstrip()


def _table(difference: Difference) -> Iterator[str]:
    """A column for each column; a line for a row, two where it differs, and marks below what differs."""
    titles = list(difference.columns)
    rows: list[tuple[str, list[str], list[bool]]] = []
    shown_equal, hidden = 0, 0
    for pair in difference.pairs:
        cells = [(side, _cells(row, titles)) for side, row in _sides(pair)]
        if pair.equal and shown_equal == _MOST_EQUAL:
            hidden += 1
            continue
        shown_equal += pair.equal
        marks = [name in pair.differ for name in titles]
        rows += [(side, each, marks if side == _GOT else []) for side, each in cells]
    sizes = [max(len(title), *(len(each[i]) for _, each, _ in rows), 0) for i, title in enumerate(titles)]

    def line(side: str, each: Iterable[str]) -> str:
        return side + _GAP.join(text.ljust(size) for text, size in zip(each, sizes, strict=True)).rstrip()

    yield line(_BOTH, titles)
    for side, each, marks in rows:
        yield line(side, each)
        if any(marks):
            under = ("^" * max(len(text), 1) if mark else "" for text, mark in zip(each, marks, strict=True))
            yield line(_BOTH, under)
    if hidden:
        yield f"{_BOTH}and {hidden} more as expected"


def _upright(difference: Difference, width: int) -> Iterator[str]:
    """A line for each value, where rows are wider than the terminal. Rows as expected are only counted."""
    size = max(len(name) for name in difference.columns)
    equal = sum(pair.equal for pair in difference.pairs)
    wrong = [pair for pair in difference.pairs if not pair.equal]
    for number, pair in enumerate(wrong):
        if number:
            yield ""
        for name in difference.columns:
            for side, row in _sides(pair, name):
                if row is not None and name in row:
                    yield from _wrapped(
                        f"{side}{name.ljust(size)}  {shown(row[name])}", width, " " * (len(side) + size + 2)
                    )
    if equal:
        yield f"{_BOTH}and {equal} as expected"


def _sides(pair: Pair, column: str | None = None) -> list[tuple[str, Row | None]]:
    """What is shown of a pair: what came, and above it what was expected where that differs."""
    if pair.expected is None:
        return [(_GOT, pair.got)]
    if pair.got is None:
        return [(_EXPECTED, pair.expected)]
    same = pair.equal if column is None else column not in pair.differ
    return [(_BOTH, pair.got)] if same else [(_EXPECTED, pair.expected), (_GOT, pair.got)]


def _cells(row: Row | None, titles: list[str]) -> list[str]:
    return [shown(row[name]) if row is not None and name in row else "" for name in titles]


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        drop_whitespace=True,
        replace_whitespace=True,
        break_on_hyphens=False,
    ) or [""]
