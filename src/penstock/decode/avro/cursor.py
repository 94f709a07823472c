"""Many records of one batch, read side by side: a cursor holds one position per record, and each step moves them all.

The bytes of the batch are one page. Every record has its own end, which no step goes past, so the bytes of one record
can never become part of another. A record that fails is written down once, with its first reason, and its position
moves to a run of zeros behind the page: zeros are an empty text, the first branch, no items, so whatever is read there
on behalf of a lost record is harmless and its neighbours need not stop.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock import record
from penstock.decode.arrow.page import Numbers, Page, long_varints
from penstock.record import Failure, shortened

Reason = str | Callable[[int], str]
"""The text, or a function from a position of the cursor to the text."""

_U64 = np.uint64


class Cursor:
    """Positions in a page: of records, or of the items inside of them."""

    def __init__(self, page: Page, pos: Numbers, end: Numbers, rows: Numbers) -> None:
        self.page = page
        self.pos = pos
        self.end = end
        self.rows = rows  # which value of the page a position belongs to
        self.outer: Cursor | None = None
        self.outer_index: Numbers = rows
        self.ordinals: Numbers | None = None  # which item of its array a position is

    def __len__(self) -> int:
        return len(self.pos)

    def part(self, index: Numbers) -> Cursor:
        """Some of the positions. What is read by the part is taken back with `rejoin`."""
        part = Cursor(self.page, self.pos[index], self.end[index], self.rows[index])
        part.outer, part.outer_index = self, index
        return part

    def rejoin(self, part: Cursor) -> None:
        self.pos[part.outer_index] = part.pos
        self.end[part.outer_index] = part.end

    def items(self, owners: Numbers, starts: Numbers, ordinals: Numbers) -> Cursor:
        """Items of arrays, each with the end of its record; they are read on their own, nothing is taken back."""
        rows = self.rows[owners]
        items = Cursor(self.page, starts, self.page.ends[rows], rows)
        items.outer, items.outer_index, items.ordinals = self, owners, ordinals
        return items

    def fail(self, where: Numbers, path: str, error_class: str, reason: Reason) -> None:
        """The records at these positions are lost, unless they already were."""
        failures = self.page.failures
        for i in np.flatnonzero(where).tolist():
            row = int(self.rows[i])
            if row not in failures:
                text = reason if isinstance(reason, str) else reason(i)
                failures[row] = Failure(error_class, shortened(f"{self._placed(path, i)}: {text}"))
        self.pos[where] = self.page.zeros
        self.end[where] = self.page.zeros_end

    def _placed(self, path: str, i: int) -> str:
        """`tags[].name` as `tags[2].name`."""
        ordinals: list[int] = []
        cursor: Cursor | None = self
        while cursor is not None and "[]" in path:
            if cursor.ordinals is not None:
                ordinals.append(int(cursor.ordinals[i]))
            i = int(cursor.outer_index[i])
            cursor = cursor.outer
        for ordinal in reversed(ordinals):
            path = path.replace("[]", f"[{ordinal}]", 1)
        return path or "the record"

    def offset(self, i: int) -> int:
        """How many bytes into its value a position is, the registry's header included."""
        return int(self.pos[i] - self.page.starts[self.rows[i]])

    def left(self, i: int) -> int:
        return int(self.end[i] - self.pos[i])

    def skip(self, path: str, size: int) -> Numbers:
        """Go over a fixed number of bytes; where they began."""
        begun = self.pos
        short = self.end - begun < size
        if short.any():
            self.fail(short, path, record.MALFORMED, lambda i: self._truncated(i, f"{size} bytes"))
            begun = self.pos
        self.pos = begun + size
        lost = self.pos > self.end  # more bytes than there are zeros
        if lost.any():
            begun = np.where(lost, self.page.zeros, begun)
            self.pos = np.where(lost, self.page.zeros, self.pos)
        return begun

    def _truncated(self, i: int, wanted: str) -> str:
        return f"the record ends too early: at byte {self.offset(i)} {wanted} should follow, {self.left(i)} left"

    def varint(self, path: str) -> Numbers:
        """The zigzag number of up to 64 bits at each position."""
        pos = self.pos
        raw: Numbers = self.page.data[pos]
        long = False
        if (raw > 0x7F).any():
            raw, after = long_varints(self.page, pos)
            long = True
        else:
            raw, after = raw.astype(np.int64), pos + 1
        past = after > self.end
        if past.any():
            self.fail(past, path, record.MALFORMED, self._bad_varint)
            raw, after = np.where(past, 0, raw), np.where(past, self.pos, after)
        self.pos = after
        if long:
            raw = raw.view(_U64)
            return (raw >> _U64(1)).view(np.int64) ^ -(raw & _U64(1)).view(np.int64)
        return (raw >> 1) ^ -(raw & 1)

    def _bad_varint(self, i: int) -> str:
        found = bytes(self.page.data[self.pos[i] : min(self.pos[i] + 10, self.end[i])])
        if len(found) == 10 and all(b > 0x7F for b in found[:9]):
            return f"at byte {self.offset(i)} a number has more than 64 bits: {found.hex()}"
        return self._truncated(i, "a whole number")

    def span(self, path: str) -> tuple[Numbers, Numbers]:
        """Where the bytes of a text begin and how many there are."""
        sizes = self.varint(path)
        wrong = (sizes < 0) | (sizes > self.end - self.pos)
        if wrong.any():

            def reason(i: int) -> str:
                if sizes[i] < 0:
                    return f"the length {int(sizes[i])} before byte {self.offset(i)} is negative"
                return self._truncated(i, f"{int(sizes[i])} bytes")

            self.fail(wrong, path, record.MALFORMED, reason)
            sizes = np.where(wrong, 0, sizes)
        begun = self.pos
        self.pos = begun + sizes
        return begun, sizes
