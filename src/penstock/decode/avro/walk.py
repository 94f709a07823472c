"""Going over values without looking at them: fields that the reader dropped, and the search for where items begin.

There are two ways, and both move to the same place. Many records move side by side. Few records, long arrays and types
that contain themselves are walked one by one in Python: a step side by side costs the same for one as for a thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from penstock import record
from penstock.decode.arrow.page import Numbers
from penstock.decode.avro.cursor import Cursor
from penstock.decode.avro.step import Broken, Step, Steps, block, claim, in_turn, no_branch, too_many
from penstock.registry.avro.model import Array, Enum, Map, Primitive, Record, Schema, Union, width_of

FEW = 48
"""Fewer positions than this are walked one by one: about where both ways cost the same."""

Over = Callable[[Cursor], None]

_MOST_WALKS = 10_000  # side by side, per schema; a type named twice on every level would need more than any memory


@dataclass(frozen=True)
class Walk:
    """How to go over values of one schema."""

    path: str
    width: int | None  # in bytes, when all values take the same
    step: Step
    side_by_side: Over | None  # None: only one by one

    def over(self, at: Cursor) -> None:
        if self.width is not None:
            at.skip(self.path, self.width)
        elif self.side_by_side is not None and len(at) >= FEW:
            self.side_by_side(at)
        else:
            self._one_by_one(at)

    def _one_by_one(self, at: Cursor) -> None:
        raw, step = at.page.raw, self.step
        for i, (pos, end) in enumerate(zip(at.pos.tolist(), at.end.tolist(), strict=True)):
            try:
                at.pos[i] = step(raw, pos, end)
            except (Broken, RecursionError) as error:
                alone = at.part(np.array([i]))
                self.explain(alone, error)
                at.rejoin(alone)

    def explain(self, alone: Cursor, error: Broken | RecursionError) -> None:
        """Fail a record that could not be walked, with the reason and the path it would have had side by side."""
        if self.width is not None:
            alone.skip(self.path, self.width)
        elif self.side_by_side is not None:
            self.side_by_side(alone)
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        alone.fail(np.ones(1, np.bool_), self.path, record.MALFORMED, reason)


def walk_of(schema: Schema, path: str) -> Walk:
    """Made once per pair of schemas, for each field that is dropped and each array or map."""
    return _Walks().of(schema, path, ())


def entry_walk(value: Schema, path: str) -> Walk:
    """Over one entry of a map: its key and its value."""
    return _Walks().entry(value, path, ())


class _Walks:
    def __init__(self) -> None:
        self.steps = Steps()
        self.made = 0

    def of(self, schema: Schema, path: str, inside: tuple[Record, ...]) -> Walk:
        return Walk(path, width_of(schema), self.steps.of(schema), self.side_by_side(schema, path, inside))

    def side_by_side(self, schema: Schema, path: str, inside: tuple[Record, ...]) -> Over | None:
        self.made += 1
        if self.made > _MOST_WALKS:
            return None
        match schema:
            case Primitive(kind="bytes" | "string"):
                return lambda at: _drop(at.span(path))
            case Primitive(kind="int" | "long") | Enum():
                return lambda at: _drop(at.varint(path))
            case Union(branches=branches):
                walks = [self.of(b, path, inside) for b in branches]
                return lambda at: _branches(at, path, walks)
            case Record(fields=fields) if schema not in inside:
                return _all_in_turn([self.of(f.type, f"{path}.{f.name}", (*inside, schema)) for f in fields])
            case Array(items=items) if width_of(items) != 0:
                item = self.of(items, f"{path}[]", inside)
                return lambda at: _drop(find_items(at, path, item))
            case Map(values=values):
                entry = self.entry(values, f"{path}[]", inside)
                return lambda at: _drop(find_items(at, path, entry))
        return None  # items without bytes; records inside of themselves

    def entry(self, value: Schema, path: str, inside: tuple[Record, ...]) -> Walk:
        over = [self.of(Primitive("string"), path, ()), self.of(value, path, inside)]
        return Walk(path, None, in_turn([w.step for w in over]), _all_in_turn(over))


def _drop(_: object) -> None:
    pass


def _all_in_turn(walks: list[Walk]) -> Over:
    def over(at: Cursor) -> None:
        for walk in walks:
            walk.over(at)

    return over


def _branches(at: Cursor, path: str, walks: list[Walk]) -> None:
    which = branch_of(at, path, len(walks))
    for branch, walk in enumerate(walks):
        index = np.flatnonzero(which == branch)
        if len(index):
            part = at.part(index)
            walk.over(part)
            at.rejoin(part)


def branch_of(at: Cursor, path: str, branches: int) -> Numbers:
    """The branch of a union at each position; -1 where there is none, and then the record is lost."""
    which = at.varint(path)
    wrong = (which < 0) | (which >= branches)
    if wrong.any():
        at.fail(wrong, path, record.MALFORMED, lambda i: no_branch(int(which[i]), branches))
        which = np.where(wrong, -1, which)
    return which


@dataclass
class Found:
    """Where items are, in pieces that keep the order of each array: which array, from, to, the how many-th."""

    owners: list[Numbers] = field(default_factory=list)
    starts: list[Numbers] = field(default_factory=list)
    stops: list[Numbers] = field(default_factory=list)
    ordinals: list[Numbers] = field(default_factory=list)

    def add(self, owners: Numbers, starts: Numbers, stops: Numbers, ordinals: Numbers) -> None:
        self.owners.append(owners)
        self.starts.append(starts)
        self.stops.append(stops)
        self.ordinals.append(ordinals)


def find_items(at: Cursor, path: str, walk: Walk) -> Found:
    """Where items begin and end. The cursor goes over the arrays; the items of lost records may be missing."""
    found = Found()
    seen = np.zeros(len(at), np.int64)
    unfinished = np.arange(len(at))
    while len(unfinished) >= FEW:
        part = at.part(unfinished)
        counts = _counts(part, path, walk)
        if walk.width is None:
            _side_by_side(part, counts, seen[unfinished], walk, found)
        else:
            _evenly(part, counts, seen[unfinished], walk.width, found)
        at.rejoin(part)
        seen[unfinished] += counts
        unfinished = unfinished[counts > 0]
    for i in unfinished.tolist():
        _blocks_of_one(at, i, int(seen[i]), path, walk, found)
    return found


def _counts(part: Cursor, path: str, walk: Walk) -> Numbers:
    """The number of items in the next block of each array."""
    counts = part.varint(path)
    sized = np.flatnonzero(counts < 0)
    if len(sized):
        sizes = part.part(sized)
        sizes.varint(path)
        part.rejoin(sizes)
        counts[sized] = -counts[sized]
    wrong = (counts < 0) | (counts > (part.end - part.pos) // (walk.width or 1))  # -(-2**63) stays negative
    if wrong.any():
        part.fail(wrong, path, record.MALFORMED, lambda i: too_many(abs(int(counts[i])), part.left(i)))
        counts = np.where(wrong, 0, counts)
    return counts


def _evenly(part: Cursor, counts: Numbers, seen: Numbers, width: int, found: Found) -> None:
    """Items of one width: their places are known without going there."""
    owners = np.repeat(np.arange(len(part)), counts)
    nth = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = part.pos[owners] + nth * width
    found.add(part.outer_index[owners], starts, starts + width, nth + seen[owners])
    part.pos = part.pos + counts * width


def _side_by_side(part: Cursor, counts: Numbers, seen: Numbers, walk: Walk, found: Found) -> None:
    """The first item of every array, the second item of every array, ...; the rest of few arrays one by one."""
    nth = 0
    live = np.flatnonzero(counts > 0)
    while len(live) >= FEW:
        items = part.part(live)
        starts = items.pos.copy()
        items.ordinals = seen[live] + nth
        walk.over(items)
        found.add(part.outer_index[live], starts, items.pos.copy(), items.ordinals)
        part.rejoin(items)
        nth += 1
        live = live[(counts[live] > nth) & (part.end[live] != part.page.zeros_end)]
    for i in live.tolist():
        _items_of_one(part, i, int(counts[i]) - nth, int(part.outer_index[i]), int(seen[i]) + nth, walk, found)


def _blocks_of_one(at: Cursor, i: int, seen: int, path: str, walk: Walk, found: Found) -> None:
    """The blocks of one array until its end, or until it turns out to be broken."""
    raw, end = at.page.raw, int(at.end[i])
    count = -1
    while count:
        try:
            count, pos = block(raw, int(at.pos[i]), end)
            claim(count * (walk.width or 1), pos, end)
        except Broken:
            alone = at.part(np.array([i]))
            _counts(alone, path, walk)
            at.rejoin(alone)
            return
        at.pos[i] = pos
        if not _items_of_one(at, i, count, i, seen, walk, found):
            return
        seen += count


def _items_of_one(at: Cursor, i: int, count: int, owner: int, seen: int, walk: Walk, found: Found) -> bool:
    """Over so many items of one array; false when one of them is broken, and then the record is lost."""
    raw, pos, end, step = at.page.raw, int(at.pos[i]), int(at.end[i]), walk.step
    starts: list[int] = []
    for nth in range(seen, seen + count):
        starts.append(pos)
        try:
            pos = step(raw, pos, end)
        except (Broken, RecursionError) as error:
            alone = at.items(np.array([i]), np.array([pos]), np.array([nth]))
            walk.explain(alone, error)
            at.pos[i], at.end[i] = alone.pos[0], alone.end[0]  # the zeros
            return False
    at.pos[i] = pos
    places = np.array([*starts, pos], np.int64)
    found.add(np.full(count, owner), places[:-1], places[1:], np.arange(seen, seen + count))
    return True
