"""`penstock produce` against a real broker; what a plain consumer reads is the judge of the ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.errors import KafkaUnreachable, TopicMissing
from penstock.kafka import admin, connection
from penstock.local import load
from penstock.local.payments import BLOCK, Payments, Recipe
from penstock.spec.model import TopicSettings
from penstock.testing.acknowledged import Acknowledged, Place

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
SCHEMA = {"fields": {"payment_id": "string", "amount": "decimal(12,2)"}}


class Broker(Protocol):
    bootstrap: str


def new_topic(kafka: Broker, partitions: int = 3) -> str:
    name = f"produce-{uuid.uuid4().hex[:12]}"
    admin.create_missing(connection.connect_to(kafka.bootstrap), {name: TopicSettings(partitions=partitions)})
    return name


def spec_file(where: Path, bootstrap: str, *topics: str) -> Path:
    spec = {
        "name": "load",
        "kafka": {"bootstrap": bootstrap},
        "source": {"topics": {t: {"value": {"format": "json", "schema": SCHEMA}} for t in topics}},
        "sinks": {"lake": {"from": topics[0].replace("-", "_"), "delta": {"path": "lake"}}},
    }
    path = where / "load.yaml"
    path.write_text(json.dumps(spec))
    return path


def penstock(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [PENSTOCK, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def consumed(kafka: Broker, topic: str, partitions: int) -> dict[Place, tuple[bytes | None, bytes | None]]:
    """Every record of the topic: place -> (key, value), read without any code of ours."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "judge", "enable.auto.commit": False})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1] for p in range(partitions)}
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    found: dict[Place, tuple[bytes | None, bytes | None]] = {}
    until = time.monotonic() + 60
    while len(found) < sum(ends.values()) and time.monotonic() < until:
        for message in consumer.consume(10_000, timeout=1.0):
            assert message.error() is None
            found[topic, message.partition(), message.offset()] = (message.key(), message.value())
    consumer.close()
    assert len(found) == sum(ends.values())
    return found


def expected(recipe: Recipe) -> dict[int, tuple[bytes, bytes | None]]:
    payments, made = Payments(recipe), dict[int, tuple[bytes, bytes | None]]()
    while len(made) < recipe.count:
        part = payments.slice(len(made), BLOCK)
        made |= dict(enumerate(zip(part.keys, part.values, strict=True), part.first))
    return made


