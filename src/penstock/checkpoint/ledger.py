"""The ledger: one entry per batch that says what happened to every offset of it.

An entry is appended and synced after the sinks and the dead letters were written, and before Spark commits the batch
(invariant 3). A crash in between makes Spark run the batch again; its entry is then appended again and the last one
counts. A line that a crash cut off is no entry: its batch was not committed, so it will be written again.

Files hold a thousand batches each, one JSON document per line: `ledger/000000000.jsonl`. Each line is tied to the one
before it (`checkpoint.chain`), also over files; what is wrong with them `checkpoint.audit` finds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.checkpoint import chain
from penstock.checkpoint.files import sync_directory
from penstock.errors import CheckpointForeign, counted
from penstock.record import OffsetRange

BATCHES_PER_FILE = 1000
_CHUNK_BYTES = 256 * 1024
_RANGES = ("lost", "doubtful", "skipped", "again")


@dataclass(frozen=True)
class ViewCount:
    """What came out of decode and contract for one source view: read = passed + dead + dropped."""

    read: int
    passed: int
    dead: int
    dropped: dict[str, int] = field(default_factory=dict)  # rule -> records
    rejected: int = 0  # of those that passed: refused by a step or a sink, and therefore dead letters
    died: dict[str, int] = field(default_factory=dict)  # rule -> those of the dead that broke it

    def balanced(self) -> bool:
        return self.read == self.passed + self.dead + sum(self.dropped.values())


@dataclass(frozen=True)
class SinkCount:
    """What one sink got. `dropped` is null where the SQL between can make more or fewer rows than records; the
    fingerprint of the records written (batch.fingerprint) where rows do not say which record they are."""

    written: int
    dropped: int | None
    fingerprint: int | None = None
    superseded: int = 0  # rows in whose place a newer one of the same key stands
    rejected: int = 0  # records that are dead for it: rows that it refused, and records that a step failed on
    failed: int = 0  # of the rejected: those of a step; they never were rows for the sink
    seconds: float = field(default=0.0, compare=False)  # until it was written, with all that was read for it


@dataclass(frozen=True)
class StepCount:
    """What became of the rows handed to a stateful step: came = late + untimed + ahead + taken. Null where nobody
    counts: what lies between two stateful steps only the engine sees."""

    came: int | None = None
    late: int = 0
    untimed: int = 0  # rows without an event time
    ahead: int = 0  # rows whose event time is too far ahead of the clock
    duplicates: int | None = None  # of those taken, by a step that drops them
    gave: int | None = None  # rows that came out of it
    cut: int | None = None  # rows the engine says it dropped as late; of a window groups of rows
    held: int | None = None  # rows in its state afterwards
    bytes: int | None = None  # of memory for the state
    watermark: int = 0  # milliseconds; at the beginning of the batch

    @property
    def taken(self) -> int | None:
        return None if self.came is None else self.came - self.late - self.untimed - self.ahead


@dataclass(frozen=True)
class TopicFact:
    """The view a topic is read into, and Kafka's own id of it: a topic that is made again has another one."""

    view: str
    id: str


@dataclass(frozen=True)
class Entry:
    pipeline: str
    query: str
    batch: int
    time: str
    start: str  # the spec's start position; honoured by the first batch only (S4)
    ranges: list[OffsetRange]
    topics: dict[str, TopicFact]
    views: dict[str, ViewCount]
    sinks: dict[str, SinkCount]
    lost: list[OffsetRange] = field(default_factory=list)  # expired unread (`on_data_loss: continue`)
    # Expired while they were read. Not all offsets have become records: up to as many of these as are missing are lost.
    doubtful: list[OffsetRange] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)  # by the operator, for the start this batch began
    # Of a batch that is none, but a seek by the operator; its `ranges` are empty and say where the next one begins.
    skipped: list[OffsetRange] = field(default_factory=list)  # never read, because the operator said so
    again: list[OffsetRange] = field(default_factory=list)  # to be read after all, or once more
    renewed: dict[str, str] = field(default_factory=dict)  # topic that was made again -> the id it had before
    stateful: dict[str, StepCount] = field(default_factory=dict)  # by view
    real_time: bool = False  # sent on at least once, and counted by the engine; without views: the counts were lost

    @property
    def is_seek(self) -> bool:
        return bool(self.skipped or self.again or self.renewed)

    @property
    def in_doubt(self) -> int:
        """How many records of `doubtful` may be lost, at most."""
        missing = sum(map(len, self.ranges)) - self.read - sum(map(len, self.lost))
        return max(0, min(missing, sum(map(len, self.doubtful))))

    @property
    def doubt(self) -> str | None:
        """What to say of it; None where there is none."""
        if not self.doubtful:
            return None
        where = ", ".join(map(str, self.doubtful))
        return f"up to {counted(self.in_doubt, 'record')} lost to expiry during the read: {where}"

    @property
    def read(self) -> int:
        return sum(v.read for v in self.views.values())

    @property
    def dead(self) -> int:
        return sum(v.dead + v.rejected for v in self.views.values())

    @property
    def dropped(self) -> int:
        """By rules. What steps and conditions leave out is counted for each sink."""
        return sum(number for view in self.views.values() for number in view.dropped.values())

    def as_line(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str | bytes) -> Entry:
        raw: dict[str, Any] = json.loads(line)
        for name in chain.FIELDS:
            raw.pop(name, None)
        raw["ranges"] = [OffsetRange(**r) for r in raw["ranges"]]
        raw["topics"] = {name: TopicFact(**t) for name, t in raw["topics"].items()}
        raw["views"] = {name: ViewCount(**v) for name, v in raw["views"].items()}
        raw |= {name: [OffsetRange(**r) for r in raw.get(name, [])] for name in _RANGES}
        raw["sinks"] = {name: SinkCount(**s) for name, s in raw["sinks"].items()}
        raw["stateful"] = {name: StepCount(**s) for name, s in raw.get("stateful", {}).items()}
        return cls(**raw)


