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
from pathlib import Path

from penstock.errors import JarsUnavailable, PenstockError
from penstock.local import ports
from penstock.local.single import OnProgress, SingleServer
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry
from penstock.spark import jars, java

_API = "/apis/ccompat/v7"
# WRITE_DELAY: by default H2 writes half a second after it has said "committed"; killed within it, the registry
# forgets schemas whose ids are already in records. The path is relative to the server's directory, because a
# semicolon in an absolute one would begin an option.
_DATABASE = "jdbc:h2:file:./data/registry;WRITE_DELAY=0"


class LocalRegistry(SingleServer):
    """The registry of one state directory. Its URL is that of the Confluent-compatible API."""

    name = "registry"
    title = "the schema registry"
    start_seconds = 90.0  # five seconds on an idle machine
    stop_seconds = 10.0

    def programs(self, on_progress: OnProgress | None = None) -> Path:
        return jars.unpacked(self.name, on_progress)

    def _make_ready(self, programs: Path) -> None:  # noqa: ARG002
        shutil.rmtree(self._home / "tmp", ignore_errors=True)
        (self._home / "tmp").mkdir()

    def _complete(self, port: int) -> None:
        """A new registry checks compatibility as Confluent's does from the start; Apicurio's would check nothing.

        Once only: a mode that somebody set afterwards is theirs.
        """
        marker = self._home / "prepared"
        if not marker.exists():
            try:
                with SchemaRegistry(RegistrySettings(self._url(port))) as registry:
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

    def _url(self, port: int) -> str:
        return f"http://{ports.HOST}:{port}{_API}"

    def _answers(self, port: int) -> bool:
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
