"""The one place where a spec's `kafka` block becomes the settings of a client.

Spark, the Python clients and the tools all get their connection from here, so what is added here (security,
for one) reaches all of them. References such as `${env:KAFKA_BOOTSTRAP}` are resolved at this moment and not
before.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.errors import BadArgument, ReferenceMissing
from penstock.spec.model import Pipeline
from penstock.spec.references import resolve

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

Config = dict[str, str]
"""Settings of a confluent-kafka client, in librdkafka's names."""

LOG = logging.getLogger("penstock.kafka.client")
# librdkafka prints to standard error by default, and so does Python for a logger nobody listens to.
LOG.addHandler(logging.NullHandler())

_LOOPBACK = ("localhost", "127.", "::1", "[::1]")


def bootstrap(pipeline: Pipeline) -> str:
    servers = resolve(pipeline.kafka.bootstrap, pipeline.base)
    if not servers.strip():
        raise ReferenceMissing(
            "kafka.bootstrap is empty",
            cause=f"'{pipeline.kafka.bootstrap}' stands for no text",
            next_command="set it to host:port of a broker; for a local one: penstock up",
        )
    return servers


def client_config(pipeline: Pipeline) -> Config:
    """Settings for confluent-kafka, for `admin`, `producer` and `consumer` below and for `kafka.admin`."""
    return connect_to(bootstrap(pipeline), f"penstock.{pipeline.name}")


def connect_to(servers: str, client_id: str = "penstock") -> Config:
    """The same settings for a cluster that is known by its address only (tests, local servers)."""
    return {
        "bootstrap.servers": servers,
        "client.id": client_id,
        # Without it a host that drops packets holds a command for the 30 s default before the next broker is
        # tried.
        "socket.connection.setup.timeout.ms": "5000",
        # Without it a client waits up to 10 s between attempts, and notices late that a restarted broker is
        # back.
        "reconnect.backoff.max.ms": "1000",
        "socket.keepalive.enable": "true",
    }


def spark_options(pipeline: Pipeline) -> dict[str, str]:
    """Connection options for Spark's Kafka source and sink; the reader adds topics, offsets and caps."""
    return {"kafka.bootstrap.servers": bootstrap(pipeline)}


def admin(config: Config, **more: Any) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    client: AdminClient = _open(AdminClient, config, more)
    return client


def producer(config: Config, **more: Any) -> Producer:
    from confluent_kafka import Producer

    client: Producer = _open(Producer, config, more)
    return client


def consumer(config: Config, **more: Any) -> Consumer:
    from confluent_kafka import Consumer

    client: Consumer = _open(Consumer, config, more)
    return client


def _open(kind: Any, config: Config, more: dict[str, Any]) -> Any:
    """A client whose log lines go to the logger `penstock.kafka.client` instead of the user's terminal.

    `more` uses librdkafka's names with `_` for `.`: `queue_buffering_max_messages=500000`; callbacks keep
    theirs.
    """
    from confluent_kafka import KafkaException

    settings: dict[str, Any] = dict(config)
    for name, value in more.items():
        settings[name if name.endswith("_cb") else name.replace("_", ".")] = value
    try:
        return kind(settings, logger=LOG)
    except KafkaException as refused:
        raise BadArgument("the Kafka client refuses its settings", cause=refused.args[0].str()) from None


def is_loopback(servers: str) -> bool:
    """Whether every address is on this machine, so that `penstock up` can be the answer to "unreachable"."""
    return all(server.strip().startswith(_LOOPBACK) for server in servers.split(","))
