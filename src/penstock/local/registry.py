"""A schema registry on this machine: a real Apicurio, as a child process beside the broker.

<dir>/registry/registry.json   its port; kept by `down`: the URL stays the same
<dir>/registry/data            its database, an H2 file; `prepared` beside it says that the first start was completed
<dir>/registry/tmp             what the JVM unpacks; emptied before every start
<dir>/registry/pid.json
<dir>/logs/registry.log        what it logs; registry.out is what its JVM prints

The database is a file of its own and not topics of the broker (Apicurio's `kafkasql`), so that a registry can be
killed, moved and looked at without a broker, and a broker can be wiped without it.
"""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from penstock.errors import BadArgument, JarsUnavailable, PenstockError, ServerFailed
from penstock.kafka.schema_registry import RegistrySettings, SchemaRegistry
from penstock.local import ports
from penstock.local.broker import Cluster
from penstock.local.process import Server, Signals, deferred_signals, stop_all
from penstock.local.state import ServerStatus, locked, status_of, wipe_parts
from penstock.runtime import jars, java

_NAME = "registry"
_API = "/apis/ccompat/v7"
_START_SECONDS = 90.0  # five seconds on an idle machine
_STOP_SECONDS = 10.0
# WRITE_DELAY: by default H2 writes half a second after it has said "committed"; killed within it, the registry
# forgets schemas whose ids are already in records. The path is relative to the server's directory, because a
# semicolon in an absolute one would begin an option.
_DATABASE = "jdbc:h2:file:./data/registry;WRITE_DELAY=0"

OnProgress = Callable[[str], None]


