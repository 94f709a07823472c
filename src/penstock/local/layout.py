"""What a local Kafka cluster is on disk, and the settings each broker is started with.

<dir>/cluster.json                 cluster id, brokers, ports; kept by `down`: the bootstrap stays the same
<dir>/lock                         held by the one command that starts or stops servers here
<dir>/broker-N/server.properties   written anew before every start
<dir>/broker-N/data                Kafka's own; `formatted` beside it says that formatting was completed
<dir>/broker-N/pid.json
<dir>/logs/broker-N.log            what the broker logs; broker-N.out is what its JVM prints
"""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from penstock.errors import BadArgument, ServerFailed
from penstock.local import ports

_LOG4J2 = """\
status = warn
# The broker still logs while it shuts down.
shutdownHook = disable
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${sys:penstock.log}
appender.file.filePattern = ${sys:penstock.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
# One line per metadata change and per partition: useful inside Kafka's own project, a flood here.
logger.state.name = state.change.logger
logger.state.level = warn
"""


@dataclass(frozen=True)
class Broker:
    id: int
    port: int
    controller_port: int

    @property
    def name(self) -> str:
        return f"broker-{self.id}"

    @property
    def address(self) -> str:
        return f"{ports.HOST}:{self.port}"


@dataclass(frozen=True)
class Layout:
    """The remembered shape of a cluster."""

    cluster_id: str
    brokers: tuple[Broker, ...]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def save(self, directory: Path) -> None:
        """Whole or not at all: a crash leaves the old file or the new one."""
        new = directory / "cluster.json.new"
        content = {"cluster_id": self.cluster_id, "brokers": [asdict(broker) for broker in self.brokers]}
        new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        new.replace(directory / "cluster.json")


def load(directory: Path) -> Layout | None:
    path = directory / "cluster.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Layout(content["cluster_id"], tuple(Broker(**broker) for broker in content["brokers"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServerFailed(
            f"{path} cannot be read",
            cause=str(error),
            next_command=f"remove {directory}, which also removes its data",
        ) from error


def decide(remembered: Layout | None, brokers: int | None, port: int | None) -> Layout:
    """The layout to start with, when none of its brokers runs.

    Remembered ports are kept where they are still free. A port that was asked for is taken or it is an error.
    """
    if brokers not in (None, 1, 3):
        raise BadArgument(f"a local cluster has 1 or 3 brokers, not {brokers}")
    if port is not None and not 1024 <= port <= 65_000:
        raise BadArgument(f"port {port} is not between 1024 and 65000")
    if remembered and brokers and brokers != len(remembered.brokers):
        raise BadArgument(
            f"this directory holds a cluster of {len(remembered.brokers)}, not of {brokers} brokers",
            next_command="penstock down --wipe",
        )
    base = remembered or Layout(_cluster_id(), tuple(Broker(n, 0, 0) for n in range(1, (brokers or 1) + 1)))
    taken: set[int] = set()

    def settle(wanted: int) -> int:
        chosen = wanted if wanted and wanted not in taken and ports.is_free(wanted) else ports.pick(taken)
        taken.add(chosen)
        return chosen

    if port is not None:
        asked = [port + index for index in range(len(base.brokers))]
        if busy := [each for each in asked if not ports.is_free(each)]:
            raise port_in_use(busy[0])
        taken.update(asked)
        placed = [replace(broker, port=each) for broker, each in zip(base.brokers, asked, strict=True)]
    else:
        placed = [replace(broker, port=settle(broker.port)) for broker in base.brokers]
    return replace(base, brokers=tuple(replace(b, controller_port=settle(b.controller_port)) for b in placed))


def port_in_use(port: int) -> ServerFailed:
    return ServerFailed(
        f"port {port} is in use on {ports.HOST}",
        cause="another process listens there",
        next_command="penstock up --port <another port>",
        facts={"port": port},
    )


def write_settings(directory: Path, layout: Layout, broker: Broker) -> Path:
    """Write what the broker reads at its start. Returns the path of its server.properties."""
    (directory / "logs").mkdir(exist_ok=True)
    home = directory / broker.name
    home.mkdir(exist_ok=True)
    (directory / "log4j2.properties").write_text(_LOG4J2, encoding="utf-8")
    settings = _settings(home, layout, broker)
    path = home / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return path


def _settings(home: Path, layout: Layout, broker: Broker) -> dict[str, object]:
    copies = min(3, len(layout.brokers))
    in_sync = max(1, copies - 1)
    voters = ",".join(f"{each.id}@{ports.HOST}:{each.controller_port}" for each in layout.brokers)
    return {
        "process.roles": "broker,controller",
        "node.id": broker.id,
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker.address},CONTROLLER://{ports.HOST}:{broker.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{broker.address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # A backslash would start an escape in a properties file.
        "log.dirs": str(home / "data").replace("\\", "\\\\"),
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 5,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 5,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 5,
        # Waits three seconds for more members otherwise, at every first join of a group.
        "group.initial.rebalance.delay.ms": 0,
        "message.max.bytes": 4 * 1024 * 1024,
        "replica.fetch.max.bytes": 4 * 1024 * 1024,
    }


def _cluster_id() -> str:
    """As Kafka makes them: 16 random bytes, base64 without padding, and no leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
