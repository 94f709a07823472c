"""Processes of the product, seen from outside: started, found again, and gone."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psutil

# What an engine keeps on disk for its own life. One that is killed leaves it behind: tens of megabytes each time.
SCRATCH = tempfile.mkdtemp(prefix="penstock-tests-")
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

# A JVM that lives for seconds spends most of them compiling: half the time without the second compiler. And what it
# holds is little: one thread collects it with less work than several.
QUICK_JVM = {"JAVA_TOOL_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={SCRATCH}"}
PENSTOCK = str(Path(sys.executable).with_name("penstock"))


class LocalServer(Protocol):
    def up(self) -> object: ...
    def down(self) -> object: ...


S = TypeVar("S", bound=LocalServer)


@contextmanager
def running(server: S) -> Iterator[S]:
    server.up()
    try:
        yield server
    finally:
        server.down()


def in_a_new_process(check: Callable[[], None]) -> None:
    """A check that counts what a process has, where nothing is left of other tests. Raises what it raises."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as one:
        one.submit(check).result(60)


def penstock(*arguments: str, directory: Path) -> subprocess.Popen[str]:
    """The command, with its local servers in `directory`."""
    return subprocess.Popen(
        [PENSTOCK, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PENSTOCK_LOCAL": str(directory)},
    )


def servers_of(directory: Path) -> list[psutil.Process]:
    """Every server on this machine that was started for this directory, known to the product or not."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()  # empty for a zombie
            if words and Path(words[0]).name == "java" and any(str(directory) in word for word in words):
                found.append(process)
        except psutil.Error:
            continue
    return found


def watched(directory: Path) -> Iterator[Path]:
    """For a fixture: whatever a test leaves running there is killed, and reported as its failure."""
    yield directory
    left = servers_of(directory)
    for process in left:
        process.kill()
    assert left == []


def of_session(leader: int) -> list[psutil.Process]:
    """A command and all below it: engine and workers leave the process group, not the session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


class Run:
    """A `penstock` that runs beside the test, in a session of its own, its streams in files."""

    def __init__(self, directory: Path, *words: str, **streams: Any) -> None:
        self.out, self.err = directory / "run.out", directory / "run.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            streams = streams or {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            self.process = subprocess.Popen([PENSTOCK, *words], start_new_session=True, **streams)

    def until(self, fact: Callable[[], object], seconds: float = 90) -> None:
        """Wait for a fact that the run brings about."""
        deadline = time.monotonic() + seconds
        while not fact():
            self.goes_on()
            assert time.monotonic() < deadline, f"did not happen within {seconds} s\n{self.said()}"
            time.sleep(0.05)

    def goes_on(self) -> None:
        assert self.process.poll() is None, f"ended with {self.process.returncode} too early\n{self.said()}"

    def ended(self, seconds: float = 60) -> int:
        """The exit status, once the command and everything it started are gone."""
        status = self.process.wait(seconds)
        deadline = time.monotonic() + 15
        while left := self.processes():
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)
        return status

    def processes(self) -> list[psutil.Process]:
        return of_session(self.process.pid)

    def kill(self) -> None:
        for process in self.processes():
            process.kill()
        self.process.wait(10)

    def said(self) -> str:
        return f"stdout:\n{self.out.read_text()}\nstderr:\n{self.err.read_text()}"
