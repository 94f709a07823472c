"""`penstock up`, `down` and `ps` on a real broker; on three of them: test_topics.py."""

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
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.processes import penstock, servers_of, watched

from penstock.errors import AlreadyRunning, BadArgument, ServerFailed
from penstock.local import layout as layouts
from penstock.local.broker import Cluster


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield from watched(tmp_path / "local")


def finished(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = child.communicate(timeout=120)
    return child.returncode, out, err


def make_topic(bootstrap: str, name: str, replication: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [future] = admin.create_topics([NewTopic(name, 1, replication)]).values()
    future.result(30)


def write(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 30_000})
    failed: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failed == []


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"read-{time.time_ns()}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def test_records_topics_and_bootstrap_survive_down_and_up(directory: Path) -> None:
    status, out, err = finished(penstock("up", "--json", directory=directory))
    assert status == 0, err
    bootstrap = json.loads(out)["bootstrap"]
    assert AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics == {}
    make_topic(bootstrap, "kept", 1)
    write(bootstrap, "kept", b"before")

    status, out, _ = finished(penstock("up", directory=directory))
    assert status == 0
    assert out.splitlines() == [
        f"Kafka was already up: {bootstrap}",
        f"export KAFKA_BOOTSTRAP={bootstrap}",
    ]
    with pytest.raises(BadArgument):
        Cluster(directory, brokers=3).up()

    status, out, _ = finished(penstock("down", directory=directory))
    assert (status, out) == (0, "stopped broker-1\n")
    assert servers_of(directory) == []

    cluster = Cluster(directory)
    try:
        assert cluster.up() == bootstrap
        write(bootstrap, "kept", b"after")
        # A killed broker comes back with what it had acknowledged.
        cluster.kill(1)
        assert [server.state for server in cluster.status()] == ["down"]
        cluster.start(1)
        with pytest.raises(AlreadyRunning):
            cluster.start(1)
        assert read(bootstrap, "kept", 2) == [b"before", b"after"]
    finally:
        cluster.down()
    assert "Kafka Server started" in (directory / "logs" / "broker-1.log").read_text()


def remember(directory: Path) -> layouts.Broker:
    """What an earlier `up` leaves: a layout with one broker, which does not run."""
    layout = layouts.decide(None, 1, None)
    (directory / "broker-1").mkdir(parents=True)
    layout.save(directory)
    return layout.brokers[0]


def test_pid_file_of_somebody_else_and_a_port_taken_meanwhile_are_no_obstacle(directory: Path) -> None:
    """And the broker listens on the loopback address only."""
    bystander = subprocess.Popen(["sleep", "600"])
    cluster, before = Cluster(directory), remember(directory)
    noted = directory / "broker-1" / "pid.json"
    try:
        noted.write_text(json.dumps({"pid": bystander.pid, "created": time.time() - 3600}))
        assert [server.state for server in cluster.status()] == ["down"]
        assert cluster.down() == []
        noted.write_text(json.dumps({"pid": bystander.pid, "created": time.time() - 3600}))
        with socket.create_server(("127.0.0.1", before.port)):
            after = cluster.up()
        assert after != before.address
        assert cluster.bootstrap == after
        [broker] = cluster.status()
        listening = [
            connection.laddr.ip.removeprefix("::ffff:")
            for connection in psutil.Process(broker.pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert set(listening) == {"127.0.0.1"}
        assert cluster.down(wipe=True) == ["broker-1"]
        assert bystander.poll() is None
        assert not directory.exists()
        assert (cluster.status(), cluster.down()) == ([], [])
    finally:
        bystander.kill()
        bystander.wait()
        cluster.down()


def test_port_that_was_asked_for_and_is_taken_is_an_error_and_starts_nothing(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err = finished(penstock("up", "--port", str(port), directory=directory))
    assert status == ServerFailed.exit_status
    assert f"error[server-failed]: port {port} is in use" in err
    assert servers_of(directory) == []


def test_broker_that_ends_while_starting_shows_the_end_of_its_log(directory: Path) -> None:
    remember(directory)
    # Formatted once, and then somebody deleted the data.
    (directory / "broker-1" / "formatted").write_text("")
    with pytest.raises(ServerFailed) as raised:
        Cluster(directory).up()
    assert "ended while it was starting" in raised.value.what
    assert "meta.properties" in (raised.value.cause or "")
    assert servers_of(directory) == []


def words_of(process: psutil.Process) -> list[str]:
    """Its command; nothing of one that has just ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["formatting", "starting"])
def test_signal_while_starting_leaves_nothing_running(directory: Path, signum: signal.Signals, moment: str) -> None:
    child = penstock("up", directory=directory)
    word = {"formatting": "kafka.tools.StorageTool", "starting": "kafka.Kafka"}[moment]
    deadline = time.monotonic() + 60
    while not any(word in words_of(process) for process in servers_of(directory)):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signum)
    status, _, _ = finished(child)
    assert status != 0
    assert servers_of(directory) == []
    assert {server.state for server in Cluster(directory).status()} == {"down"}


def test_killed_up_can_be_cleaned_up_by_down(directory: Path) -> None:
    child = penstock("up", directory=directory)
    deadline = time.monotonic() + 60
    while not (directory / "broker-1" / "pid.json").exists():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.kill()
    child.communicate()
    assert len(servers_of(directory)) == 1
    assert Cluster(directory).down() == ["broker-1"]


@pytest.mark.parametrize(("brokers", "port"), [(2, None), (None, 80), (None, 70_000)])
def test_impossible_wishes_are_bad_arguments(directory: Path, brokers: int | None, port: int | None) -> None:
    with pytest.raises(BadArgument):
        Cluster(directory, brokers=brokers, port=port).up()
    assert not (directory / "cluster.json").exists()