def test_every_record_is_acknowledged_and_the_ledger_names_its_offset(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    recipe = Recipe(30_000, seed=11, key_skew=1.0, poison=Fraction("0.02"))
    config = connection.connect_to(kafka.bootstrap)
    report = load.produce(config, topic, recipe, ledger=tmp_path / "l.arrow")
    assert (report.acknowledged, report.failed, report.unknown) == (30_000, 0, 0)
    assert report.kinds == {"good": 29_400, **dict.fromkeys(list(report.kinds)[1:], 75)}
    assert len(report.kinds) == 9
    ledger = Acknowledged.read(tmp_path / "l.arrow")
    read = consumed(kafka, topic, 3)
    assert ledger.offsets() == set(read)
    records = expected(recipe)
    columns = ("topic", "partition", "offset", "number")
    for t, p, o, number in zip(*(ledger.rows[c].to_pylist() for c in columns), strict=True):
        assert read[t, p, o] == records[number]


def test_records_of_a_key_are_in_one_partition_and_in_order(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    recipe = Recipe(30_000, seed=12, accounts=50)
    load.produce(connection.connect_to(kafka.bootstrap), topic, recipe, ledger=tmp_path / "l.arrow")
    rows = Acknowledged.read(tmp_path / "l.arrow").rows
    keys = {number: key for number, (key, _) in expected(recipe).items()}
    seen: dict[bytes, list[tuple[int, int]]] = defaultdict(list)
    for number, partition, offset in zip(
        *(rows[c].to_pylist() for c in ("number", "partition", "offset")), strict=True
    ):
        seen[keys[number]].append((partition, offset))
    for places in seen.values():
        assert len({partition for partition, _ in places}) == 1
        assert places == sorted(places)


def test_command_reports_counts_and_exits_zero(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    spec = spec_file(tmp_path, kafka.bootstrap, topic)
    done = penstock("produce", spec, "--count", 800, "--poison", 0.1, "--seed", 3, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["acknowledged"], report["complete"], report["seed"]) == (800, True, 3)
    assert sum(n for kind, n in report["kinds"].items() if kind != "good") == 80


def test_a_rate_is_not_exceeded(kafka: Broker) -> None:
    topic = new_topic(kafka)
    report = load.produce(connection.connect_to(kafka.bootstrap), topic, Recipe(1_000, seed=1), rate=500)
    # The first slices may go out at once, the last one is not waited for.
    assert report.seconds > 1_000 / 500 - 0.3
    assert report.acknowledged == 1_000


def test_a_record_of_a_megabyte_arrives_whole(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka, partitions=1)
    recipe = Recipe(3, seed=1, large=1_000_000)
    report = load.produce(connection.connect_to(kafka.bootstrap), topic, recipe)
    assert report.complete
    assert list(consumed(kafka, topic, 1).values()) == list(expected(recipe).values())


def test_a_record_the_broker_refuses_is_failed_and_the_rest_arrive(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka, partitions=1)
    spec = spec_file(tmp_path, kafka.bootstrap, topic)
    ledger = tmp_path / "l.arrow"
    # Poison is not padded: of four records the two good ones are too large.
    arguments = ("--count", 4, "--large", 20_000_000, "--poison", 0.5, "--ledger", ledger, "--json")
    done = penstock("produce", spec, *arguments)
    report = json.loads(done.stdout)
    assert done.returncode == 5
    assert (report["acknowledged"], report["failed"], report["unknown"]) == (2, 2, 0)
    assert "MSG_SIZE_TOO_LARGE" in report["first_error"]
    assert Acknowledged.read(ledger).offsets() == set(consumed(kafka, topic, 1))


def test_a_missing_topic_is_named_with_the_nearest_and_the_command(kafka: Broker, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    with pytest.raises(TopicMissing) as missing:
        load.produce(connection.connect_to(kafka.bootstrap), topic + "x", Recipe(1, seed=1), spec="load.yaml")
    assert missing.value.facts == {"missing": [topic + "x"]}
    assert missing.value.next_command == "penstock apply load.yaml"
    assert f"did you mean '{topic}'" in (missing.value.cause or "")


def test_no_broker_is_an_error_within_seconds_and_nothing_else_is_printed(tmp_path: Path) -> None:
    spec = spec_file(tmp_path, "127.0.0.1:1", "payments")
    started = time.monotonic()
    done = penstock("produce", spec, "--count", 1, "--json")
    assert time.monotonic() - started < 20
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, done.stderr) == (3, "")
    assert (error["code"], error["next"], error["retryable"]) == ("kafka-unreachable", "penstock up", True)
    assert "127.0.0.1:1" in error["cause"]


def test_no_broker_elsewhere_does_not_suggest_a_local_one() -> None:
    with pytest.raises(KafkaUnreachable) as error:
        admin.topics(connection.connect_to("kafka.invalid:9092"), timeout=2)
    assert error.value.next_command == "nc -vz kafka.invalid 9092"


def running(kafka: Broker, tmp_path: Path, topic: str, ledger: Path) -> subprocess.Popen[str]:
    """A producer at a steady rate, returned once its ledger has acknowledged records."""
    spec = spec_file(tmp_path, kafka.bootstrap, topic)
    command = [PENSTOCK, "produce", spec, "--count", "100000", "--rate", "5000", "--seed", "1"]
    process = subprocess.Popen(
        [*map(str, command), "--ledger", str(ledger), "--json"], stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 30
    while time.monotonic() < until and not (ledger.exists() and len(Acknowledged.read(ledger)) > 1_000):
        time.sleep(0.1)
    return process


def test_killed_producer_leaves_a_ledger_that_neither_invents_nor_forgets(kafka: Broker, tmp_path: Path) -> None:
    topic, ledger = new_topic(kafka), tmp_path / "l.arrow"
    process = running(kafka, tmp_path, topic, ledger)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    told, read = Acknowledged.read(ledger), consumed(kafka, topic, 3)
    assert len(told) > 1_000
    assert told.offsets() <= set(read)
    ids = {json.loads(value or b"")["payment_id"] for _, value in read.values()}
    assert told.payment_ids() <= ids
    assert ids <= told.payment_ids() | set(told.unknown()["payment_id"].to_pylist())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_producer_writes_a_complete_ledger_of_what_it_sent(
    kafka: Broker, tmp_path: Path, number: signal.Signals
) -> None:
    topic, ledger = new_topic(kafka), tmp_path / "l.arrow"
    process = running(kafka, tmp_path, topic, ledger)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    report: dict[str, Any] = json.loads(out)
    told = Acknowledged.read(ledger)
    assert (process.returncode, report["stopped"]) == (5, number.name)
    assert report["sent"] == report["acknowledged"] == len(told)
    assert told.offsets() == set(consumed(kafka, topic, 3))
