"""The event log of a pipeline: what happened, one JSON document per line, across restarts.

It is for people and for `doctor`, not for correctness: that is the ledger's. So an event is written, not synced; a line
that a crash cut off is no event; and when the log is full its oldest file goes. Files are
`<checkpoint>/events/000001.jsonl` and so on, the newest has the highest number.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

Deed = Literal["seek", "split", "restore", "repair", "fork", "replay"]  # what people do beside running it
KINDS = ("started", "batch", "rate", "retrying", "warning", "reference", "ended", "failed", *get_args(Deed))
FILE_BYTES = 4_000_000
FILES = 8


@dataclass(frozen=True)
class Event:
    time: datetime
    kind: str
    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"time": self.time.isoformat(timespec="milliseconds"), "event": self.kind, **self.facts}


@dataclass
class EventLog:
    """Written by the process that runs the pipeline, and by commands that change something beside it: each line is one
    write to the end of the file. Read by anybody."""

    path: Path
    file_bytes: int = FILE_BYTES
    files: int = FILES
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def append(self, kind: str, /, **facts: Any) -> None:
        line = json.dumps(Event(datetime.now(UTC), kind, facts).as_dict(), separators=(",", ":"), default=str) + "\n"
        with self._lock:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._newest().open("ab") as out:
                # A crash may have cut the last line off: an empty line keeps it from swallowing this one.
                out.write((b"\n" if out.tell() else b"") + line.encode())

    def read(self, kinds: Collection[str] = (), since: datetime | None = None) -> Iterator[Event]:
        """Oldest first; only of these kinds and not before `since`, where given."""
        for file in self._files():
            for event in _events(file):
                if (not kinds or event.kind in kinds) and (since is None or event.time >= since):
                    yield event

    def last(self, kinds: Collection[str], most: int) -> list[Event]:
        """The newest events of these kinds, oldest first."""
        found: list[Event] = []
        for file in reversed(self._files()):
            found = [event for event in _events(file) if event.kind in kinds] + found
            if len(found) >= most:
                break
        return found[-most:]

    def _newest(self) -> Path:
        files = self._files()
        if not files:
            return self.path / "000001.jsonl"
        if files[-1].stat().st_size < self.file_bytes:
            return files[-1]
        for old in files[: len(files) + 1 - self.files]:
            old.unlink(missing_ok=True)
        return self.path / f"{int(files[-1].stem) + 1:06d}.jsonl"

    def _files(self) -> list[Path]:
        return sorted(self.path.glob("*.jsonl")) if self.path.is_dir() else []


def _events(file: Path) -> list[Event]:
    try:
        lines = file.read_bytes().split(b"\n")
    except FileNotFoundError:  # the log was full, and it is gone since it was listed
        return []
    return [event for line in lines if (event := _event(line))]


def _event(line: bytes) -> Event | None:
    try:
        facts = json.loads(line)
        return Event(datetime.fromisoformat(facts.pop("time")), facts.pop("event"), facts)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
