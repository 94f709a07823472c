"""What is wrong with the lines of a ledger, found in one pass over its files: a start and `verify` look at every line.

Lines with hashes (`chain`) prove themselves, and are not parsed. Lines of older versions are proven by the first line
with hashes that follows them. Where none does they are judged by what they say: each is JSON, of this pipeline and this
query, batches have no holes (`breaks`), and each begins where the one before it ended.

Not found: a last line that was removed or cut off as a crash would have done. Its batch runs again, or Spark's log has
its commit and the start asks for the entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.checkpoint import chain
from penstock.checkpoint.ledger import Entry, entries_in, file_of
from penstock.errors import LedgerDamaged, LedgerMissing

HOLES = frozenset({LedgerMissing.code, LedgerDamaged.code})
"""Accepted, they say that the ledger does not tell the whole story of the batches before."""


@dataclass(frozen=True)
class Fault:
    kind: str  # ledger-damaged, ledger-gap, range-gap
    text: str
    file: str
    batch: int | None = None
    partition: tuple[str, int] | None = None
    accepted: int | None = None  # by the operator, when this batch ran

    def __str__(self) -> str:
        place = "" if self.batch is None else f"batch {self.batch}: "
        if self.partition is not None:
            place += "{}-{}: ".format(*self.partition)
        since = "" if self.accepted is None else f"; accepted when batch {self.accepted} ran"
        return f"{place}{self.text}{since}"


@dataclass(frozen=True)
class Audit:
    faults: list[Fault]
    by_content: list[Entry]  # of lines that no hash proves

    @property
    def at_start(self) -> list[Fault]:
        """What a start is refused for."""
        return [fault for fault in (*self.faults, *breaks(self.by_content)) if fault.accepted is None]


def audit(files: Iterable[tuple[str, bytes]], query: str | None = None, pipeline: str | None = None) -> Audit:
    """`files`: names and contents, in order. `query`, `pipeline`: whose ledger it is; None: that of its last entry."""
    faults: list[Fault] = []
    untied: dict[str, list[bytes]] = {}  # lines of older versions that no hash proves
    head, tied = chain.START, False
    for name, content in files:
        for number, line in enumerate(content.split(b"\n"), 1):
            ties = chain.ties_of(line)
            if ties is None:
                if not tied and line:
                    untied.setdefault(name, []).append(line)
                elif line and entries_in(name, [line]):
                    faults.append(_damaged(name, number, line, "has lost its hash"))
                continue
            if not tied:
                head, tied = chain.over_untied(head, (each for lines in untied.values() for each in lines)), True
                untied = {} if ties.after == head else untied
            changed = chain.was_changed(line, ties)
            if (faults or untied) and not changed and (batch := _accepts(line)) is not None:
                faults, untied = _accepted(faults, batch), {}
            if changed:
                faults.append(_damaged(name, number, line, "was changed"))
            elif ties.after != head:
                said = "does not follow the line before it: lines were changed, removed, moved or repeated"
                faults.append(_damaged(name, number, line, said))
            head = ties.hash
    by_content = [entry for name, lines in untied.items() for entry in entries_in(name, lines)]
    return Audit([*faults, *_of_others(by_content, query, pipeline)], by_content)


def breaks(entries: Iterable[Entry]) -> list[Fault]:
    """A batch the ledger skips, or a range that does not begin where the one before it ended."""
    found: list[Fault] = []
    at: dict[tuple[str, int], int] = {}
    follows = 0
    for entry in entries:
        file, holes = file_of(entry.batch), HOLES & set(entry.accepted)
        if entry.batch != follows:
            last = entry.batch - 1
            missing = f"batch {last}" if follows == last else f"batches {follows} to {last}"
            text = f"the ledger has no entry for {missing}"
            found.append(Fault("ledger-gap", text, file, accepted=entry.batch if holes else None))
        if LedgerDamaged.code in holes:
            found = _accepted(found, entry.batch)
        if LedgerDamaged.code in holes or (holes and entry.batch != follows):
            at.clear()
        follows = entry.batch + 1
        at = {where: offset for where, offset in at.items() if where[0] not in entry.renewed}
        moved = {(r.topic, r.partition): (r.start, r.end) for r in entry.skipped}
        moved |= {(r.topic, r.partition): (r.end, r.start) for r in entry.again}
        for r in entry.ranges:
            where = r.topic, r.partition
            expected = at.get(where, r.start)
            if moved.get(where) != (expected, r.start) and r.start != expected:
                text = f"begins at offset {r.start}, the batch before ended at {expected}"
                found.append(Fault("range-gap", text, file, entry.batch, where))
            at[where] = r.end
    return found


def _of_others(entries: Sequence[Entry], query: str | None, pipeline: str | None) -> Iterator[Fault]:
    """Entries of another query or pipeline."""
    for entry in entries:
        for word, is_of, should in (
            ("query", entry.query, query or entries[-1].query),
            ("pipeline", entry.pipeline, pipeline or entries[-1].pipeline),
        ):
            if is_of != should:
                text = f"its line is of {word} {is_of}, the ledger of {word} {should}"
                yield Fault("ledger-damaged", text, file_of(entry.batch), entry.batch)


def _damaged(file: str, number: int, line: bytes, what: str) -> Fault:
    try:
        batch = int(json.loads(line)["batch"])
    except (ValueError, TypeError, KeyError):
        batch = None
    return Fault("ledger-damaged", f"line {number} of {file} {what}", file, batch)


def _accepted(faults: Iterable[Fault], batch: int) -> list[Fault]:
    return [fault if fault.accepted is not None else replace(fault, accepted=batch) for fault in faults]


def _accepts(line: bytes) -> int | None:
    """The batch that ran although the lines before it are damaged, because the operator accepted that."""
    if LedgerDamaged.code.encode() not in line:
        return None
    entry = Entry.from_line(line)
    return entry.batch if LedgerDamaged.code in entry.accepted else None
