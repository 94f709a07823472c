"""A copy of a checkpoint that is consistent, also when it is made while the pipeline runs.

A run writes, batch by batch: `offsets/N`, then the ledger entry of N, then `commits/N`. A copy is made the other way
round, so that what is copied later knows at least as much as what was copied before:

    1. commits/: the newest one copied is batch C
    2. ledger/: the entries up to C + 1
    3. offsets/ up to C + 1, and what changes rarely or never

So the copy has the ledger entry of every commit, and the offsets of every ledger entry. C + 1 and not more, because
of batches that are not committed Spark runs only the newest one again. Where that batch was written to the sinks before
the copy, it will be found there; where sinks went on after it, a restore is refused.

Spark removes old batches meanwhile. So each log is copied from its newest batch backwards, up to the first one that is
gone; and if even the offsets of C are gone, everything is copied once more.

The manifest names every file with size and checksum. It is written last: a copy without it is none.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from penstock.archive import unpack
from penstock.checkpoint.files import checksum_of, put
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import BackupDamaged, BadArgument, CheckpointMissing, NotWritable

MANIFEST = "manifest.json"
PACKED = ".tar.gz"
_FORMAT = 1
_ATTEMPTS = 10
_PARTS = ("spark", "ledger", "schemas", "backfill")  # directories; logs, the lock and older backups are not copied
_FILES = ("spec.json", "fork.json")


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
            if _copy(home, Home(staged)):
                break
        check(Home(staged))
        made = _manifest(Home(staged), pipeline)
        put(staged / MANIFEST, json.dumps({"format": _FORMAT, **asdict(made)}, indent=1).encode())
        if to.name.endswith(PACKED):
            packed = to.with_name(f".{to.name}.part")
            with tarfile.open(packed, "w:gz") as archive:
                archive.add(staged, arcname=".")
            packed.rename(to)
        else:
            staged.rename(to)
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
                with tarfile.open(path) as archive:
                    unpack(archive, at)
            except (OSError, EOFError, tarfile.TarError) as error:
                raise _damaged(path, f"the archive cannot be unpacked: {error}") from None
        yield Home(at), _checked(path, at)


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


def _copy(home: Home, into: Home) -> bool:
    """Whether the copy has the offsets of its newest commit."""
    commits = _copy_batches(home.spark / "commits", into.spark / "commits", most=None)
    most = max(commits, default=-1) + 1
    into.ledger.mkdir(parents=True)
    for file in sorted(home.ledger.glob("*.jsonl")):
        lines = [line for line in file.read_bytes().split(b"\n")[:-1] if _batch_of(line, most)]
        if lines:
            (into.ledger / file.name).write_bytes(b"\n".join(lines) + b"\n")
    for rest in ("metadata", "sources", "state"):
        _copy_all(home.spark / rest, into.spark / rest)
    offsets = _copy_batches(home.spark / "offsets", into.spark / "offsets", most)
    whole = commits[:1] == [batch for batch in offsets if batch < most][:1]
    for name in ("schemas", *_FILES):
        _copy_all(home.path / name, into.path / name)
    backfills = home.path / "backfill"
    for one in sorted(backfills.iterdir()) if backfills.is_dir() else ():
        if (one / "spark" / "metadata").is_file():
            whole = _copy(Home(one), Home(into.path / "backfill" / one.name)) and whole
    return whole


def _copy_batches(of: Path, into: Path, most: int | None) -> list[int]:
    """Those that were copied, newest first, without a hole."""
    into.mkdir(parents=True)
    there = sorted((int(f.name) for f in of.iterdir() if f.name.isdigit()), reverse=True) if of.is_dir() else []
    copied: list[int] = []
    for batch in (batch for batch in there if most is None or batch <= most):
        if not _copy_file(of / str(batch), into / str(batch)):
            break
        copied.append(batch)
    return copied


def _copy_all(of: Path, into: Path) -> None:
    """A file with its checksum, or a directory. What a run removes meanwhile is old, and not needed."""
    if not of.is_dir():
        _copy_file(of, into)
        return
    into.mkdir(parents=True, exist_ok=True)
    for each in of.iterdir():
        if not each.name.startswith(".") and not each.name.endswith(".new"):  # half written, or a checksum
            _copy_all(each, into / each.name)


def _copy_file(of: Path, into: Path) -> bool:
    """Whether it was there; a checksum that is not there yet is none the worse."""
    try:
        shutil.copyfile(of, into)
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):
        shutil.copyfile(checksum_of(of), checksum_of(into))
    return True


def _batch_of(line: bytes, most: int) -> bool:
    """Whether a line is an entry of a batch up to `most`; one that a crash cut off is none."""
    try:
        return int(json.loads(line)["batch"]) <= most
    except (ValueError, KeyError, TypeError):
        return False


def parts_of(home: Home) -> list[Path]:
    """What a backup holds of a checkpoint, and a restore replaces."""
    return [path for name in (*_PARTS, *_FILES) if (path := home.path / name).exists()]
