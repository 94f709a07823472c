"""A server of which a state directory has one, beside the brokers: its port remembered, started and stopped by anybody.

<dir>/<name>/<name>.json   its port; kept by `down`: the URL stays the same
<dir>/<name>/pid.json
<dir>/logs/<name>.log      what it logs; <name>.out is what it prints
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from penstock.errors import BadArgument, ServerFailed
from penstock.local import ports
from penstock.local.process import Server, Signals, deferred_signals, stop_all
from penstock.local.state import ServerStatus, locked, status_of, wipe_parts

OnProgress = Callable[[str], None]


class SingleServer(ABC):
    """Any process may make one: what runs is read from disk every time.

    After `up` returns, it answers. After `down`, after an `up` that raised, and after one that a signal ended, nothing
    started by it is left. What it has committed survives `down`, `up` and SIGKILL.
    """

    name: ClassVar[str]  # of its directory, its logs and its option of `penstock up`
    title: ClassVar[str]  # in sentences
    start_seconds: ClassVar[float]
    stop_seconds: ClassVar[float]
    runs_as: ClassVar[type[Server]] = Server

    def __init__(self, directory: Path | str, port: int | None = None) -> None:
        self.directory = Path(directory).absolute()
        self._home = self.directory / self.name
        self._wanted = port

    @abstractmethod
    def programs(self, on_progress: OnProgress | None = None) -> Path:
        """Where its programs are, fetched if need be. Called first: while a signal still simply ends the command."""

    @abstractmethod
    def _make_ready(self, programs: Path) -> None:
        """Whatever must be on disk before it is launched."""

    @abstractmethod
    def _command(self, programs: Path, port: int) -> list[str | Path]: ...

    @abstractmethod
    def _answers(self, port: int) -> bool: ...

    @abstractmethod
    def _url(self, port: int) -> str: ...

    def _address(self, port: int) -> str:
        """What `penstock ps` shows."""
        return self._url(port)

    def _complete(self, port: int) -> None:  # noqa: B027  # most need nothing
        """What the first start needs once it answers. Called after every start, so one that was killed is completed."""

    def up(self, on_progress: OnProgress | None = None) -> str:
        """Start it if it does not run, wait until it answers, return its URL."""
        programs = self.programs(on_progress)
        with locked(self.directory), deferred_signals() as signals:
            port = self._remembered()
            if port is not None and self._server().process():
                if self._wanted not in (None, port):
                    raise BadArgument(
                        f"{self.title} already runs on port {port}",
                        cause="its port cannot change while it runs",
                        next_command="penstock down",
                    )
                # It may be the one of an `up` that was killed a moment ago, and still be starting.
                self._server().wait_ready(partial(self._answers, port), signals, self.start_seconds)
                self._complete(port)
            else:
                port = self._decide(port)
                if on_progress:
                    on_progress(f"starting {self.title}")
                self._start(programs, port, signals)
        return self._url(port)

    def down(self, wipe: bool = False) -> list[str]:
        """Stop it; returns its name if it ran. With `wipe` its data and logs go as well."""
        if not self._home.is_dir():
            return []
        with locked(self.directory), deferred_signals():
            stopped = stop_all([self._server()], self.stop_seconds)
            if wipe:
                wipe_parts(self.directory, [self.name])
        return stopped

    def status(self) -> list[ServerStatus]:
        """One entry, or none where it was never started: as `Cluster.status`."""
        port = self._remembered()
        return [] if port is None else [status_of(self._server(), self._address(port), port)]

    def is_up(self) -> bool:
        return [server.state for server in self.status()] == ["up"]

    @property
    def url(self) -> str:
        port = self._remembered()
        if port is None:
            raise ServerFailed(
                f"{self.title} was never started in {self.directory}", next_command=f"penstock up --{self.name}"
            )
        return self._url(port)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. For crash tests; `up` starts it again where it was."""
        self._server().kill()

    def pause(self) -> None:
        """SIGSTOP: it takes no new connections."""
        self._server().pause()

    def resume(self) -> None:
        self._server().resume()

    def _start(self, programs: Path, port: int, signals: Signals) -> None:
        """1. made ready  2. port remembered  3. launched  4. it answers  5. completed; or it is stopped again."""
        self._home.mkdir(parents=True, exist_ok=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        self._make_ready(programs)
        signals.check()
        new = self._home / f"{self.name}.json.new"
        new.write_text(json.dumps({"port": port}) + "\n", encoding="utf-8")
        new.replace(self._home / f"{self.name}.json")
        server = self._server(self._command(programs, port))
        try:
            server.launch()
            server.wait_ready(partial(self._answers, port), signals, self.start_seconds)
            self._complete(port)
            signals.check()
        except BaseException:
            stop_all([server], 2.0)
            raise

    def _server(self, command: Sequence[str | Path] = ()) -> Server:
        log = self.directory / "logs" / self.name
        output, logs = log.with_suffix(".out"), [log.with_suffix(".log")]
        return self.runs_as(self.name, self._home, command, output=output, logs=logs)

    def _remembered(self) -> int | None:
        path = self._home / f"{self.name}.json"
        try:
            return int(json.loads(path.read_text(encoding="utf-8"))["port"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ServerFailed(f"{path} cannot be read", cause=str(error), next_command=f"remove {path}") from error

    def _decide(self, remembered: int | None) -> int:
        """The port asked for, or it is an error; else the remembered one if it is free; else any that is."""
        wanted = self._wanted
        if wanted is None:
            return remembered if remembered is not None and ports.is_free(remembered) else ports.pick(set())
        if not 1024 <= wanted <= 65_000:
            raise BadArgument(f"port {wanted} is not between 1024 and 65000")
        if not ports.is_free(wanted):
            raise ServerFailed(
                f"port {wanted} is in use on {ports.HOST}",
                cause="another process listens there",
                next_command=f"penstock up --{self.name} --{self.name}-port <another port>",
                facts={"port": wanted},
            )
        return wanted
