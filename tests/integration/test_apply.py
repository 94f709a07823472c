"""`penstock apply`: topics that are missing are created; how those that are there change is in test_topics.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Protocol

import pytest

from penstock.errors import SpecInvalid, TopicMissing
from penstock.kafka import admin, connection
from penstock.kafka.connection import Config
from penstock.spec.model import TopicSettings

PENSTOCK = str(Path(sys.executable).with_name("penstock"))


class Broker(Protocol):
    bootstrap: str


@pytest.fixture
def config(kafka: Broker) -> Config:
    return connection.connect_to(kafka.bootstrap)


@pytest.fixture
def name() -> str:
    return f"apply-{uuid.uuid4().hex[:12]}"


def spec_file(where: Path, kafka: Broker, topic: str, **more: Any) -> Path:
    value = {"format": "json", "schema": {"fields": {"a": "int"}}}
    spec = {
        "name": "topics",
        "kafka": {"bootstrap": kafka.bootstrap, "topics": {topic: {"partitions": 4}}},
        "source": {"topics": {topic: {"value": value, "view": "a"}}},
        "sinks": {"lake": {"from": "a", "delta": {"path": "lake"}}},
        **more,
    }
    path = where / "topics.yaml"
    path.write_text(json.dumps(spec))
    return path


def apply(spec: Path) -> tuple[int, dict[str, Any]]:
    command = [PENSTOCK, "apply", str(spec), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_source_and_dead_letter_topics_are_created_with_their_settings(
    kafka: Broker, config: Config, tmp_path: Path, name: str
) -> None:
    status, report = apply(spec_file(tmp_path, kafka, name))
    there = admin.topics(config)
    assert status == 0
    assert {t["topic"]: t["created"] for t in report["topics"]} == {name: True, f"{name}.DLT": True}
    assert (there[name].partitions, there[f"{name}.DLT"].partitions) == (4, 1)


def test_topic_that_only_its_settings_name_is_created_too(
    kafka: Broker, config: Config, tmp_path: Path, name: str
) -> None:
    """As those that a column names, record by record."""
    spec = spec_file(tmp_path, kafka, name)
    said = json.loads(spec.read_text())
    said["kafka"]["topics"][f"{name}-eur"] = {"partitions": 2}
    spec.write_text(json.dumps(said))
    status, _ = apply(spec)
    assert (status, admin.topics(config)[f"{name}-eur"].partitions) == (0, 2)


def test_applied_again_nothing_is_created_or_changed(kafka: Broker, config: Config, tmp_path: Path, name: str) -> None:
    spec = spec_file(tmp_path, kafka, name)
    apply(spec)
    before = admin.topics(config)[name]
    _, report = apply(spec)
    assert not any(t["created"] for t in report["topics"])
    assert admin.topics(config)[name] == before


def test_a_topic_with_fewer_partitions_than_the_spec_says_gets_more(
    kafka: Broker, config: Config, tmp_path: Path, name: str
) -> None:
    admin.create_missing(config, {name: TopicSettings(partitions=2)})
    _, report = apply(spec_file(tmp_path, kafka, name))
    topic = report["topics"][0]
    assert (topic["created"], topic["partitions"], topic["wanted_partitions"]) == (False, 4, 4)
    assert admin.topics(config)[name].partitions == 4


def test_dead_letters_in_a_table_need_no_topic(kafka: Broker, tmp_path: Path, name: str) -> None:
    spec = spec_file(tmp_path, kafka, name, dead_letters={"delta": {"path": "dead"}})
    _, report = apply(spec)
    assert [t["topic"] for t in report["topics"]] == [name]


def test_settings_the_broker_refuses_are_a_mistake_in_the_spec(config: Config, name: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        admin.create_missing(
            config, {name: TopicSettings(replication=30), name + "2": TopicSettings(config={"no.such": 1})}
        )
    assert refused.value.facts["refused"] == {
        name: "INVALID_REPLICATION_FACTOR",
        name + "2": "INVALID_CONFIG",
    }


def test_topic_config_reaches_the_broker(config: Config, name: str) -> None:
    from confluent_kafka.admin import ConfigResource, ResourceType

    settings = TopicSettings(config={"cleanup.policy": "compact", "retention.ms": 1234567})
    admin.create_missing(config, {name: settings})
    asked = ConfigResource(ResourceType.TOPIC, name)
    client = connection.admin(config)
    found = client.describe_configs([asked])[asked].result(timeout=10)
    assert (found["cleanup.policy"].value, found["retention.ms"].value) == ("compact", "1234567")


def test_a_topic_made_again_has_another_id(config: Config, name: str) -> None:
    admin.create_missing(config, {name: TopicSettings()})
    before = admin.topics(config)[name]
    client = connection.admin(config)
    client.delete_topics([name])[name].result(timeout=10)
    until = time.monotonic() + 30
    while name in admin.topics(config) and time.monotonic() < until:
        time.sleep(0.05)
    admin.create_missing(config, {name: TopicSettings()})
    assert admin.topics(config)[name].topic_id != before.topic_id


def test_watermarks_are_the_first_and_the_next_offset(config: Config, name: str) -> None:
    admin.create_missing(config, {name: TopicSettings(partitions=2)})
    producer = connection.producer(config)
    for _ in range(5):
        producer.produce(name, b"x", partition=1)
    producer.flush(10)
    assert admin.watermarks(config, {name: 2}) == {(name, 0): (0, 0), (name, 1): (0, 5)}


def test_watermarks_of_a_topic_that_is_gone_name_it(config: Config, name: str) -> None:
    with pytest.raises(TopicMissing) as gone:
        admin.watermarks(config, {name: 1})
    assert gone.value.facts == {"missing": [name]}
