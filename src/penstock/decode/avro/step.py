"""Going over one value of one record in Python, without looking at it: what `avro.walk` does when few records are left.

Also for types that contain themselves: how deep they go is only known by going there.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import counted
from penstock.registry.avro.model import Array, Enum, Map, Primitive, Record, Schema, Union, width_of

Step = Callable[[bytes, int, int], int]
"""From the page, a position and the record's end to the position after one value. Raises Broken."""


class Broken(Exception):
    """The bytes are no value of the schema. The exact reason is told by `Walk.explain`."""


class Steps:
    """Makes steps. Those of a record are made once, which is also how a type that contains itself finds its own."""

    def __init__(self) -> None:
        self._of_records: dict[Record, Step] = {}

    def of(self, schema: Schema) -> Step:
        width = width_of(schema)
        if width is not None:
            return _fixed_step(width)
        match schema:
            case Primitive(kind="bytes" | "string"):
                return _sized_step
            case Primitive() | Enum():
                return lambda raw, pos, end: number(raw, pos, end)[1]
            case Union(branches=branches):
                return _branch_step([self.of(b) for b in branches])
            case Array(items=items):
                return _blocks_step(None if width_of(items) == 0 else self.of(items))
            case Map(values=values):
                inner = self.of(values)
                return _blocks_step(lambda raw, pos, end: inner(raw, _sized_step(raw, pos, end), end))
            case Record(fields=fields):
                if schema not in self._of_records:
                    steps: list[Step] = []
                    self._of_records[schema] = in_turn(steps)
                    steps.extend(self.of(f.type) for f in fields)
                return self._of_records[schema]
        raise AssertionError(schema)


def no_branch(which: int, branches: int) -> str:
    return f"branch {which} of a union that has {branches}"


def number(raw: bytes, pos: int, end: int) -> tuple[int, int]:
    """A zigzag number, and the position after it."""
    value = shift = 0
    while pos < end:
        byte = raw[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), pos
        shift += 7
        if shift > 63:
            break
    if pos >= end and shift <= 63:
        raise Broken("the record ends too early: a whole number should follow")
    raise Broken("a number has more than 64 bits")


def _fixed_step(width: int) -> Step:
    def step(raw: bytes, pos: int, end: int) -> int:  # noqa: ARG001  all steps are called alike
        if end - pos < width:
            raise Broken(f"the record ends too early: {width} bytes should follow, {end - pos} left")
        return pos + width

    return step


def _sized_step(raw: bytes, pos: int, end: int) -> int:
    if pos < end and not raw[pos] & 0x81:  # one byte, not negative: nearly always
        size = raw[pos] >> 1
        pos += 1
    else:
        size, pos = number(raw, pos, end)
    if size < 0:
        raise Broken(f"the length {size} is negative")
    if size > end - pos:
        raise Broken(f"the record ends too early: {size} bytes should follow, {end - pos} left")
    return pos + size


def _branch_step(steps: list[Step]) -> Step:
    def step(raw: bytes, pos: int, end: int) -> int:
        which, after = number(raw, pos, end)
        if not 0 <= which < len(steps):
            raise Broken(no_branch(which, len(steps)))
        return steps[which](raw, after, end)

    return step


def in_turn(steps: list[Step]) -> Step:
    def step(raw: bytes, pos: int, end: int) -> int:
        for one in steps:
            pos = one(raw, pos, end)
        return pos

    return step


def _blocks_step(item: Step | None) -> Step:
    def step(raw: bytes, pos: int, end: int) -> int:
        while True:
            count, pos = block(raw, pos, end)
            if not count:
                return pos
            if item is None:
                continue  # items without bytes, however many
            claim(count, pos, end)
            for _ in range(count):
                pos = item(raw, pos, end)

    return step


def block(raw: bytes, pos: int, end: int) -> tuple[int, int]:
    """The number of items in the block that begins here. A negative one is followed by the block's size in bytes,
    which is for those who jump over blocks; we do not trust it."""
    count, pos = number(raw, pos, end)
    if count < 0:
        _, pos = number(raw, pos, end)
    return abs(count), pos


def claim(size: int, pos: int, end: int) -> None:
    """Items take a byte at least."""
    if size > end - pos:
        raise Broken(too_many(size, end - pos))


def too_many(count: int, left: int) -> str:
    return f"claims {counted(count, 'item')}, but only {counted(left, 'byte')} left"
