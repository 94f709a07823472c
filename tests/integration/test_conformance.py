"""K1: every sink is held to one suite, and a sink that is broken on purpose fails it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import psycopg
import pytest
from tests import sink_subjects as own
from tests.broken_sinks import BROKEN, CommitsFirst, Files, FileSink
from tests.short_way import BrokenDelta, PlainKafka, ShortWay

from penstock.kafka import admin
from penstock.kafka.connection import connect_to
from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from penstock.spec.model import TopicSettings
from penstock.testing import doomed
from penstock.testing.conformance import CHECKS, PARTITIONS, TOPIC, Broken, Check, Subject, Traits, check_called
from penstock.testing.crashing import Victim
from penstock.testing.trial import Trial

Make = Callable[[str], Subject]
SINKS = [
    "delta",
    "delta-upsert",
    "parquet",
    "iceberg",
    "iceberg-upsert",
    "postgres",
    "postgres-upsert",
    "kafka-exactly-once-by-partition",
    "kafka-exactly-once-by-batch",
    "kafka-at-least-once",
]
IN_ONE_PASS = ["delta-in-one-pass", "parquet-in-one-pass", "kafka-in-one-pass"]
KILLED = check_called("killed")
# The rest is the same whichever way batches take, or is what `replay` and `crash-after-write` show.
ALSO_IN_ONE_PASS = [
    "first-write", "replay", "crash-during-write", "task-run-again", "crash-after-write", "two-attempts-at-once",
    "empty-batch", "large-batch", "rejected-row",
]  # fmt: skip


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A subject of one of the kinds, over a place of its own."""

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
        place = tmp_path / uuid.uuid4().hex[:8]
        if kind.endswith("in-one-pass"):
            if kind.startswith("kafka"):
                return ShortWay(PlainKafka(*new_topic(**{"max.message.bytes": "100000"}), "exactly-once-by-partition"))
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


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not KILLED], ids=str)
@pytest.mark.parametrize("kind", SINKS)
def test_sink_keeps_the_contract(kind: str, check: Check, make: Make, spark: Any) -> None:
    check(make(kind), spark)


@pytest.mark.parametrize("check", [check_called(name) for name in ALSO_IN_ONE_PASS], ids=str)
@pytest.mark.parametrize("kind", IN_ONE_PASS)
def test_batch_in_one_pass_keeps_the_contract(kind: str, check: Check, make: Make, spark: Any) -> None:
    check(make(kind), spark)


def test_batch_in_one_pass_that_is_not_looked_for_is_caught(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Broken, match="replay: the contract demands"):
        check_called("replay")(ShortWay(BrokenDelta(tmp_path)), spark)


@pytest.mark.parametrize(
    ("moment", "kinds"),
    [("halfway", [*SINKS, *IN_ONE_PASS][1::2]), ("near the end", [*SINKS, *IN_ONE_PASS][::2])],
    ids=["halfway", "near the end"],
)
def test_process_that_writes_is_killed(moment: doomed.Moment, kinds: list[str], make: Make, spark: Any) -> None:
    """What check `killed` does to one sink, to half of them in one process: a JVM is slow to start."""
    victims = [Victim(Trial(make(kind), spark)) for kind in kinds]
    doomed.kill([victim.next() for victim in victims], spark, moment)
    for victim in victims:
        victim.survives(moment)


@pytest.mark.parametrize("check", [check for check in CHECKS if check is not KILLED], ids=str)
def test_sink_of_the_manual_keeps_the_contract(check: Check, spark: Any, tmp_path: Path) -> None:
    check(Files(tmp_path), spark)


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_sink_is_caught(kind: type[FileSink], spark: Any, tmp_path: Path) -> None:
    name, demand = BROKEN[kind]
    with pytest.raises(Broken) as broken:
        check_called(name)(Files(tmp_path, kind), spark)
    assert str(broken.value).startswith(f"{name}: the contract demands: ")
    assert demand in broken.value.demand


def test_commit_before_the_write_is_caught_when_the_process_is_killed(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Broken, match="and the batch was written again, nothing is lost"):
        KILLED(Files(tmp_path, CommitsFirst), spark)


def test_excuse_is_shown_and_a_replay_cannot_be_excused(spark: Any, tmp_path: Path) -> None:
    why = "it takes them all"
    with pytest.raises(SkipTest, match=why):
        check_called("rejected-row")(Files(tmp_path, traits=Traits(excused={"rejected-row": why})), spark)
    with pytest.raises(ValueError, match="no check can be excused that is called replay"):
        check_called("replay")(Files(tmp_path, traits=Traits(excused={"replay": "it is slow"})), spark)
    with pytest.raises(Broken, match="declares what it refuses"):
        check_called("rejected-row")(Files(tmp_path, traits=Traits()), spark)
