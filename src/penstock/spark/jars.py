"""The pinned set of jars (`jars.lock`), and the per-user cache that holds them.

A file in the cache is a verified file: it is downloaded into a temporary directory on the same filesystem,
its sha256 is compared with the lock, and only then is it renamed into place. So a fetch that fails, or is
killed at any point, leaves whole jars or nothing; so does unpacking an archive. Once everything asked for is
cached, no process is started and nothing is written: it works offline, and from a read-only cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.archive import unpack
from penstock.errors import BadArgument, JarsUnavailable, NotWritable
from penstock.spark import ivy

LOCK_FILE = Path(__file__).with_name("jars.lock")
FETCH = "penstock jars --fetch"
_TEMP_PREFIX = ".fetch-"

OnProgress = Callable[[str], None]


@dataclass(frozen=True)
class Jar:
    """One pinned file: a jar, or (with a classifier and an ext) another artifact of the same repository."""

    group: str
    org: str
    artifact: str
    version: str
    size: int
    sha256: str
    classifier: str | None = None
    ext: str = "jar"

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}{f'-{self.classifier}' if self.classifier else ''}.{self.ext}"

    @property
    def path(self) -> Path:
        return cache_dir() / self.org / self.file_name

    @property
    def directory(self) -> Path:
        """Where a distribution lies once it is unpacked: beside its archive."""
        return self.path.with_name(self.file_name.removesuffix(f".{self.ext}"))

    @property
    def cached(self) -> bool:
        """In the cache, and so verified. The size is compared too: it is free, and shows a file cut short."""
        try:
            return self.path.stat().st_size == self.size
        except OSError:
            return False


def cache_dir() -> Path:
    """PENSTOCK_CACHE, else XDG_CACHE_HOME/penstock, else ~/.cache/penstock; plus `jars`."""
    if own := os.environ.get("PENSTOCK_CACHE"):
        return Path(own) / "jars"
    xdg = os.environ.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "penstock" / "jars"


def pinned(groups: Iterable[str] | None = None, lock: Path = LOCK_FILE) -> list[Jar]:
    """The jars of the lock, in its order; of some groups only when they are named."""
    entries = tomllib.loads(lock.read_text(encoding="utf-8"))
    wanted = list(entries) if groups is None else list(dict.fromkeys(groups))
    if unknown := [group for group in wanted if group not in entries]:
        raise BadArgument(
            f"no group of jars is called {unknown[0]}",
            cause=f"the groups are {', '.join(entries)}",
            next_command="penstock jars",
        )
    return [Jar(group=group, **entry) for group in wanted for entry in entries[group]]


def ensure(groups: Iterable[str], on_progress: OnProgress | None = None, *, lock: Path = LOCK_FILE) -> list[Path]:
    """Paths of all jars of `groups`, fetching the missing ones. Called before every JVM that needs them.

    1. Look: when every jar is cached, return at once.
    2. Take the fetch lock, and look again: another process may have fetched meanwhile.
    3. Sweep up what a killed fetch left, download what is missing into a temporary directory.
    4. Check each sha256, and rename what is right into the cache.
    Jars that arrived whole are kept even when others failed, so the next fetch asks for less.
    """
    jars = pinned(groups, lock)
    if not all(jar.cached for jar in jars):
        with _fetch_lock(on_progress):
            if missing := [jar for jar in jars if not jar.cached]:
                _fetch(missing, on_progress)
    return [jar.path for jar in jars]


def unpacked(group: str, on_progress: OnProgress | None = None, *, lock: Path = LOCK_FILE) -> Path:
    """The directory of a group that is one archive, fetched and unpacked once. Called before its JVM is started.

    It is unpacked beside its place and renamed, so a directory of that name is a whole one, whoever was killed; of two
    processes that come at once the second waits and finds it done.
    """
    [archive] = pinned([group], lock)
    if archive.directory.is_dir():
        return archive.directory
    ensure([group], on_progress, lock=lock)
    with _fetch_lock(on_progress):
        if not archive.directory.is_dir():
            if on_progress:
                on_progress(f"unpacking {archive.file_name}")
            _unpack(archive)
    return archive.directory


def corrupt(groups: Iterable[str] | None = None, lock: Path = LOCK_FILE) -> list[Jar]:
    """Cached jars whose bytes are not those of the lock. Called by `jars --verify`; changes nothing."""
    return [jar for jar in pinned(groups, lock) if jar.path.exists() and not _is_right(jar.path, jar)]


def discard(jars: Iterable[Jar]) -> None:
    """Remove jars from the cache, so that the next `ensure` fetches them again."""
    with _fetch_lock(None):
        for jar in jars:
            jar.path.unlink(missing_ok=True)
            shutil.rmtree(jar.directory, ignore_errors=True)  # there only where an archive was unpacked


def _fetch(missing: list[Jar], on_progress: OnProgress | None) -> None:
    failed: dict[str, str] = {}
    with _temp_dir() as temp:
        unfetched = ivy.download([ivy.Artifact(*_coordinates(jar)) for jar in missing], temp, on_progress)
        for jar in missing:
            arrived = temp / jar.org / jar.file_name
            if not arrived.is_file():
                failed[jar.file_name] = unfetched.get((jar.org, jar.artifact, jar.version), "not downloaded")
            elif not _is_right(arrived, jar):
                failed[jar.file_name] = (
                    f"checksum mismatch: {arrived.stat().st_size} bytes arrived, sha256 {_sha256(arrived)}; "
                    f"the lock wants {jar.size} bytes, sha256 {jar.sha256}"
                )
            else:
                _place(arrived, jar.path)
    if failed:
        raise JarsUnavailable(
            f"{len(failed)} of {len(missing)} jars could not be fetched: {', '.join(failed)}",
            cause="; ".join(f"{name}: {reason}" for name, reason in failed.items()),
            next_command=FETCH,
            facts={"failed": failed},
        )


def _coordinates(jar: Jar) -> tuple[str, str, str, str | None, str]:
    return jar.org, jar.artifact, jar.version, jar.classifier, jar.ext


def _place(arrived: Path, path: Path) -> None:
    """Make a verified file visible. The bytes reach the disk before the name does."""
    with writable(cache_dir()):
        path.parent.mkdir(parents=True, exist_ok=True)
        with arrived.open("rb") as file:
            os.fsync(file.fileno())
        arrived.replace(path)


def _unpack(archive: Jar) -> None:
    with _temp_dir() as temp, writable(cache_dir()):
        try:
            with tarfile.open(archive.path) as tar:
                unpack(tar, temp)
        except (tarfile.TarError, EOFError) as error:
            raise JarsUnavailable(
                f"{archive.path} cannot be unpacked", cause=str(error), next_command="penstock jars --verify --fetch"
            ) from error
        for file in (path for path in temp.rglob("*") if path.is_file()):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        temp.chmod(0o755)
        temp.rename(archive.directory)


@contextmanager
def _temp_dir() -> Iterator[Path]:
    """A directory inside the cache. One fetch runs at a time, so any older one is of a fetch that died."""
    with writable(cache_dir()):
        for left in cache_dir().glob(f"{_TEMP_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        temp = Path(tempfile.mkdtemp(prefix=_TEMP_PREFIX, dir=cache_dir()))
    try:
        yield temp
    finally:
        shutil.rmtree(temp, ignore_errors=True)


@contextmanager
def _fetch_lock(on_progress: OnProgress | None) -> Iterator[None]:
    """One fetch at a time per cache. The kernel drops the lock when its holder dies, however it dies."""
    with writable(cache_dir()):
        cache_dir().mkdir(parents=True, exist_ok=True)
        file = (cache_dir() / ".lock").open("a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_progress:
                on_progress("another process is fetching jars; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def writable(directory: Path, what: str = "the jar cache") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotWritable(
            f"{what} {directory} cannot be written",
            cause=str(error),
            next_command="set PENSTOCK_CACHE to a directory that can be written",
        ) from error


def _is_right(path: Path, jar: Jar) -> bool:
    return path.stat().st_size == jar.size and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
