"""Processes of the product, seen from outside: started, found again, and gone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

# A JVM that lives for seconds spends most of them compiling: half the time without the second compiler. And what it
# holds is little: one thread collects it with less work than several.
QUICK_JVM = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
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
