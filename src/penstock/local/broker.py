"""A Kafka cluster on this machine: one or three real brokers, each also a controller, as child processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from penstock.errors import AlreadyRunning, BadArgument, ServerFailed
from penstock.local import layout as layouts
from penstock.local import ports, storage
from penstock.local.layout import Broker, Layout
from penstock.local.process import Server, Signals, deferred_signals, stop_all
from penstock.local.state import ServerStatus, locked, status_of, wipe_parts
from penstock.spark import jars, java

_START_SECONDS = 90.0  # three brokers that start at once on two busy cores need half of it
# Three that stop together need seven seconds; one that finds no controller would wait far longer.
# It is killed instead: what was acknowledged is in the page cache, and the next start recovers the log.
_STOP_SECONDS = 15.0
_HEAP = {1: "512m", 3: "320m"}


class Cluster:
    """The cluster of one state directory. Any process may make one: what runs is read from disk every time.

    After `up` returns, every broker answers. After `down`, after an `up` that raised, and after one that a
    signal ended, no broker started by it is left. After a SIGKILL of `up`, `down` stops what it started.
    """

    def __init__(self, directory: Path | str, brokers: int | None = None, port: int | None = None) -> None:
        self.directory = Path(directory).absolute()
        self._wanted = brokers
        self._port = port

    def up(self, on_progress: Callable[[str], None] | None = None) -> str:
        """Start what does not run, wait until all of it answers, return the bootstrap."""
        tell = on_progress or (lambda _text: None)
        jar_paths = jars.ensure(["broker"], on_progress)
        with locked(self.directory), deferred_signals() as signals:
            remembered = layouts.load(self.directory)
            running = self._running(remembered)
            if running:
                layout = self._agrees(remembered)
            else:
                layout = layouts.decide(remembered, self._wanted, self._port)
                layout.save(self.directory)
            missing = [broker for broker in layout.brokers if broker.name not in running]
            if missing:
                tell(f"starting {len(missing)} broker{'s' if len(missing) > 1 else ''}")
                self._start(layout, missing, jar_paths, signals)
        return layout.bootstrap

    def down(self, wipe: bool = False) -> list[str]:
        """Stop every broker; returns the names of those that ran. With `wipe` data and logs go as well."""
        if not self.directory.is_dir():
            return []
        with locked(self.directory), deferred_signals():
            layout = layouts.load(self.directory)
            if layout is None:
                return []
            stopped = stop_all(self._servers(layout), _STOP_SECONDS)
            if wipe:
                wipe_parts(self.directory, [*(b.name for b in layout.brokers), "cluster.json", "log4j2.properties"])
        return stopped

    def status(self) -> list[ServerStatus]:
        layout = layouts.load(self.directory)
        return [self._status(broker) for broker in layout.brokers] if layout else []

    def is_up(self) -> bool:
        found = self.status()
        return bool(found) and all(server.state == "up" for server in found)

    @property
    def bootstrap(self) -> str:
        return self._layout().bootstrap

    def kill(self, broker_id: int) -> None:
        """SIGKILL one broker and wait until it is gone. For crash tests."""
        self._server(broker_id).kill()

    def start(self, broker_id: int) -> None:
        """Start one broker that is down, on the port it had, and wait until it answers. For crash tests."""
        layout = self._layout()
        broker = self._broker(broker_id)
        if self._server(broker_id).process():
            raise AlreadyRunning(f"{broker.name} already runs", next_command="penstock ps")
        jar_paths = jars.ensure(["broker"])
        with locked(self.directory), deferred_signals() as signals:
            self._start(layout, [broker], jar_paths, signals)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP one broker: it holds its connections and answers nothing."""
        self._server(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        self._server(broker_id).resume()

    def _start(self, layout: Layout, starting: Sequence[Broker], jar_paths: list[Path], signals: Signals) -> None:
        """1. every port is free  2. storage formatted  3. launched  4. each answers; or all is undone."""
        for broker in starting:
            for port in (broker.port, broker.controller_port):
                if not ports.is_free(port):
                    raise layouts.port_in_use(port)
        servers = [self._server_of(layout, broker, jar_paths) for broker in starting]
        try:
            storage.format_new(self.directory, layout, starting, jar_paths, signals)
            for server in servers:
                signals.check()
                server.launch()
            for server, broker in zip(servers, starting, strict=True):
                # A broker alone may only count on itself: two of three can be down when one is started again.
                expected = len(layout.brokers) if len(starting) == len(layout.brokers) else 1
                server.wait_ready(partial(_answers, broker, expected), signals, _START_SECONDS)
            signals.check()
        except BaseException:
            stop_all(servers, 2.0)
            raise

    def _server_of(self, layout: Layout, broker: Broker, jar_paths: list[Path]) -> Server:
        settings = layouts.write_settings(self.directory, layout, broker)
        log = self.directory / "logs" / f"{broker.name}.log"
        heap = _HEAP[len(layout.brokers)]
        command: list[str | Path] = [
            java.find().executable,
            f"-Xmx{heap}",
            f"-Xms{heap}",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",  # half a broker is worse than none
            "-XX:-UsePerfData",
            f"-Dpenstock.log={log}",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, jar_paths)),
            "kafka.Kafka",
            settings,
        ]
        return self._identity(broker, command)

    def _identity(self, broker: Broker, command: Sequence[str | Path] = ()) -> Server:
        logs = self.directory / "logs"
        return Server(
            broker.name,
            self.directory / broker.name,
            command,
            output=logs / f"{broker.name}.out",
            logs=[logs / f"{broker.name}.log"],
        )

    def _servers(self, layout: Layout) -> list[Server]:
        return [self._identity(broker) for broker in layout.brokers]

    def _server(self, broker_id: int) -> Server:
        return self._identity(self._broker(broker_id))

    def _broker(self, broker_id: int) -> Broker:
        for broker in self._layout().brokers:
            if broker.id == broker_id:
                return broker
        raise BadArgument(f"there is no broker {broker_id} in {self.directory}", next_command="penstock ps")

    def _layout(self) -> Layout:
        layout = layouts.load(self.directory)
        if layout is None:
            raise ServerFailed(f"no cluster was ever started in {self.directory}", next_command="penstock up")
        return layout

    def _running(self, layout: Layout | None) -> set[str]:
        return {server.name for server in self._servers(layout) if server.process()} if layout else set()

    def _agrees(self, remembered: Layout | None) -> Layout:
        """What runs cannot be moved: asking for another shape or port is a mistake."""
        layout = remembered or self._layout()
        if self._wanted not in (None, len(layout.brokers)) or self._port not in (
            None,
            layout.brokers[0].port,
        ):
            raise BadArgument(
                f"a cluster of {len(layout.brokers)} already runs at {layout.bootstrap}",
                cause="the number of brokers and the port cannot change while it runs",
                next_command="penstock down",
            )
        return layout

    def _status(self, broker: Broker) -> ServerStatus:
        return status_of(self._identity(broker), broker.address, broker.port)


def _answers(broker: Broker, expected: int) -> bool:
    """The broker serves metadata that names itself and as many brokers as the cluster must have."""
    if not ports.accepts(broker.port):
        return False
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # log_level 0: a connection refused while a broker starts is what we are here to wait for.
    client = AdminClient({"bootstrap.servers": broker.address, "log_level": 0, "socket.timeout.ms": 2000})
    try:
        known = client.list_topics(timeout=2).brokers
    except KafkaException:
        return False
    return broker.id in known and len(known) >= expected
