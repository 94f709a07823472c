"""Spark's own checkpoint, read from outside: which offsets a batch covers, which batches are committed.

Spark writes `offsets/N` before batch N runs and `commits/N` after it ended; each file is a version line, for offsets
a line of metadata, and one line of JSON per source. We never
write the log of a stream; a backfill has one of its own, in the same form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import CheckpointForeign
from penstock.record import OffsetRange

Positions = dict[tuple[str, int], int]


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
                next_command="restore the directory from a backup",
            ) from None

    def planned(self) -> int | None:
        """The newest batch whose offsets are fixed."""
        return max(self._batches("offsets"), default=None)

    def committed(self) -> int | None:
        """The newest batch Spark will not run again."""
        return max(self._batches("commits"), default=None)

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

    def _batches(self, kind: str) -> Iterator[int]:
        directory = self.path / kind
        if directory.is_dir():
            yield from (int(f.name) for f in directory.iterdir() if f.name.isdigit())

    @staticmethod
    def _positions(file: Path) -> Positions:
        try:
            by_topic = json.loads(file.read_text().splitlines()[-1])
            return {(t, int(p)): int(o) for t, partitions in by_topic.items() for p, o in partitions.items()}
        except (OSError, ValueError, AttributeError, IndexError, TypeError) as error:
            raise CheckpointForeign(
                f"cannot read the offsets in {file}",
                cause=f"{type(error).__name__}: {error}",
                next_command="restore the checkpoint directory from a backup",
            ) from None
