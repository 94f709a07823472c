"""Which disk is full, of those that a pipeline writes to. Whoever meets it says only that something did not fit.

A disk fills up and is emptied again without anybody touching the pipeline (logs are rotated, tables are vacuumed). What
could not be written is written again with its batch, so it can be waited for like an outage.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.checkpoint.home import Home
from penstock.errors import DiskFull, chain
from penstock.spec.model import Pipeline
from penstock.spec.references import located

_SIGNS = ("No space left on device", "Disk quota exceeded")
_ERRORS = (errno.ENOSPC, errno.EDQUOT)
_NOTHING = 64_000  # bytes: less than the smallest file of a batch with its directory
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class _Disk:
    mount: Path
    free: int  # bytes
    size: int
    free_files: int | None  # None: this file system does not count them

    @property
    def room(self) -> int:
        """Bytes that fit on it: none where it takes no more files."""
        return 0 if self.free_files == 0 else self.free


@dataclass
class Disks:
    """What a pipeline writes, and where. Made once per start."""

    places: dict[str, Path]
    _free: dict[Path, int] = field(default_factory=dict)  # by mount point, when the batch began

    @classmethod
    def of(cls, pipeline: Pipeline, home: Home) -> Disks:
        places = {"the checkpoint": home.path}
        for name, sink in pipeline.sinks.items():
            file = sink.delta or sink.parquet
            if file is not None:
                places[f"sink '{name}'"] = located(file.path, pipeline.base)
            elif sink.iceberg is not None:
                places[f"sink '{name}'"] = located(sink.iceberg.catalog.warehouse, pipeline.base)
        if pipeline.dead_letters.delta is not None:
            places["the dead letters"] = located(pipeline.dead_letters.delta.path, pipeline.base)
        own = pipeline.spark.conf.get("spark.local.dir") or os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
        for directory in str(own).split(","):
            places.setdefault("temporary files of the engine", Path(directory))
        return cls(places)

    def look(self, *, again: bool = False) -> None:
        """Called before a batch: it may take what is free now. `again`: the batch has failed before."""
        before = self._free if again else {}
        self._free = {disk.mount: max(disk.free, before.get(disk.mount, 0)) for _, _, disk in self._disks()}

    def full(self, said: str, then: str = "penstock run FILE; it goes on where it was") -> DiskFull:
        """The error for a failure that one of them is the cause of: the one with the least room, which need not be
        none, for what did not fit may be gone again. `said`: by whoever failed."""
        what, path, disk = min(self._disks(), key=lambda each: each[2].room)
        before = self._free.get(disk.mount, disk.free)
        needs = f"{size(before)} were free before, and that was not enough, or something else fills the disk"
        if disk.free_files == 0:
            needs = "it takes no more files, however small (inodes)"
        return DiskFull(
            f"the disk at {disk.mount} is full, with {what} on it: {size(disk.free)} of {size(disk.size)} are free",
            cause=f"{said}; {needs}" if disk.room or before else said,
            next_command=f"make room on it (df -h {disk.mount}), then: {then}",
            facts={"mount": str(disk.mount), "path": str(path), "free": disk.free, "free_before": before},
        )

    def surely_full(self, said: str) -> DiskFull | None:
        """Where one has nothing left at all, for a failure that says nothing of disks."""
        return self.full(said) if any(disk.room < _NOTHING for _, _, disk in self._disks()) else None

    def _disks(self) -> Iterator[tuple[str, Path, _Disk]]:
        for what, path in self.places.items():
            with suppress(OSError):  # that of the checkpoint can be looked at: its lock is held
                there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
                told = os.statvfs(there)
                mount = next(each for each in (there.resolve(), *there.resolve().parents) if each.is_mount())
                files = told.f_favail if told.f_files else None
                yield what, path, _Disk(mount, told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize, files)


def raised_by_a_full_disk(error: BaseException | None) -> OSError | None:
    """What Python says of it, in an error or in one that it was raised for."""
    return next((each for each in chain(error) if isinstance(each, OSError) and each.errno in _ERRORS), None)


def sign_in(text: str) -> str | None:
    """The line of a text that says so. Not for texts that quote records."""
    said = next((line for line in text.split("\n") if any(sign in line for sign in _SIGNS)), None)
    return said.strip().removeprefix("Caused by:").lstrip(": ") if said else None


def size(number: float) -> str:
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
