"""A server as a child process: start it, wait until it answers, stop it, know it again from another process.

A server outlives the command that started it, so what identifies it is on disk: its pid and the moment that
process was created. A pid alone is not enough: the kernel gives it to somebody else sooner or later.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from penstock.errors import ServerFailed

# The clock behind creation times is adjusted while a machine runs. A re-used pid is never this close.
_SAME_MOMENT_SECONDS = 2.0
_POLL_SECONDS = 0.05
_TAIL_LINES = 15

# Our own children, so that one that died is reaped instead of staying a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


class Interrupted(BaseException):
    """A signal asked the starting command to end. Not an Exception: nothing but the clean-up may catch it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Signals:
    """Signals remembered instead of acted on, so that none can fall between a fork and its pid file."""

    def __init__(self) -> None:
        self.received: int | None = None

    def note(self, signum: int, _frame: FrameType | None) -> None:
        self.received = signum

    def check(self) -> None:
        """Called between steps and in every wait."""
        if self.received is not None:
            raise Interrupted(self.received)


@contextmanager
def deferred_signals() -> Iterator[Signals]:
    """While servers start or stop: a signal that arrives is delivered afterwards, as if it had just come.

    Inside another one of these the outer one gets it, and ends what it was doing as well.
    """
    signals = Signals()
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[signal.Signals, Any] = {}
    try:
        for each in wanted:
            before[each] = signal.signal(each, signals.note)
    except ValueError:
        pass  # not the main thread: signals arrive elsewhere, and Python forbids handlers here
    try:
        yield signals
    except Interrupted:
        pass
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if signals.received is not None:
        signal.raise_signal(signals.received)
        if isinstance(getattr(before.get(signal.Signals(signals.received)), "__self__", None), Signals):
            raise Interrupted(signals.received)
        raise ServerFailed(f"interrupted by {signal.Signals(signals.received).name}")  # the handler let us live


@dataclass(frozen=True)
class Server:
    """One server. `directory` holds its pid file; `logs` are the files whose ends explain a failure."""

    name: str
    directory: Path
    command: Sequence[str | Path]
    output: Path
    logs: Sequence[Path]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid_file(self) -> Path:
        return self.directory / "pid.json"

    def process(self) -> psutil.Process | None:
        """The running process, or None: never started, gone, a zombie, or its pid is somebody else's now."""
        try:
            noted = json.loads(self.pid_file.read_text(encoding="utf-8"))
            pid, created = int(noted["pid"]), float(noted["created"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if child := _children.get(pid):
            child.poll()
        try:
            process = psutil.Process(pid)
            if abs(process.create_time() - created) > _SAME_MOMENT_SECONDS:
                return None
            # Of a killed JVM the first thread may be a zombie while others still hold its port and its files.
            gone = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
            return None if gone else process
        except psutil.Error:
            return None

    def launch(self) -> None:
        """Start the process in a session of its own: Ctrl-C in the terminal, or its closing, leaves it alone.

        After a crash between fork and pid file the server runs unknown to us; its data lock keeps others out.
        Called with signals deferred, which leaves only SIGKILL as such a crash.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        with self.output.open("wb") as output:
            child = subprocess.Popen(
                [str(part) for part in self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                cwd=self.directory,
                start_new_session=True,
            )
        _children[child.pid] = child
        try:
            created = psutil.Process(child.pid).create_time()
        except psutil.Error:
            return  # it died at once; wait_ready says so
        noted = self.pid_file.with_suffix(".new")
        noted.write_text(json.dumps({"pid": child.pid, "created": created}), encoding="utf-8")
        noted.replace(self.pid_file)

    def wait_ready(self, ready: Callable[[], bool], signals: Signals, seconds: float) -> None:
        """Return when `ready` says so; raise ServerFailed when the process died first or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            signals.check()
            if self.process() is None:
                raise self.failure(f"{self.name} ended while it was starting")
            if ready():
                return
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} was not ready after {seconds:.0f} seconds")
            time.sleep(_POLL_SECONDS)

    def ask_to_stop(self) -> None:
        """SIGTERM, and SIGCONT because a paused process sees nothing before it."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def wait_stopped(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.process() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        self.pid_file.unlink(missing_ok=True)
        return True

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._signal(signal.SIGKILL)
        if not self.wait_stopped(10):
            raise self.failure(f"{self.name} could not be killed")

    def pause(self) -> None:
        """SIGSTOP, and wait until it took effect: the kernel stops the threads one by one."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while (process := self.process()) and process.status() != psutil.STATUS_STOPPED:
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} could not be paused")
            time.sleep(_POLL_SECONDS)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def failure(self, what: str) -> ServerFailed:
        return ServerFailed(what, cause=self.tail() or "it wrote nothing", facts={"log": str(self.logs[0])})

    def tail(self) -> str:
        lines: list[str] = []
        for path in dict.fromkeys([*self.logs, self.output]):
            try:
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
            except OSError:
                continue
        return "\n".join(lines)

    def _signal(self, signum: signal.Signals) -> None:
        if process := self.process():
            try:
                process.send_signal(signum)
            except psutil.NoSuchProcess:
                return


def stop_all(servers: Sequence[Server], seconds: float) -> list[str]:
    """Stop servers together, killing what is left after `seconds`. Returns the names of those that ran."""
    running = [server for server in servers if server.process()]
    for server in running:
        server.ask_to_stop()
    deadline = time.monotonic() + seconds
    for server in running:
        if not server.wait_stopped(max(0.0, deadline - time.monotonic())):
            server.kill()
    for server in servers:
        server.pid_file.unlink(missing_ok=True)
    return [server.name for server in running]
