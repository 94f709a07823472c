"""Penstock's own sinks by kind, each over a place of its own, and the checks of the conformance suite it is held to.

What is left out of a kind's checks is what another one shows of the same code; the sink of the manual goes through all,
and in `make chaos` every kind does.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from penstock.kafka import admin
from penstock.kafka.connection import connect_to
from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from penstock.spec.model import TopicSettings
from penstock.testing.conformance import CHECKS, PARTITIONS, TOPIC, Subject, check_called
from tests import sink_subjects as own
from tests.crash.driver import ROUNDS
from tests.short_way import PlainKafka, ShortWay

Make = Callable[[str], Subject]
KILLED = check_called("killed")  # several sinks in one process: test_conformance_killed.py

# `replay` begins with the writes of `first-write`, and ends with its demands.
_EVERY = frozenset(check.name for check in CHECKS if check is not KILLED) - {"first-write"}
# Whether rows are appended or merged, one sink opens the table and knows its query. A row without a key is what
# `rejected-row` has such a sink refuse.
_BY_KEY = _EVERY - {"another-query", "lost-batches", "null-keys"}
# Columns become records before it matters how those are sent.
_SENT = _EVERY - {"every-type", "null-keys", "deletes"}
# Spark's own sink: it is told neither batch nor replay, so that every write is like the first one.
_STOCK = frozenset({"guarantee", "first-write", "crash-during-write", "task-run-again", "empty-batch", "rejected-row"})
# What a batch in one pass does in other ways: who writes, and what is published.
_IN_ONE_PASS = frozenset({"replay", "crash-during-write", "task-run-again", "two-attempts-at-once", "empty-batch"})

TABLES: dict[str, frozenset[str]] = {
    "delta": _EVERY,
    "delta-upsert": _BY_KEY,
    "parquet": _EVERY,
    "iceberg": _EVERY,
    "iceberg-upsert": _BY_KEY,
    "postgres": _EVERY,
    "postgres-upsert": _BY_KEY | {"null-keys"},  # it refuses more than that
}
TABLES_IN_ONE_PASS = {
    "delta-in-one-pass": _IN_ONE_PASS | {"large-batch"},
    "parquet-in-one-pass": _IN_ONE_PASS | {"large-batch"},
}
TOPICS = {
    "kafka-exactly-once-by-partition": _EVERY,
    "kafka-exactly-once-by-batch": _SENT,
    "kafka-at-least-once": _STOCK,
}
TOPICS_IN_ONE_PASS = {
    # A reader sees its records one by one: a large batch shows nothing that a small one does not.
    "kafka-exactly-once-by-partition-in-one-pass": _IN_ONE_PASS | {"rejected-row"},
    "kafka-exactly-once-by-batch-in-one-pass": _IN_ONE_PASS | {"rejected-row", "large-batch"},
    "kafka-at-least-once-in-one-pass": _STOCK,
}


def held_to(kinds: dict[str, frozenset[str]]) -> list[object]:
    """Each kind with each of its checks, for `parametrize`."""
    return [
        pytest.param(kind, check, id=f"{kind}-{check}")
        for kind, names in kinds.items()
        for check in CHECKS
        if check.name in (names if ROUNDS == 1 else _EVERY | names)
    ]


def maker(request: pytest.FixtureRequest, directory: Path) -> Make:
    """Makes a subject of a kind, over a place of its own."""

    def new_topic(**config: str) -> tuple[str, str]:
        kafka: Cluster = request.getfixturevalue("kafka")
        topic = f"out-{uuid.uuid4().hex[:8]}"
        wanted = {topic: TopicSettings(partitions=1, config=config), TOPIC: TopicSettings(partitions=PARTITIONS)}
        dead = {f"{TOPIC}.DLT": TopicSettings(partitions=1)}  # sent along in one pass
        admin.create_missing(connect_to(kafka.bootstrap), wanted | dead)
        return kafka.bootstrap, topic

    def new_schema() -> tuple[str, str]:
        postgres: LocalPostgres = request.getfixturevalue("postgres")
        schema = f"s{uuid.uuid4().hex[:8]}"
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"create schema {schema}")
        return postgres.url, schema

    def made(kind: str) -> Subject:
        place = directory / uuid.uuid4().hex[:8]
        if kind.endswith("in-one-pass"):
            if kind.startswith("kafka"):
                guarantee = kind.removeprefix("kafka-").removesuffix("-in-one-pass")
                return ShortWay(PlainKafka(*new_topic(**{"max.message.bytes": "100000"}), guarantee))
            return ShortWay(made(kind.removesuffix("-in-one-pass")))
        name, _, how = kind.partition("-")
        match name:
            case "delta":
                return own.Delta(place, how == "upsert")
            case "parquet":
                return own.Parquet(place)
            case "iceberg":
                return own.Iceberg(place, how == "upsert")
            case "postgres":
                return own.Postgres(*new_schema(), how == "upsert")
            case "kafka":
                return own.Kafka(*new_topic(), how)
        raise AssertionError(kind)

    return made
