"""What the servers of one state directory share: the lock that starting and stopping needs, and how a state is told."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from penstock.errors import AlreadyRunning, NotWritable
from penstock.local import ports
from penstock.local.process import Server


@dataclass(frozen=True)
class ServerStatus:
    name: str
    state: str  # up, starting (it runs, and does not listen yet), paused, down
    address: str
    pid: int | None
    log: Path

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "log": str(self.log)}


def status_of(server: Server, address: str, port: int) -> ServerStatus:
    """Asked of the process table and the port every time: nothing that was remembered can be stale."""
    process = server.process()
    state = "down"
    if process is not None:
        try:
            paused = process.status() == psutil.STATUS_STOPPED
        except psutil.Error:
            paused, process = False, None
        if process is not None:
            state = "paused" if paused else "up" if ports.accepts(port) else "starting"
    return ServerStatus(server.name, state, address, process.pid if process else None, server.logs[0])


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One command at a time starts or stops servers here. The kernel drops the lock of a dead holder."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "lock").open("a")
    except OSError as error:
        raise NotWritable(f"{directory} cannot be written", cause=str(error)) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(
                f"another command is starting or stopping servers in {directory}",
                next_command="penstock ps",
            ) from error
        yield


def wipe_parts(directory: Path, names: Iterable[str]) -> None:
    """Delete directories, files and logs of these names; then the directory, if no other server has anything in it.

    Called with the lock held, after the servers of these names were stopped.
    """
    logs = directory / "logs"
    for name in names:
        part = directory / name
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)
        for log in logs.glob(f"{name}.*"):
            log.unlink(missing_ok=True)
    if logs.is_dir() and not any(logs.iterdir()):
        logs.rmdir()
    if [path.name for path in directory.iterdir()] == ["lock"]:
        (directory / "lock").unlink()
        directory.rmdir()
