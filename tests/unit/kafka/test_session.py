"""An admin client lives as long as its session: what is left of one can abort the process at its exit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.processes import in_a_new_process

from penstock.errors import KafkaUnreachable
from penstock.kafka import admin
from penstock.kafka.connection import connect_to
from penstock.kafka.session import Kept, session

NOBODY = connect_to("127.0.0.1:1")


def native_threads() -> int:
    """Those of the client library, by the names it gives them."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            found += (task / "comm").read_text().startswith("rdk:")
    return found


def session_that_ends() -> None:
    before = native_threads()
    with session(NOBODY, 1) as opened:
        assert native_threads() > before
    assert native_threads() == before
    assert opened.timeout == 1  # the session itself is still known, as in a traceback
    with pytest.raises(KafkaUnreachable):
        admin.topics(NOBODY, timeout=0.5)
    assert native_threads() == before


def kept_one_that_fails() -> None:
    before = native_threads()
    kept = Kept(NOBODY, timeout=0.5)
    with kept.session() as first:
        pass
    for _ in range(2):  # the second time with a client of its own
        with pytest.raises(KafkaUnreachable), kept.session() as opened:
            opened.client.list_topics(timeout=0.5)
        assert native_threads() == before
    assert opened is not first


def kept_one_that_ends() -> None:
    before = native_threads()
    kept = Kept(NOBODY)
    for _ in range(2):
        with kept.session():
            assert native_threads() > before
    del kept
    assert native_threads() == before


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted as Linux shows them")
@pytest.mark.parametrize("client", [session_that_ends, kept_one_that_fails, kept_one_that_ends])
def test_no_thread_of_a_client_is_left_when_it_is_over(client: Callable[[], None]) -> None:
    in_a_new_process(client)


def test_partition_without_a_leader_does_not_mean_that_there_are_no_brokers() -> None:
    with pytest.raises(KafkaUnreachable, match="a partition has no leader") as refused, session(NOBODY, 1):
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    assert refused.value.next_command == "penstock topics --bootstrap 127.0.0.1:1"
