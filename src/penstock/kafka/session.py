"""One admin client for as long as it takes to ask: its answers, and its silence as an error that says who was asked."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import KafkaUnreachable
from penstock.kafka import connection
from penstock.kafka.connection import Config

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")

ANSWER_S = 10.0  # for the brokers to answer one question
# Errors that mean nobody answered, as opposed to an answer we did not like.
_SILENCE = {"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE", "REQUEST_TIMED_OUT"}
_NO_LEADER = {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"}


@dataclass
class Session:
    """One admin client, and the last thing the brokers' connections complained about."""

    config: Config
    timeout: float
    client: AdminClient = field(init=False, repr=False)
    complaint: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.client = connection.admin(self.config, error_cb=self._on_error)

    def _on_error(self, error: KafkaError) -> None:
        # "All brokers are down" follows the error that says why, and says less.
        if error.name() != "_ALL_BROKERS_DOWN":
            self.complaint = error.str()

    def close(self) -> None:
        """End the client now. Left to itself it lives on, because its callback knows this session, and its threads call
        into an interpreter that is ending: which aborts the process after all was said."""
        if hasattr(self.client, "__exit__"):  # newer ones can be told, whoever still knows them
            self.client.__exit__(None, None, None)
        del self.client

    def answer(self, future: Future[T]) -> T:
        return future.result(timeout=self.timeout + 1)

    def unreachable(self, error: KafkaException) -> KafkaUnreachable:
        self.client.poll(0)  # serves the error callback
        servers = self.config["bootstrap.servers"]
        silent = error.args[0].name() in _SILENCE
        said = (silent and self.complaint) or error.args[0].str()
        if error.args[0].name() in _NO_LEADER:  # the brokers are there, and it is no use to start them
            return KafkaUnreachable(
                "a partition has no leader",
                cause=f"{servers}: {said}",
                next_command=f"penstock topics --bootstrap {servers}",
                facts={"bootstrap": servers},
            )
        first = servers.split(",")[0].strip()
        host, _, port = first.rpartition(":") if ":" in first else (first, "", "9092")
        return KafkaUnreachable(
            f"no Kafka broker answered within {self.timeout:g} s" if silent else "Kafka refused to answer",
            cause=f"{servers}: {said}",
            next_command="penstock up" if connection.is_loopback(servers) else f"nc -vz {host} {port}",
            facts={"bootstrap": servers},
        )


def is_silent(future: Future[Any]) -> bool:
    """Nobody has answered, in time or at all."""
    from confluent_kafka import KafkaException

    if not future.done():
        return True
    failed = future.exception()
    return isinstance(failed, KafkaException) and failed.args[0].name() in _SILENCE


@contextmanager
def session(config: Config, timeout: float = ANSWER_S) -> Iterator[Session]:
    opened = Session(config, timeout)
    try:
        with _speaking(opened):
            yield opened
    finally:
        opened.close()


@dataclass
class Kept:
    """One client for whoever asks again and again, such as once per batch: to open one takes as long as a small batch.
    After a failure the next question opens another one; the last ends with its owner or with Python. For one thread."""

    config: Config
    timeout: float = ANSWER_S
    _opened: Session | None = field(init=False, default=None, repr=False)
    _end: Callable[[], object] = field(init=False, repr=False)

    @contextmanager
    def session(self) -> Iterator[Session]:
        opened = self._opened or self._open()
        opened.complaint = None
        try:
            with _speaking(opened):
                yield opened
        except BaseException:
            self._opened = None
            self._end()
            raise

    def _open(self) -> Session:
        self._opened = Session(self.config, self.timeout)
        self._end = weakref.finalize(self, self._opened.close)
        return self._opened


@contextmanager
def _speaking(opened: Session) -> Iterator[None]:
    """What Kafka raises inside is said in our words."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TimeoutError) as error:
        failure = error if isinstance(error, KafkaException) else KafkaException(_timed_out())
        raise opened.unreachable(failure) from None


def _timed_out() -> KafkaError:
    from confluent_kafka import KafkaError

    return KafkaError(KafkaError._TIMED_OUT)
