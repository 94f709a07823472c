"""`penstock up`, `down`, `ps`: real local servers as child processes, for trying things out and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson

Directory = Annotated[
    Path, typer.Option("--dir", envvar="PENSTOCK_LOCAL", help="Where the servers keep their data and logs.")
]
DEFAULT = Path(".penstock/local")


@app.command()
def up(
    brokers: Annotated[
        int | None, typer.Option("--brokers", help="1 or 3. Default: what the directory holds, else 1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="Port of the first broker. Default: the last one or a free one."),
    ] = None,
    directory: Directory = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Start a local Kafka. Data and ports are kept between runs."""
    from penstock.local.broker import Cluster

    cluster = Cluster(directory, brokers=brokers, port=port)
    already = cluster.is_up()
    bootstrap = cluster.up(on_progress=output.note)
    data = {
        "bootstrap": bootstrap,
        "already_up": already,
        "brokers": [server.as_dict() for server in cluster.status()],
    }

    def human() -> None:
        output.say(f"Kafka {'was already' if already else 'is'} up: {bootstrap}")
        output.say(f"export KAFKA_BOOTSTRAP={bootstrap}")

    output.emit(data, as_json, human)


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also delete the data and the logs.")] = False,
    directory: Directory = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Stop the local Kafka. Its data stays, unless --wipe is given."""
    from penstock.local.broker import Cluster

    stopped = Cluster(directory).down(wipe=wipe)

    def human() -> None:
        output.say(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
        if wipe:
            output.say(f"deleted {directory}")

    output.emit({"stopped": stopped, "wiped": wipe}, as_json, human)


@app.command()
def ps(directory: Directory = DEFAULT, as_json: AsJson = False) -> None:
    """Show the local servers."""
    from penstock.local.broker import Cluster

    servers = Cluster(directory).status()

    def human() -> None:
        if not servers:
            output.say(f"no servers in {directory}")
        for server in servers:
            pid = f"pid {server.pid}" if server.pid else ""
            output.say(f"{server.name:<12} {server.state:<14} {server.address:<22} {pid:<12} {server.log}")

    output.emit({"servers": [server.as_dict() for server in servers]}, as_json, human)