class LocalRegistry:
    """The registry of one state directory. Any process may make one: what runs is read from disk every time.

    After `up` returns, it answers. After `down`, after an `up` that raised, and after one that a signal ended, nothing
    started by it is left. What it has answered to survives `down`, `up` and SIGKILL.
    """

    def __init__(self, directory: Path | str, port: int | None = None) -> None:
        self.directory = Path(directory).absolute()
        self._home = self.directory / _NAME
        self._wanted = port

    def up(self, on_progress: OnProgress | None = None) -> str:
        """Start it if it does not run, wait until it answers, return the URL of its Confluent-compatible API."""
        distribution = jars.unpacked(_NAME, on_progress)
        with locked(self.directory), deferred_signals() as signals:
            port = self._remembered()
            if port is not None and self._server().process():
                if self._wanted not in (None, port):
                    raise BadArgument(
                        f"a registry already runs at {_url(port)}",
                        cause="its port cannot change while it runs",
                        next_command="penstock down",
                    )
                # It may be the one of an `up` that was killed a moment ago, and still be starting.
                self._server().wait_ready(partial(_answers, port), signals, _START_SECONDS)
                self._prepare(port)
            else:
                port = self._decide(port)
                if on_progress:
                    on_progress("starting the schema registry")
                self._start(distribution, port, signals)
        return _url(port)

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
        """One entry, or none where no registry was ever started: as `Cluster.status`."""
        port = self._remembered()
        return [] if port is None else [status_of(self._server(), _url(port), port)]

    def is_up(self) -> bool:
        return [server.state for server in self.status()] == ["up"]

    @property
    def url(self) -> str:
        port = self._remembered()
        if port is None:
            raise ServerFailed(
                f"no registry was ever started in {self.directory}", next_command="penstock up --registry"
            )
        return _url(port)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. For crash tests; `up` starts it again where it was."""
        self._server().kill()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing."""
        self._server().pause()

    def resume(self) -> None:
        self._server().resume()

    def _start(self, distribution: Path, port: int, signals: Signals) -> None:
        """1. port remembered  2. launched  3. it answers  4. prepared, the first time; or it is stopped again."""
        shutil.rmtree(self._home / "tmp", ignore_errors=True)
        (self._home / "tmp").mkdir(parents=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        new = self._home / "registry.json.new"
        new.write_text(json.dumps({"port": port}) + "\n", encoding="utf-8")
        new.replace(self._home / "registry.json")
        server = self._server(self._command(distribution, port))
        try:
            signals.check()
            server.launch()
            server.wait_ready(partial(_answers, port), signals, _START_SECONDS)
            self._prepare(port)
            signals.check()
        except BaseException:
            stop_all([server], 2.0)
            raise

    def _prepare(self, port: int) -> None:
        """A new registry checks compatibility as Confluent's does from the start; Apicurio's would check nothing.

        Once only: a mode that somebody set afterwards is theirs.
        """
        marker = self._home / "prepared"
        if not marker.exists():
            try:
                with SchemaRegistry(RegistrySettings(_url(port))) as registry:
                    registry.set_mode("BACKWARD")
            except PenstockError as error:
                raise self._server().failure(f"the registry started, and failed at once: {error.cause}") from error
            marker.write_text("", encoding="utf-8")

    def _command(self, distribution: Path, port: int) -> list[str | Path]:
        settings = {
            "java.io.tmpdir": self._home / "tmp",
            "quarkus.http.host": ports.HOST,
            "quarkus.http.port": port,
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": _DATABASE,
            # Twenty connections to a file on the same machine are made at the start otherwise.
            "apicurio.datasource.jdbc.initial-size": 2,
            "apicurio.datasource.jdbc.min-size": 2,
            "apicurio.datasource.jdbc.max-size": 10,
            "quarkus.log.console.enable": "false",
            "quarkus.log.file.enable": "true",
            "quarkus.log.file.json": "false",
            "quarkus.log.file.path": "../logs/registry.log",
            "quarkus.log.file.rotation.max-file-size": "20M",
            "quarkus.log.file.rotation.max-backup-index": 3,
        }
        runner = next(distribution.glob("*-runner.jar"), None)
        if runner is None:
            raise JarsUnavailable(f"{distribution} is not whole", next_command=f"rm -r {distribution}")
        return [
            java.find().executable,
            "-Xmx256m",
            "-Xms64m",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            "-XX:TieredStopAtLevel=1",  # starts in two thirds of the time; nobody needs its best throughput here
            # As properties and not in a file: they win over variables such as QUARKUS_HTTP_HOST.
            *(f"-D{name}={value}" for name, value in settings.items()),
            "-jar",
            runner,
        ]

    def _server(self, command: Sequence[str | Path] = ()) -> Server:
        logs = self.directory / "logs"
        return Server(_NAME, self._home, command, output=logs / "registry.out", logs=[logs / "registry.log"])

    def _remembered(self) -> int | None:
        path = self._home / "registry.json"
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
                next_command="penstock up --registry --registry-port <another port>",
                facts={"port": wanted},
            )
        return wanted


def up_together(cluster: Cluster, registry: LocalRegistry, on_progress: OnProgress | None = None) -> tuple[str, str]:
    """Brokers, then the registry: bootstrap and URL. Called by `penstock up --registry`.

    When the registry fails, or a signal comes, a broker that was started for it is stopped too. Downloads come
    before all that, while a signal still simply ends the command.
    """
    jars.ensure(["broker"], on_progress)
    jars.unpacked(_NAME, on_progress)
    with deferred_signals() as signals:
        ran_before = any(server.pid for server in cluster.status())
        bootstrap = cluster.up(on_progress)
        try:
            signals.check()
            url = registry.up(on_progress)
        except BaseException:
            if not ran_before:
                cluster.down()
            raise
    return bootstrap, url


def _url(port: int) -> str:
    return f"http://{ports.HOST}:{port}{_API}"


def _answers(port: int) -> bool:
    """Its API lists subjects: the database is open. No proxy of the environment is asked."""
    connection = http.client.HTTPConnection(ports.HOST, port, timeout=5)
    try:
        connection.request("GET", f"{_API}/subjects")
        response = connection.getresponse()
        return response.status == 200 and isinstance(json.loads(response.read()), list)
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()