@dataclass(frozen=True)
class Ledger:
    path: Path

    def append(self, entry: Entry) -> None:
        """Called once per batch, before Spark commits it. When this returns the entry is on the disk."""
        file = self.path / file_of(entry.batch)
        new, line = not file.exists(), chain.tied(entry.as_line().encode(), self._head(file.name))
        with file.open("ab+") as out:
            if out.tell() and not _ends_with_newline(out):
                out.write(b"\n")  # a crash cut the last line off: close it, so that it cannot swallow this one
            out.write(line + b"\n")
            out.flush()
            os.fsync(out.fileno())
        if new:
            sync_directory(self.path)

    def _head(self, file: str) -> str:
        """The hash of the newest line up to the end of a file: what the next one there follows."""
        before = [each for each in self._files() if each.name <= file]
        for each in reversed(before):
            for line in _last_first(each):
                if ties := chain.ties_of(line):
                    return ties.hash
        untied = (line for each in before for line in each.read_bytes().split(b"\n") if line)
        return chain.over_untied(chain.START, untied)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents, in order."""
        yield from ((file.name, file.read_bytes()) for file in self._files())

    def entries(self) -> Iterator[Entry]:
        """Every batch once, in order; the last entry of a batch counts."""
        for file in self._files():
            yield from _read(file)

    def last(self) -> Entry | None:
        return next(self._newest_first(), None)

    def last_batch(self) -> Entry | None:
        """The newest entry of a batch that sinks know: a seek is none of theirs."""
        return next((entry for entry in self._newest_first() if not entry.is_seek), None)

    def recent(self, most: int) -> list[Entry]:
        """The newest entries, oldest first."""
        return list(islice(self._newest_first(), most))[::-1]

    def _newest_first(self) -> Iterator[Entry]:
        for file in reversed(self._files()):
            yield from reversed(_read(file))

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("*.jsonl")) if self.path.is_dir() else []


def file_of(batch: int) -> str:
    """The name of the file that holds a batch."""
    return f"{batch // BATCHES_PER_FILE:09d}.jsonl"


def _read(file: Path) -> list[Entry]:
    return entries_in(str(file), file.read_bytes().split(b"\n"))


def entries_in(file: str, lines: Iterable[bytes]) -> list[Entry]:
    """Every batch once, in order; the last entry of a batch counts."""
    entries = {}
    for line in lines:
        try:
            entry = Entry.from_line(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            whole = b'"ranges":' in line and line.endswith(b"}") and not isinstance(error, ValueError)
            if whole and not chain.was_changed(line):
                raise CheckpointForeign(
                    f"{file} has an entry this version cannot read",
                    cause=f"{type(error).__name__}: {error}",
                    next_command="run the version of Penstock that wrote it, or a newer one",
                ) from None
            continue  # cut off by a crash, see above; or damaged, which `checkpoint.audit` finds
        entries[entry.batch] = entry
    return [entries[batch] for batch in sorted(entries)]


def _last_first(file: Path) -> Iterator[bytes]:
    """The lines of a file from its end: whoever wants the last one does not read the others."""
    with file.open("rb") as source:
        at, left = source.seek(0, os.SEEK_END), b""
        while at:
            size = min(at, _CHUNK_BYTES)
            at -= size
            source.seek(at)
            left, *lines = (source.read(size) + left).split(b"\n")
            yield from reversed(lines)
        yield left


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
