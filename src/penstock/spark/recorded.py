"""Spark's classes, recorded once so that later JVMs map them instead of reading and checking them again.

Much of a start goes into loading thousands of classes. Java can write them to a file at the end of
one JVM and map that file in the next (class data sharing). A file that does not fit Java or class path is passed over
by Java itself; one that was cut short would crash it. So the name says which Java and which Spark it is for and how
long it is, and the file is renamed into place only when it is whole.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import EngineFailed
from penstock.spark import jars
from penstock.spark.java import Java

_KEPT = 3  # of other installations: each is a hundred megabytes
_LONGEST = 300
# Java tells on standard output of a file it passes over.
_QUIET = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def options(found: Java) -> list[str]:
    """What a JVM needs to use the record; nothing when there is none for this Java and this Spark."""
    file = _whole(_directory(), _digest(found))
    return [f"-XX:SharedArchiveFile={file}", *_QUIET] if file else []


def record(found: Java) -> Path:
    """Make the record, unless it is there: start Spark, do a little of everything, and let Java write at its end."""
    directory, digest = _directory(), _digest(found)
    if file := _whole(directory, digest):
        return file
    with jars.writable(directory, "the cache of classes"):
        directory.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".record-", dir=directory))
    try:
        return _recorded(place, directory, digest)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _recorded(place: Path, directory: Path, digest: str) -> Path:
    made, log = place / "classes", place / "log"
    with log.open("w") as said:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "penstock.spark.rehearse", str(made)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=_LONGEST,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            done = None
    if done != 0 or not made.is_file():
        raise EngineFailed(
            "Spark's classes were not recorded",
            cause=(log.read_text(errors="replace").strip().splitlines() or ["it printed nothing"])[-1],
            next_command="go on without: only the start is slower",
        )
    file = directory / f"{digest}-{made.stat().st_size}.jsa"
    made.rename(file)
    for old in sorted(directory.glob("*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)[1 + _KEPT :]:
        old.unlink(missing_ok=True)
    return file


def _whole(directory: Path, digest: str) -> Path | None:
    for file in directory.glob(f"{digest}-*.jsa"):
        if file.stem == f"{digest}-{file.stat().st_size}":
            return file
    return None


def _directory() -> Path:
    return jars.cache_dir().parent / "classes"


def _digest(found: Java) -> str:
    """Java's own check is of path, size and time of every jar; an installation is known by its directory's."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent / "jars"
    release = found.home / "release"
    parts = [str(found.executable), release.read_text() if release.is_file() else str(found.major)]
    parts += [version("pyspark"), str(home), str(home.stat().st_mtime_ns)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
