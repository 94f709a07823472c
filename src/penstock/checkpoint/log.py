"""Spark's own checkpoint, read from outside: which offsets a batch covers, which batches are committed.

Spark writes `offsets/N` before batch N runs and `commits/N` after it ended; each file is a version line, for offsets
a line of metadata, and one line of JSON per source. The log of a stream is Spark's: we write to it only with the lock
held, when the operator asks for it (`penstock checkpoint seek`, `fork`, `repair`) or a start has a batch to plan that
Spark forgets (`batch.stateful.due`). A backfill has one of its own, in the same form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.checkpoint.files import remove_lone_checksums
from penstock.errors import CheckpointForeign
from penstock.record import OffsetRange

T = TypeVar("T")
Positions = dict[tuple[str, int], int]

BEFORE_SPLIT = "before-split"  # `offsets/N.before-split-1`: not a number, which Spark would take for a batch


@dataclass(frozen=True)
class SparkLog:
    path: Path

    def query_id(self) -> str | None:
        """The id Spark gave the query when the checkpoint was made; None when there is no checkpoint yet."""
        try:
            return str(json.loads((self.path / "metadata").read_text())["id"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointForeign(
                f"{self.path / 'metadata'} is not the metadata of a Spark checkpoint",
                cause="the file is damaged, or another program wrote it",
                next_command="penstock checkpoint repair FILE",
            ) from None

    def remove_lone_checksums(self) -> None:
        """Called once per start, with the lock held."""
        for kind in ("offsets", "commits"):
            remove_lone_checksums(self.path / kind)

    def planned(self) -> int | None:
        """The newest batch whose offsets are fixed."""
        return max(self._batches("offsets"), default=None)

    def committed(self) -> int | None:
        """The newest batch Spark will not run again."""
        return max(self._batches("commits"), default=None)

    def planned_at(self, batch: int) -> float | None:
        """When, in seconds since 1970; None: it is committed and swept since."""
        try:
            return (self.path / "offsets" / str(batch)).stat().st_mtime
        except FileNotFoundError:
            return None

    def pending(self) -> int | None:
        """The batch whose offsets are fixed and that is not committed: it is running, or will run again."""
        planned = self.planned()  # first: of a run that goes on, what is committed by the second look is not pending
        committed = self.committed()
        return planned if planned is not None and (committed is None or planned > committed) else None

    def ranges(self, batch: int) -> list[OffsetRange]:
        """What batch `batch` covers, from the offset log: also where a record is a marker, a gap or was filtered."""
        end = self.end_of(batch)
        start = self.end_of(batch - 1) if batch > 0 else self.start()
        # A partition that was not there before is read from its first offset.
        return sorted(OffsetRange(t, p, start.get((t, p), 0), until) for (t, p), until in end.items())

    def start(self) -> Positions:
        """Where the first batch began, as the source noted it before it read anything."""
        return self._positions(self.path / "sources" / "0" / "0")

    def end_of(self, batch: int) -> Positions:
        return self._positions(self.path / "offsets" / str(batch))

    def watermark(self, batch: int) -> int:
        """How far event time had come when the batch was planned, in milliseconds; 0 where nothing was known yet."""
        file = self.path / "offsets" / str(batch)
        return _read(file, "watermark", lambda text: int(json.loads(text.splitlines()[1])["batchWatermarkMs"]))

    def clock(self, batch: int) -> int:
        """When the batch was planned, in milliseconds: what the engine takes for the current time of the stream, also
        when it runs the batch again."""
        file = self.path / "offsets" / str(batch)
        return _read(file, "time", lambda text: int(json.loads(text.splitlines()[1])["batchTimestampMs"]))

    def next_watermark(self, batch: int) -> int:
        """How far event time had come when the batch was committed: the watermark of the batch after it."""
        file = self.path / "commits" / str(batch)
        return _read(file, "watermark", lambda text: int(json.loads(text.splitlines()[1])["nextBatchWatermarkMs"]))

    def next_positions(self) -> Positions | None:
        """Where the next batch begins; None where the checkpoint does not say yet."""
        committed = self.committed()
        if committed is not None:
            return self.end_of(committed)
        if self.planned() is not None or (self.path / "sources" / "0" / "0").is_file():
            return self.start()
        return None

    @property
    def stateful(self) -> bool:
        """Whether the query keeps state between batches: then offsets alone do not say where it is."""
        return (self.path / "state").is_dir()

    def _batches(self, kind: str) -> Iterator[int]:
        directory = self.path / kind
        if directory.is_dir():
            yield from (int(f.name) for f in directory.iterdir() if f.name.isdigit())

    @staticmethod
    def _positions(file: Path) -> Positions:
        return _read(file, "offsets", positions_in)


def _read(file: Path, what: str, parse: Callable[[str], T]) -> T:
    """What a file of the log says. Raises CheckpointForeign where it is gone, or is something else."""
    try:
        return parse(file.read_text())
    except (OSError, ValueError, AttributeError, LookupError, TypeError) as error:
        raise CheckpointForeign(
            f"cannot read the {what} in {file}",
            cause=f"{type(error).__name__}: {error}",
            next_command="penstock checkpoint repair FILE",
        ) from None


def positions_in(text: str) -> Positions:
    """The offsets in a file of the log. Raises ValueError, or what reading something else as JSON raises."""
    by_topic = json.loads(text.splitlines()[-1])
    return {(t, int(p)): int(o) for t, partitions in by_topic.items() for p, o in partitions.items()}


def with_positions(like: str, positions: Positions) -> str:
    """A file of the offset log: the lines of another one, up to the offsets, as Spark wrote them."""
    *head, _ = like.splitlines()
    return "\n".join([*head, as_json(positions)])


def with_times(like: str, watermark: int, now_ms: int) -> str:
    """A file of the offset log: another one, for a batch with this watermark that is planned now."""
    version, metadata, *offsets = like.splitlines()
    times = {"batchWatermarkMs": watermark, "batchTimestampMs": now_ms}
    return "\n".join([version, json.dumps({**json.loads(metadata), **times}, separators=(",", ":")), *offsets])


def as_json(positions: Positions) -> str:
    """As Spark writes offsets."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(by_topic, separators=(",", ":"))
