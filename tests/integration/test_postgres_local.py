"""`penstock up --postgres`: a real PostgreSQL that keeps what it has committed, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.processes import penstock, servers_of, watched

from penstock.errors import BadArgument, ServerFailed
from penstock.local import ports
from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from penstock.local.together import up_together


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield from watched(tmp_path / "local")
    left = databases_of(tmp_path)
    for process in left:
        process.kill()
    assert left == []


def databases_of(directory: Path) -> list[psutil.Process]:
    """Every server process of PostgreSQL that works in this directory."""
    found = []
    for process in psutil.process_iter(["name", "cwd"]):
        if process.info["name"] == "postgres" and str(process.info["cwd"]).startswith(str(directory)):
            found.append(process)
    return found


def finished(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=180)
    return child.returncode, out, err


def value(url: str) -> object:
    with psycopg.connect(url) as connection:
        found = connection.execute("select v from kept").fetchone()
    return found and found[0]


def test_up_down_and_ps_treat_postgresql_as_one_of_the_servers(directory: Path) -> None:
    status, out, err = finished(penstock("up", "--postgres", "--json", directory=directory))
    assert status == 0, err
    said = json.loads(out)
    url, address = said["postgres"]["url"], said["postgres"]["address"]
    assert (said["postgres"]["state"], said["postgres"]["already_up"]) == ("up", False)
    with psycopg.connect(url) as connection:
        connection.execute("create table kept (v text); insert into kept values ('é')")

    status, out, _ = finished(penstock("ps", directory=directory))
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["broker-1", "up", said["bootstrap"]],
        ["postgres", "up", address],
    ]
    status, out, _ = finished(penstock("up", "--postgres", directory=directory))
    assert status == 0
    assert out.splitlines() == [
        f"Kafka was already up: {said['bootstrap']}",
        f"PostgreSQL was already up: {address}",
        f"export KAFKA_BOOTSTRAP={said['bootstrap']}",
        f"export POSTGRES_URL='{url}'",
    ]
    with psycopg.connect(url):  # a client that stays must not keep it from stopping
        status, out, _ = finished(penstock("down", directory=directory))
    assert (status, out) == (0, "stopped postgres, broker-1\n")
    assert (servers_of(directory), databases_of(directory)) == ([], [])

    server = LocalPostgres(directory)  # without a broker: it needs none
    try:
        assert server.up() == url
        assert value(url) == "é"
    finally:
        server.down()
    assert "database system is shut down" in (directory / "logs" / "postgres.log").read_text()
    status, out, _ = finished(penstock("down", "--wipe", directory=directory))
    assert status == 0
    assert not directory.exists()


def test_killed_server_has_lost_nothing_it_had_committed(directory: Path) -> None:
    server = LocalPostgres(directory)
    try:
        url = server.up()
        with psycopg.connect(url) as connection:
            connection.execute("create table kept as select 7 as v")
        server.kill()
        assert databases_of(directory) == []
        assert [found.state for found in server.status()] == ["down"]
        assert server.up() == url
        assert value(url) == 7
        with pytest.raises(BadArgument):
            LocalPostgres(directory, port=25_000).up()
    finally:
        server.down(wipe=True)
    assert (server.status(), server.down()) == ([], [])
    with pytest.raises(ServerFailed):
        _ = server.url


def test_only_who_can_read_the_password_file_gets_in_and_only_from_this_machine(directory: Path) -> None:
    server = LocalPostgres(directory)
    try:
        url = server.up()
        passfile = directory / "postgres" / "passfile"
        password = passfile.read_text().strip().split(":")[-1]
        assert stat.S_IMODE(passfile.stat().st_mode) == 0o600
        assert password not in url
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(url.partition("?")[0] + "?passfile=/nowhere")
        [found] = server.status()
        process = psutil.Process(found.pid)
        assert {c.laddr.ip for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
        assert process.uids().effective != 0
        assert [p for p in (directory / "postgres").iterdir() if p.name.startswith("password")] == []
    finally:
        server.down()


def test_pid_file_of_somebody_else_and_a_port_taken_meanwhile_are_no_obstacle(directory: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    server = LocalPostgres(directory)
    home = directory / "postgres"
    (home / "data").mkdir(parents=True)
    (home / "data" / "half").write_text("left by an attempt that died")
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            (home / "postgres.json").write_text(json.dumps({"port": port}))
            (home / "pid.json").write_text(json.dumps({"pid": bystander.pid, "created": time.time() - 3600}))
            assert [each.state for each in server.status()] == ["down"]
            assert f":{port}/" not in server.up()
        assert server.down() == ["postgres"]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
        server.down()


def test_postgresql_that_fails_to_start_takes_along_only_the_broker_started_for_it(directory: Path) -> None:
    cluster, server = Cluster(directory), LocalPostgres(directory)
    try:
        server.up()
        server.down()
        control = directory / "postgres" / "data" / "global" / "pg_control"
        control.write_bytes(b"not a database" * 600)
        with pytest.raises(ServerFailed) as raised:
            up_together(cluster, [server])
        assert "postgres ended while it was starting" in raised.value.what
        assert "database files are incompatible with server" in (raised.value.cause or "")
        assert servers_of(directory) == []
        cluster.up()
        with pytest.raises(ServerFailed):
            up_together(cluster, [server])
        assert cluster.is_up()
    finally:
        cluster.down()
        server.down()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_while_postgresql_starts_leaves_nothing_running(directory: Path, signum: signal.Signals) -> None:
    child = penstock("up", "--postgres", directory=directory)
    deadline = time.monotonic() + 90
    while not (directory / "postgres").exists():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signum)
    status, _, err = finished(child)
    assert status == (-signum if signum == signal.SIGTERM else 130), err
    assert (servers_of(directory), databases_of(directory)) == ([], [])


def test_impossible_ports_are_bad_arguments_and_a_taken_one_is_an_error(directory: Path) -> None:
    status, _, err = finished(penstock("up", "--postgres-port", "25000", directory=directory))
    assert (status, "error[bad-argument]" in err) == (2, True)
    with pytest.raises(BadArgument):
        LocalPostgres(directory, port=80).up()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ServerFailed) as raised:
        LocalPostgres(directory, port=taken.getsockname()[1]).up()
    assert "--postgres-port" in (raised.value.next_command or "")
    assert databases_of(directory) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as another user")
def test_without_the_program_that_changes_users_root_is_told_what_to_do(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ServerFailed) as raised:
        LocalPostgres(directory, port=ports.pick(set())).up()
    assert "setpriv" in (raised.value.cause or "")
