"""An archive of the jar cache is unpacked once, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import JarsUnavailable
from penstock.spark import jars

Archive = Callable[[dict[str, bytes]], Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars"


@pytest.fixture
def archive(tmp_path: Path, cache: Path) -> Archive:
    """Put an archive with these members into the cache, as if it had been fetched; returns the lock that pins it."""

    def make(members: dict[str, bytes]) -> Path:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        content = buffer.getvalue()
        (cache / "org.tiny").mkdir(parents=True)
        (cache / "org.tiny" / "app-1.0-all.tar.gz").write_bytes(content)
        lock = tmp_path / "jars.lock"
        pinned = f'size = {len(content)}, sha256 = "{hashlib.sha256(content).hexdigest()}"'
        pinned += ', classifier = "all", ext = "tar.gz"'
        lock.write_text(f'tiny = [{{ org = "org.tiny", artifact = "app", version = "1.0", {pinned} }}]\n')
        return lock

    return make


def test_archive_is_unpacked_beside_itself_and_then_left_alone(archive: Archive, cache: Path) -> None:
    lock = archive({"app-runner.jar": b"jar", "lib/a.jar": b"a"})
    left = cache / ".fetch-of-a-killed-process"
    left.mkdir()
    said: list[str] = []
    directory = jars.unpacked("tiny", said.append, lock=lock)
    assert directory == cache / "org.tiny" / "app-1.0-all"
    assert {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()} == {
        "app-runner.jar",
        "lib/a.jar",
    }
    assert said == ["unpacking app-1.0-all.tar.gz"]
    assert not left.exists()
    (directory / "lib" / "a.jar").write_bytes(b"changed")
    assert jars.unpacked("tiny", said.append, lock=lock) == directory
    assert len(said) == 1
    assert (directory / "lib" / "a.jar").read_bytes() == b"changed"
    jars.discard(jars.pinned(["tiny"], lock))
    assert not directory.exists()


def test_archive_that_reaches_outside_is_refused_and_leaves_nothing(archive: Archive, cache: Path) -> None:
    lock = archive({"good": b"", "../evil": b"x"})
    with pytest.raises(JarsUnavailable) as raised:
        jars.unpacked("tiny", lock=lock)
    assert "evil" in (raised.value.cause or "")
    assert [path.name for path in cache.rglob("*") if path.name != ".lock"] == ["org.tiny", "app-1.0-all.tar.gz"]


UNPACK = """
import sys
from pathlib import Path
from penstock.spark import jars
print(len(list(jars.unpacked("tiny", lock=Path(sys.argv[1])).iterdir())))
"""


def test_processes_that_unpack_at_once_all_find_it_whole(archive: Archive, cache: Path) -> None:
    lock = archive({f"{number}.jar": b"x" * 1000 for number in range(300)})
    command = [sys.executable, "-c", UNPACK, str(lock)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [child.communicate(timeout=60)[0] for child in children] == ["300\n"] * 3
    assert not any(cache.glob(".fetch-*"))
