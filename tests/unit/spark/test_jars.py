"""The jar cache. Tests that download use one or two tiny jars and a cache of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from penstock.errors import BadArgument, JarsUnavailable, JavaMissing, NotWritable
from penstock.spark import ivy, jars

TINY = ("org.jspecify", "jspecify")
SMALL = ("net.sf.jopt-simple", "jopt-simple")
LARGER = ("org.apache.kafka", "kafka-clients")  # 10 MB: long enough to be interrupted

WriteLock = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "jars"


@pytest.fixture
def write_lock(tmp_path: Path) -> WriteLock:
    """Write a lock of some jars of the real one, with fields changed on request."""

    def write(*wanted: tuple[str, str], **changes: object) -> Path:
        entries = []
        for jar in jars.pinned(["broker"]):
            if (jar.org, jar.artifact) in wanted:
                entry = {
                    "org": jar.org,
                    "artifact": jar.artifact,
                    "version": jar.version,
                    "size": jar.size,
                    "sha256": jar.sha256,
                    **changes,
                }
                fields = ", ".join(f"{key} = {json.dumps(value)}" for key, value in entry.items())
                entries.append(f"  {{ {fields} }},")
        path = tmp_path / "jars.lock"
        path.write_text("tiny = [\n" + "\n".join(entries) + "\n]\n")
        return path

    return write


def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on any attempt to start Ivy fails."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)


def visible(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*/*") if not path.parent.name.startswith(".fetch-"))


def temp_dirs(cache: Path) -> list[Path]:
    return list(cache.glob(".fetch-*"))


def test_lock_names_every_jar_once_with_a_checksum() -> None:
    pinned = jars.pinned()
    assert {jar.group for jar in pinned} == {
        "core", "avro", "delta", "iceberg", "postgres", "broker", "registry",
    }  # fmt: skip
    assert len({(jar.group, jar.path) for jar in pinned}) == len(pinned)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in pinned)


def test_artifact_with_classifier_keeps_its_own_name() -> None:
    [registry] = jars.pinned(["registry"])
    assert registry.file_name == "apicurio-registry-app-3.0.9-all.tar.gz"


def test_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert jars.cache_dir() == tmp_path / "cache" / "jars"
    monkeypatch.delenv("PENSTOCK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert jars.cache_dir() == tmp_path / "xdg" / "penstock" / "jars"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert jars.cache_dir() == tmp_path / "home" / ".cache" / "penstock" / "jars"


def test_unknown_group_is_refused_with_the_groups_there_are() -> None:
    with pytest.raises(BadArgument) as raised:
        jars.ensure(["nonsense"])
    assert "broker" in (raised.value.cause or "")


def test_missing_jar_is_fetched_verified_and_then_needs_no_process(
    cache: Path, write_lock: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write_lock(TINY)
    said: list[str] = []
    [path] = jars.ensure(["tiny"], said.append, lock=lock)
    assert path == cache / "org.jspecify" / "jspecify-1.0.0.jar"
    assert said == ["fetched jspecify 1.0.0"]
    assert jars.corrupt(["tiny"], lock) == []
    assert temp_dirs(cache) == []

    no_java(monkeypatch)
    assert jars.ensure(["tiny"], lock=lock) == [path]


def test_everything_cached_works_from_a_cache_nobody_may_write(
    cache: Path, write_lock: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write_lock(TINY)
    jars.ensure(["tiny"], lock=lock)
    (cache / ".lock").unlink()
    no_java(monkeypatch)
    jars.ensure(["tiny"], lock=lock)
    assert not (cache / ".lock").exists(), "looking at a full cache must not write to it"


def test_half_a_cache_fetches_only_what_is_missing(cache: Path, write_lock: WriteLock) -> None:
    jars.ensure(["tiny"], lock=write_lock(TINY))
    before = (cache / "org.jspecify" / "jspecify-1.0.0.jar").stat()
    said: list[str] = []
    paths = jars.ensure(["tiny"], said.append, lock=write_lock(TINY, SMALL))
    assert said == ["fetched jopt-simple 5.0.4"]
    assert {path.name for path in paths} == {"jspecify-1.0.0.jar", "jopt-simple-5.0.4.jar"}
    after = (cache / "org.jspecify" / "jspecify-1.0.0.jar").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_wrong_checksum_in_the_lock_leaves_nothing_in_the_cache(cache: Path, write_lock: WriteLock) -> None:
    with pytest.raises(JarsUnavailable) as raised:
        jars.ensure(["tiny"], lock=write_lock(TINY, sha256="0" * 64))
    assert raised.value.next_command == "penstock jars --fetch"
    assert "checksum mismatch" in (raised.value.cause or "")
    assert visible(cache) == []
    assert temp_dirs(cache) == []


def test_jar_that_does_not_exist_is_named_and_the_others_are_kept(cache: Path, write_lock: WriteLock) -> None:
    lock = write_lock(TINY)
    absent = '  { org = "org.jspecify", artifact = "absent", version = "1", size = 1, sha256 = "00" },\n]'
    lock.write_text(lock.read_text().replace("]\n", absent + "\n"))
    with pytest.raises(JarsUnavailable) as raised:
        jars.ensure(["tiny"], lock=lock)
    assert raised.value.facts["failed"] == {"absent-1.jar": "not found"}
    assert visible(cache) == ["jspecify-1.0.0.jar"]


def test_file_cut_short_on_its_way_never_becomes_visible(
    cache: Path, write_lock: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write_lock(TINY)
    fetched = ivy.download

    def cut_short(artifacts: list[ivy.Artifact], directory: Path, on_progress: None) -> dict[tuple[str, str, str], str]:
        reasons = fetched(artifacts, directory, on_progress)
        [arrived] = directory.glob("*/*.jar")
        os.truncate(arrived, 1000)
        return reasons

    monkeypatch.setattr(ivy, "download", cut_short)
    with pytest.raises(JarsUnavailable) as raised:
        jars.ensure(["tiny"], lock=lock)
    assert "1000 bytes arrived" in (raised.value.cause or "")
    assert visible(cache) == []


def test_cached_file_cut_short_afterwards_is_fetched_again(write_lock: WriteLock) -> None:
    lock = write_lock(TINY)
    [path] = jars.ensure(["tiny"], lock=lock)
    os.truncate(path, 1000)
    jars.ensure(["tiny"], lock=lock)
    assert jars.corrupt(["tiny"], lock) == []


def test_changed_byte_in_the_cache_is_found_by_verify_and_can_be_discarded(write_lock: WriteLock) -> None:
    lock = write_lock(TINY)
    [path] = jars.ensure(["tiny"], lock=lock)
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    [broken] = jars.corrupt(["tiny"], lock)
    assert broken.path == path
    jars.discard([broken])
    assert not path.exists()


def test_cache_that_cannot_be_written_is_not_writable(
    tmp_path: Path, write_lock: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where a directory must be: permissions would not stop root, and tests may run as root.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "file"))
    with pytest.raises(NotWritable) as raised:
        jars.ensure(["tiny"], lock=write_lock(TINY))
    assert "PENSTOCK_CACHE" in (raised.value.next_command or "")


def test_fetch_without_java_names_java(write_lock: WriteLock, monkeypatch: pytest.MonkeyPatch) -> None:
    no_java(monkeypatch)
    with pytest.raises(JavaMissing):
        jars.ensure(["tiny"], lock=write_lock(TINY))


def test_unreachable_repository_is_told_as_the_reason(
    cache: Path, write_lock: WriteLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Ivy's JVM is told to go through a proxy that is not there.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    with pytest.raises(JarsUnavailable) as raised:
        jars.ensure(["tiny"], lock=write_lock(TINY))
    assert "repository unreachable" in (raised.value.cause or "")
    assert visible(cache) == []


FETCH = """
import sys
from pathlib import Path
from penstock.spark import jars
jars.ensure(["tiny"], lock=Path(sys.argv[1]))
"""


def test_killed_fetch_leaves_no_broken_cache_and_the_next_one_sweeps_up(cache: Path, write_lock: WriteLock) -> None:
    lock = write_lock(TINY, LARGER)
    child = subprocess.Popen([sys.executable, "-c", FETCH, str(lock)])
    ivys: list[psutil.Process] = []
    try:
        # Ivy writes a `.part` file first: at that moment the download is under way.
        deadline = time.monotonic() + 60
        while not any(cache.glob(".fetch-*/**/*.jar*")):
            assert child.poll() is None, "the fetch ended before it could be killed"
            assert time.monotonic() < deadline, "the download did not start"
            time.sleep(0.002)
        ivys = psutil.Process(child.pid).children()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        for orphan in ivys:
            orphan.kill()
    assert temp_dirs(cache), "the kill came too late to prove anything"
    assert visible(cache) == []

    jars.ensure(["tiny"], lock=lock)
    assert jars.corrupt(["tiny"], lock) == []
    assert temp_dirs(cache) == []


def test_two_processes_fetching_at_once_both_succeed(cache: Path, write_lock: WriteLock) -> None:
    lock = write_lock(TINY)
    children = [subprocess.Popen([sys.executable, "-c", FETCH, str(lock)]) for _ in range(2)]
    assert [child.wait(120) for child in children] == [0, 0]
    assert visible(cache) == ["jspecify-1.0.0.jar"]


def test_terminated_fetch_command_takes_its_download_with_it(tmp_path: Path, cache: Path) -> None:
    penstock = shutil.which("penstock", path=str(Path(sys.executable).parent))
    assert penstock
    child = subprocess.Popen(
        [penstock, "jars", "--fetch", "--group", "iceberg"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (started := psutil.Process(child.pid).children()):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.terminate()
    assert child.wait(30) == 128 + signal.SIGTERM
    assert [process for process in started if process.is_running()] == []
    assert visible(cache) == []
    assert temp_dirs(cache) == []
