"""`penstock up --registry`: a real Apicurio that keeps what it has answered to, and leaves nothing behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.processes import penstock, servers_of, watched

from penstock.errors import BadArgument, ServerFailed
from penstock.local import ports
from penstock.local.broker import Cluster
from penstock.local.registry import LocalRegistry
from penstock.local.together import up_together
from penstock.registry.client.registry import RegistrySettings, SchemaRegistry


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield from watched(tmp_path / "local")


def finished(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=180)
    return child.returncode, out, err


def ask(url: str) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings(url))


def schema(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": []})


def test_up_down_and_ps_treat_the_registry_as_one_of_the_servers(directory: Path) -> None:
    status, out, err = finished(penstock("up", "--registry", "--json", directory=directory))
    assert status == 0, err
    said = json.loads(out)
    url = said["registry"]["url"]
    assert (said["registry"]["state"], said["registry"]["already_up"]) == ("up", False)
    assert said["bootstrap"]
    with ask(url) as client:
        assert client.mode() == "BACKWARD"
        kept = client.register("kept", "AVRO", schema("Kept"))
        client.set_mode("FULL")

    status, out, _ = finished(penstock("ps", directory=directory))
    assert status == 0
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["broker-1", "up", said["bootstrap"]],
        ["registry", "up", url],
    ]
    status, out, _ = finished(penstock("up", "--registry", directory=directory))
    assert status == 0
    assert out.splitlines() == [
        f"Kafka was already up: {said['bootstrap']}",
        f"the schema registry was already up: {url}",
        f"export KAFKA_BOOTSTRAP={said['bootstrap']}",
        f"export SCHEMA_REGISTRY_URL={url}",
    ]
    with pytest.raises(BadArgument):
        LocalRegistry(directory, port=25_000).up()

    status, out, _ = finished(penstock("down", directory=directory))
    assert (status, out) == (0, "stopped registry, broker-1\n")
    assert servers_of(directory) == []

    server = LocalRegistry(directory)  # without a broker: it needs none
    try:
        assert server.up() == url
        with ask(url) as client:
            assert client.latest("kept").schema.id == kept
            assert client.mode() == "FULL", "the mode that was set is gone, or was set back"
    finally:
        server.down()
    assert "SqlRegistryStorage" in (directory / "logs" / "registry.log").read_text()
    status, out, _ = finished(penstock("down", "--wipe", directory=directory))
    assert status == 0
    assert not directory.exists()


def test_registry_killed_right_after_it_answered_has_lost_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun with the pid file of somebody else, a port that was taken meanwhile, and an environment that would have it
    listen to everybody."""
    monkeypatch.setenv("QUARKUS_HTTP_HOST", "0.0.0.0")
    bystander = subprocess.Popen(["sleep", "600"])
    server, home = LocalRegistry(directory), directory / "registry"
    home.mkdir(parents=True)
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            (home / "registry.json").write_text(json.dumps({"port": port}))
            (home / "pid.json").write_text(json.dumps({"pid": bystander.pid, "created": time.time() - 3600}))
            assert [each.state for each in server.status()] == ["down"]
            url = server.up()
        assert f":{port}/" not in url
        assert listening(server) == {"127.0.0.1"}
        with ask(url) as client:
            registered = {f"Kept{n}": client.register(f"Kept{n}", "AVRO", schema(f"Kept{n}")) for n in range(10)}
            client.set_mode("NONE", "Kept9")
        server.kill()
        assert ports.is_free(int(url.split(":")[2].split("/")[0])), "killed, and not gone yet"
        assert [found.state for found in server.status()] == ["down"]
        with ask(server.up()) as client:
            assert {name: client.latest(name).schema.id for name in registered} == registered
            assert client.mode("Kept9") == "NONE"
        server.pause()
        assert [each.state for each in server.status()] == ["paused"]
        assert server.down(wipe=True) == ["registry"]
        assert not directory.exists()
        assert (server.status(), server.down()) == ([], [])
        with pytest.raises(ServerFailed):
            _ = server.url
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        server.down()


def listening(server: LocalRegistry) -> set[str]:
    """Addresses on which its process does."""
    [found] = server.status()
    return {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(found.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_registry_that_fails_to_start_takes_along_only_the_broker_started_for_it(directory: Path) -> None:
    data = directory / "registry" / "data" / "registry.mv.db"
    data.parent.mkdir(parents=True)
    data.write_bytes(b"not a database" * 1000)
    cluster, server = Cluster(directory), LocalRegistry(directory)
    try:
        with pytest.raises(ServerFailed) as raised:
            up_together(cluster, [server])
        assert "registry ended while it was starting" in raised.value.what
        assert "registry.mv.db" in (raised.value.cause or "")
        assert servers_of(directory) == []

        cluster.up()
        with pytest.raises(ServerFailed):
            up_together(cluster, [server])
        assert cluster.is_up()
        assert len(servers_of(directory)) == 1
    finally:
        cluster.down()


def test_port_that_was_asked_for_and_is_taken_is_an_error_and_starts_nothing(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        child = penstock("up", "--registry", "--registry-port", str(port), directory=directory)
        status, _, err = finished(child)
    assert status == ServerFailed.exit_status
    assert f"error[server-failed]: port {port} is in use" in err
    assert servers_of(directory) == []


def test_signal_while_the_registry_starts_leaves_nothing_running(directory: Path) -> None:
    """SIGTERM; both signals, at more moments: test_local_servers.py."""
    child = penstock("up", "--registry", directory=directory)
    wait_for_registry(child, directory)
    child.send_signal(signal.SIGTERM)
    status, _, err = finished(child)
    assert status == -signal.SIGTERM, err
    assert servers_of(directory) == []


def test_killed_up_can_be_cleaned_up_by_down_or_finished_by_up(directory: Path) -> None:
    child = penstock("up", "--registry", directory=directory)
    wait_for_registry(child, directory)
    child.kill()
    child.communicate()
    server = LocalRegistry(directory)
    with ask(server.up()) as client:  # waits for the one that is starting
        assert (client.subjects(), client.mode()) == ([], "BACKWARD")
    assert len(servers_of(directory)) == 2
    status, out, _ = finished(penstock("down", directory=directory))
    assert (status, out) == (0, "stopped registry, broker-1\n")


def wait_for_registry(child: subprocess.Popen[str], directory: Path) -> None:
    deadline = time.monotonic() + 90
    while not (directory / "registry" / "pid.json").exists():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_registry_port_without_a_registry_and_impossible_ports_are_bad_arguments(directory: Path) -> None:
    status, _, err = finished(penstock("up", "--registry-port", "25000", directory=directory))
    assert (status, "error[bad-argument]" in err) == (2, True)
    with pytest.raises(BadArgument):
        LocalRegistry(directory, port=80).up()
    assert servers_of(directory) == []
