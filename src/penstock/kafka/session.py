"""One admin client for as long as it takes to ask: its answers, and its silence as an error that says who was asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import KafkaUnreachable
from penstock.kafka import connection
from penstock.kafka.connection import Config

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

# Errors that mean nobody answered, as opposed to an answer we did not like.
_SILENCE = {"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE", "REQUEST_TIMED_OUT"}


@dataclass
class Session:
    """One admin client, and the last thing the brokers' connections complained about."""

    config: Config
    timeout: float
    client: AdminClient = field(init=False)
    complaint: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.client = connection.admin(self.config, error_cb=self._on_error)

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that says why, and says less.
        if error.name() != "_ALL_BROKERS_DOWN":
            self.complaint = error.str()

    def answer(self, future: Future[T]) -> T:
        return future.result(timeout=self.timeout + 1)

    def unreachable(self, error: KafkaException) -> KafkaUnreachable:
        self.client.poll(0)  # serves the error callback
        servers = self.config["bootstrap.servers"]
        silent = error.args[0].name() in _SILENCE
        said = (silent and self.complaint) or error.args[0].str()
        first = servers.split(",")[0].strip()
        host, _, port = first.rpartition(":") if ":" in first else (first, "", "9092")
        return KafkaUnreachable(
            f"no Kafka broker answered within {self.timeout:g} s" if silent else "Kafka refused to answer",
            cause=f"{servers}: {said}",
            next_command="penstock up" if connection.is_loopback(servers) else f"nc -vz {host} {port}",
            facts={"bootstrap": servers},
        )


@contextmanager
def session(config: Config, timeout: float) -> Iterator[Session]:
    from confluent_kafka import KafkaException

    opened = Session(config, timeout)
    try:
        yield opened
    except (KafkaException, TimeoutError) as error:
        failure = error if isinstance(error, KafkaException) else KafkaException(_timed_out())
        raise opened.unreachable(failure) from None


def _timed_out() -> KafkaError:
    from confluent_kafka import KafkaError

    return KafkaError(KafkaError._TIMED_OUT)
