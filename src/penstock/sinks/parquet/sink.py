"""Parquet files: a batch is one directory that appears by one rename.

    <path>/batch=000012-<pipeline>-<query>/[<column>=<value>/...]part-....parquet

1. Spark writes the batch into a directory beside `path`, where no reader of `path` looks.
2. Its files and directories are synced to disk.
3. One rename moves the directory below `path`: whoever lists `path` sees all of the batch or nothing of it.
4. `path` is synced.

The name says which batch it is, so a replay finds it and writes nothing, and a second process that writes the same
batch at the same moment loses at step 3. What a crash leaves before step 3 is removed at the next start.
Why this layout: docs/adr/0006-a-parquet-batch-is-a-directory.md.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.checkpoint.files import sync_file
from penstock.errors import NotWritable, SinkBusy, SinkFailed, SpecInvalid, first_line
from penstock.record import Batch, Known
from penstock.sinks import held
from penstock.sinks.columns import misfit, require_columns, require_types
from penstock.sinks.contract import Incoming, Written, read_through
from penstock.sinks.files.parquet import SPARK_COLUMNS, positions_in, rows_in
from penstock.sinks.partition_values import told_from_null

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.sinks.files.writer import NewFile

COLUMN = "batch"  # what readers that understand `name=value` directories see as one more column
_NAME = re.compile(rf"{COLUMN}=(\d+)-(.+)-([^-]+)")
_LACKING = frozenset({"CalendarIntervalType", "TimeType"})  # types that the engine does not write to Parquet
_HIDDEN = (".", "_")  # how names begin that readers leave out
_ABANDONED_S = 7 * 24 * 3600  # no batch takes that long: what another query staged by then, it will never publish


@dataclass(frozen=True)
class ParquetSink:
    name: str
    path: Path
    partition_by: tuple[str, ...] = ()
    evolve: bool = False  # rows may have columns that earlier batches do not have
    guarantee: str = "exactly-once: each batch is a directory of its own that appears by one rename"

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        held.require_writable(self.name, self.path)
        held.require_writable(self.name, self._staging)
        if self.path.exists() and self.path.stat().st_dev != self.path.absolute().parent.stat().st_dev:
            raise NotWritable(
                f"sink '{self.name}' cannot move directories into {self.path}",
                cause=f"it is a file system of its own, and batches are made ready beside it, in {self._staging}",
                next_command=f"use a directory below it: {self.path / 'data'}",
            )
        self._sweep(batch)
        batches = [found for found in self._batches() if found.pipeline == batch.pipeline]
        newest = max((found.id for found in batches if found.query == _short(batch.query)), default=None)
        held.require_complete(self.name, self.path, known, newest, accepted)
        if newest is None:
            held.require_own(self.name, self.path, batch, {found.query for found in batches}, accepted)

    def suits(self, incoming: Incoming) -> None:
        require_columns(self.name, incoming, partition_by=self.partition_by)
        require_types(self.name, incoming, _LACKING)
        names = [name.lower() for name in incoming.columns.names]
        hidden = [name for name in self.partition_by if name.startswith(_HIDDEN)]
        if COLUMN in names:
            raise SpecInvalid(
                f"view '{incoming.view}' has a column '{COLUMN}', and so has every Parquet directory",
                cause=f"the files of a batch lie in {COLUMN}=..., which readers take for a column",
                next_command=f"give the column another name in view '{incoming.view}'",
            )
        if hidden or set(names) == {name.lower() for name in self.partition_by}:
            raise SpecInvalid(
                f"sink '{self.name}' cannot be partitioned by {', '.join(hidden or self.partition_by)}",
                cause="readers leave out directories whose name begins with '_' or '.'"
                if hidden
                else "no column would be left for the files",
                next_command=f"correct `partition_by` of sink '{self.name}'",
            )
        why = self._misfit(incoming.columns)
        if why:
            raise SpecInvalid(
                f"the files of sink '{self.name}' differ from what view '{incoming.view}' would add",
                cause=f"{why} ({self.path})",
                next_command="`evolve: add-columns` allows new columns; for other types or partitions use another path",
            )

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        from pyspark.errors import AnalysisException

        place = self.path / _name(batch)
        found = self.held(batch) if replay else None
        rows, refused = told_from_null(self.name, rows, self.partition_by)
        if found is not None:
            read_through(rows)
            return Written(found, rejected=refused())
        staged = self.staging(batch)
        writer = rows.write.mode("errorifexists")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        try:
            writer.parquet(str(staged.absolute()))
            self._publish(staged, place)
        except AnalysisException as error:
            raise SinkFailed(
                f"sink '{self.name}' refused batch {batch.id}",
                cause=first_line(error),
                next_command="Parquet has no such column: leave it out, or cast it in a step",
            ) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return Written(rows_in(_files(place)), rejected=refused())

    def takes_files(self, _incoming: Incoming) -> str:
        return "its files are partitioned" if self.partition_by else ""

    def staging(self, batch: Batch) -> Path:
        return self._staged(batch) / f"{batch.id}-{uuid.uuid4().hex[:8]}"

    def held(self, batch: Batch) -> int | None:
        place = self.path / _name(batch)
        return rows_in(_files(place)) if place.is_dir() else None

    def publish(self, batch: Batch, staging: Path, files: Sequence[NewFile], _columns: pa.Schema) -> Written:
        staging.mkdir(parents=True, exist_ok=True)  # a batch without rows has a directory too
        reported = {file.name for file in files}
        try:
            for file in staging.iterdir():  # of a task that died with its file, whole or not, and was run again
                if file.name not in reported:
                    file.unlink()
            self._publish(staging, self.path / _name(batch))
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return Written(rows_in(_files(self.path / _name(batch))))

    def _publish(self, staged: Path, place: Path) -> None:
        """Steps 2 to 4. Only data files are moved: the rest is Spark's own, and some readers stumble over it."""
        self.path.mkdir(parents=True, exist_ok=True)
        for directory, _, names in os.walk(staged, topdown=False):
            for file in (Path(directory) / name for name in names):
                if file.name.startswith(_HIDDEN):
                    file.unlink()
                else:
                    sync_file(file)
            sync_file(Path(directory))
        try:
            staged.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise SinkBusy(
                f"sink '{self.name}': somebody else has just written {place.name}",
                cause="another process runs this pipeline on a copy of its checkpoint, or an old one is still ending",
                next_command="nothing: the batch is run again, and will be found complete",
            ) from error
        sync_file(self.path)

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        return positions_in(_files(self.path), column)

    def rows_by_batch(self, query: str) -> dict[int, int]:
        ours = [found for found in self._batches() if found.query == _short(query)]
        return {found.id: rows_in(_files(self.path / _name(found))) for found in ours}

    def holds(self, batch: Batch) -> bool:
        return self.held(batch) is not None

    def sizes(self) -> list[int]:
        return [file.stat().st_size for file in _files(self.path)]

    def _batches(self) -> list[Batch]:
        """Batches of anybody who writes here, by their directories. The query is what the name says of it."""
        names = [_NAME.fullmatch(entry.name) for entry in self.path.iterdir()] if self.path.is_dir() else []
        return [Batch(n[2], n[3], int(n[1])) for n in names if n]

    def _misfit(self, columns: StructType) -> str | None:
        """Why readers could not make one table of these columns and the newest batch that has rows."""
        import pyarrow.parquet as pq
        from pyspark.sql.types import StructType

        batches = sorted(self.path.glob(f"{COLUMN}=*"), key=lambda p: p.stat().st_mtime, reverse=True)
        newest = next((file for path in batches for file in _files(path)), None)
        if newest is None:
            return None
        parted = [part.partition("=")[0] for part in newest.relative_to(self.path).parts[1:-1]]
        if parted != list(self.partition_by):
            return f"they are partitioned by {', '.join(parted) or 'nothing'}"
        written = (pq.read_metadata(newest).metadata or {}).get(SPARK_COLUMNS)
        into_files = StructType([field for field in columns if field.name not in parted])
        there = StructType.fromJson(json.loads(written)) if written else into_files
        return misfit(into_files, there, evolve=self.evolve)

    @property
    def _staging(self) -> Path:
        # Not below `path`: readers differ in which names they leave out, and some leave out none.
        return self.path.absolute().with_name(f".{self.path.name}.penstock")

    def _staged(self, batch: Batch) -> Path:
        return self._staging / f"{batch.pipeline}-{_short(batch.query)}"

    def _sweep(self, batch: Batch) -> None:
        """Remove what an attempt that died left behind. Of other queries only what is old: they may be running."""
        for left in self._staging.iterdir() if self._staging.is_dir() else ():
            if left == self._staged(batch) or time.time() - left.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)


def _short(query: str) -> str:
    """Spark's query ids are random; their last group is enough to tell those of one pipeline apart."""
    return query.rpartition("-")[2]


def _name(batch: Batch) -> str:
    # The number comes first: directories sort by it, and no reader takes `000012-...` for a number or a date.
    return f"{COLUMN}={batch.id:06d}-{batch.pipeline}-{_short(batch.query)}"


def _files(path: Path) -> Iterator[Path]:
    return (file for file in sorted(path.rglob("*.parquet")) if not file.name.startswith(_HIDDEN))
