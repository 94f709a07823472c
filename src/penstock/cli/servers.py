"""`penstock up`, `down`, `ps`: real local servers as child processes, for trying things out and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.errors import BadArgument

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
    registry: Annotated[bool, typer.Option("--registry", help="Also start a schema registry.")] = False,
    registry_port: Annotated[
        int | None,
        typer.Option("--registry-port", help="Port of the registry. Default: the last one or a free one."),
    ] = None,
    postgres: Annotated[bool, typer.Option("--postgres", help="Also start PostgreSQL.")] = False,
    postgres_port: Annotated[
        int | None,
        typer.Option("--postgres-port", help="Port of PostgreSQL. Default: the last one or a free one."),
    ] = None,
    directory: Directory = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Start a local Kafka, and a schema registry and PostgreSQL if asked for. Data and ports are kept between runs."""
    from penstock.local.broker import Cluster
    from penstock.local.postgres import LocalPostgres
    from penstock.local.registry import LocalRegistry
    from penstock.local.together import up_together

    if registry_port is not None and not registry:
        raise BadArgument("--registry-port needs --registry")
    if postgres_port is not None and not postgres:
        raise BadArgument("--postgres-port needs --postgres")
    cluster, local = Cluster(directory, brokers=brokers, port=port), LocalRegistry(directory, port=registry_port)
    database = LocalPostgres(directory, port=postgres_port)
    already, registry_already, database_already = cluster.is_up(), local.is_up(), database.is_up()
    others = [*([local] if registry else []), *([database] if postgres else [])]
    bootstrap, urls = up_together(cluster, others, on_progress=output.note)
    url = urls[0] if registry else None
    database_url = urls[-1] if postgres else None
    data: dict[str, object] = {
        "bootstrap": bootstrap,
        "already_up": already,
        "brokers": [server.as_dict() for server in cluster.status()],
    }
    if url is not None:
        [server] = local.status()
        data["registry"] = {"url": url, "already_up": registry_already, **server.as_dict()}
    if database_url is not None:
        [server] = database.status()
        data["postgres"] = {"url": database_url, "already_up": database_already, **server.as_dict()}

    def human() -> None:
        output.say(f"Kafka {'was already' if already else 'is'} up: {bootstrap}")
        if url is not None:
            output.say(f"the schema registry {'was already' if registry_already else 'is'} up: {url}")
        if database_url is not None:
            [server] = database.status()
            output.say(f"PostgreSQL {'was already' if database_already else 'is'} up: {server.address}")
        output.say(f"export KAFKA_BOOTSTRAP={bootstrap}")
        if url is not None:
            output.say(f"export SCHEMA_REGISTRY_URL={url}")
        if database_url is not None:  # it names a file with the password, not the password
            output.say(f"export POSTGRES_URL='{database_url}'")

    output.emit(data, as_json, human)


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also delete the data and the logs.")] = False,
    directory: Directory = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Stop the local servers. Their data stays, unless --wipe is given."""
    from penstock.local.broker import Cluster
    from penstock.local.postgres import LocalPostgres
    from penstock.local.registry import LocalRegistry

    servers = (LocalRegistry(directory), LocalPostgres(directory), Cluster(directory))
    stopped = [name for server in servers for name in server.down(wipe=wipe)]

    def human() -> None:
        output.say(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
        if wipe:
            output.say(f"deleted {directory}")

    output.emit({"stopped": stopped, "wiped": wipe}, as_json, human)


@app.command()
def ps(directory: Directory = DEFAULT, as_json: AsJson = False) -> None:
    """Show the local servers."""
    from penstock.local.broker import Cluster
    from penstock.local.postgres import LocalPostgres
    from penstock.local.registry import LocalRegistry

    servers = Cluster(directory).status() + LocalRegistry(directory).status() + LocalPostgres(directory).status()

    def human() -> None:
        if not servers:
            output.say(f"no servers in {directory}")
        for server in servers:
            pid = f"pid {server.pid}" if server.pid else ""
            output.say(f"{server.name:<12} {server.state:<14} {server.address:<22} {pid:<12} {server.log}")

    output.emit({"servers": [server.as_dict() for server in servers]}, as_json, human)
