"""A copy of a checkpoint that is consistent, also when it is made while the pipeline runs.

How the files are copied is in `checkpoint.copying`. The manifest names every file with size and checksum. It is
written last: a copy without it is none. A backup has its name only when all of it is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.archive import unpack
from penstock.checkpoint.copying import copy
from penstock.checkpoint.files import put, sync_all, sync_directory, sync_file
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import BackupDamaged, BadArgument, CheckpointMissing, NotWritable

MANIFEST = "manifest.json"
PACKED = ".tar.gz"
_FORMAT = 1
_ATTEMPTS = 10
REPLACED, DAMAGED = _ASIDE = "replaced", "damaged"


@dataclass(frozen=True)
class Piece:
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    pipeline: str
    query: str
    time: str
    committed: int | None
    planned: int | None
    ledger: int | None  # the newest batch it knows
    files: dict[str, Piece]

    @property
    def size(self) -> int:
        return sum(piece.size for piece in self.files.values())


def make(home: Home, to: Path, pipeline: str, check: Callable[[Home], None]) -> Manifest:
    """Copy into the directory or archive `to`, which must not be there. `check` raises where the copy is not sound."""
    if to.exists():
        raise BadArgument(
            f"{to} is there already", cause="a backup is never written over", next_command="name another place"
        )
    if SparkLog(home.spark).query_id() is None:
        raise CheckpointMissing(
            f"{home.spark} has no checkpoint to copy",
            cause="the pipeline has not run yet, or its checkpoint was removed",
            next_command="penstock checkpoint show FILE",
        )
    staged = to.with_name(f".{to.name}.new")
    try:
        for _ in range(_ATTEMPTS):
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            if copy(home, Home(staged)):
                break
        check(Home(staged))
        made = _manifest(Home(staged), pipeline)
        put(staged / MANIFEST, json.dumps({"format": _FORMAT, **asdict(made)}, indent=1).encode())
        if to.name.endswith(PACKED):
            packed = to.with_name(f".{to.name}.part")
            with tarfile.open(packed, "w:gz") as archive:
                archive.add(staged, arcname=".")
            sync_file(packed)
            packed.rename(to)
        else:
            sync_all(staged)
            staged.rename(to)
        sync_directory(to.parent)
    except OSError as error:
        raise NotWritable(
            f"the backup {to} cannot be written",
            cause=error.strerror or str(error),
            next_command="name a place that this user can write to",
        ) from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return made


def kept(home: Home) -> list[Path]:
    """The backups in the checkpoint directory itself, newest last."""
    places = home.backups.iterdir() if home.backups.is_dir() else ()
    return sorted(place for place in places if (place / MANIFEST).is_file() or place.name.endswith(PACKED))


def aside(home: Home) -> list[Path]:
    """What a restore replaced and what a repair found damaged: directories beside the backups, newest last."""
    places = home.backups.iterdir() if home.backups.is_dir() else ()
    return sorted(place for place in places if place.name.endswith(tuple(f"-{why}" for why in _ASIDE)))


def place_for(home: Home, why: str) -> Path:
    """A new name below the checkpoint's own backups."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return home.backups / f"{stamp}-{why}"


@contextmanager
def opened(path: Path) -> Iterator[tuple[Home, Manifest]]:
    """The files of a backup, every one of them as it was written. Raises BackupDamaged where that is not so."""
    with tempfile.TemporaryDirectory(prefix="penstock-backup-") as directory:
        at = path
        if path.is_file():
            at = Path(directory)
            try:
                with _archive(path) as archive:
                    unpack(archive, at)
            except (OSError, EOFError, tarfile.TarError) as error:
                raise _damaged(path, f"the archive cannot be unpacked: {error}") from None
        yield Home(at), _checked(path, at)


def _archive(path: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(path)
    except tarfile.ReadError:  # Python names every kind of archive that it is not
        raise _damaged(path, "it is no archive, or its beginning is damaged") from None


def _checked(path: Path, at: Path) -> Manifest:
    try:
        raw = json.loads((at / MANIFEST).read_text())
        if raw.pop("format") != _FORMAT:
            raise _damaged(path, "another version of Penstock wrote it")
        raw["files"] = {name: Piece(**piece) for name, piece in raw["files"].items()}
        manifest = Manifest(**raw)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(path, f"it has no {MANIFEST} that can be read") from None
    there = dict(_pieces(at))
    wrong = [f"{name} is missing" for name in sorted(manifest.files.keys() - there.keys())]
    wrong += [f"{name} is not in the manifest" for name in sorted(there.keys() - manifest.files.keys())]
    wrong += [
        f"{name} is not what was copied"
        for name, piece in manifest.files.items()
        if name in there and there[name] != piece
    ]
    if wrong:
        raise _damaged(path, "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""))
    return manifest


def _damaged(path: Path, cause: str) -> BackupDamaged:
    return BackupDamaged(f"{path} is not a whole backup", cause=cause, next_command="use another backup")


def _manifest(at: Home, pipeline: str) -> Manifest:
    log, last = SparkLog(at.spark), Ledger(at.ledger).last()
    return Manifest(
        pipeline=pipeline,
        query=log.query_id() or "",
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        committed=log.committed(),
        planned=log.planned(),
        ledger=last.batch if last else None,
        files=dict(sorted(_pieces(at.path))),
    )


def _pieces(at: Path) -> Iterator[tuple[str, Piece]]:
    for file in at.rglob("*"):
        if file.is_file() and file != at / MANIFEST:
            content = file.read_bytes()
            yield str(file.relative_to(at)), Piece(len(content), hashlib.sha256(content).hexdigest())
