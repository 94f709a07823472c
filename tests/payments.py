"""The example pipeline on topics of its own, for tests: write the spec, send records, run, look at what came out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from deltalake import DeltaTable
from ruamel.yaml import YAML

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.deadletters.dead_letter import DeadLetter
from penstock.deadletters.store import dead_letters
from penstock.errors import PenstockError
from penstock.kafka import admin, connection
from penstock.lifecycle import stream
from penstock.local import load
from penstock.local.payments import Recipe
from penstock.spec.load import load as load_spec
from penstock.spec.model import Pipeline, TopicSettings
from penstock.testing.acknowledged import Acknowledged, Place, places
from penstock.verification.report import Report
from penstock.verification.verify import verify
from tests.processes import PENSTOCK, QUICK_JVM

EXAMPLE = Path(__file__).parent.parent / "examples" / "payments"


@dataclass
class Payments:
    bootstrap: str
    directory: Path
    partitions: int = 3
    topic: str = field(default_factory=lambda: f"payments-{uuid.uuid4().hex[:8]}")
    replication: int = 1

    def __post_init__(self) -> None:
        shutil.copytree(EXAMPLE / "schemas", self.directory / "schemas")
        self.create(self.topic, self.partitions)
        self.create(f"{self.topic}.DLT")
        self.spec: dict[str, Any] = {
            "penstock": 1,
            "name": "payments",
            "kafka": {"bootstrap": self.bootstrap},
            "source": {
                "topics": {
                    self.topic: {"view": "payments", "value": {"format": "json", "schema": "schemas/payment.yaml"}}
                }
            },
            "contract": {"payments": [{"name": "positive", "rule": "amount > 0"}]},
            "transform": [
                {
                    "view": "settled",
                    "sql": "select *, to_date(event_time) as day from payments where status <> 'VOID'",
                }
            ],
            "sinks": {"lake": {"from": "settled", "delta": {"path": "lake", "partition_by": ["day"]}}},
            "dead_letters": {"kafka": {"topic": "{topic}.DLT"}},
            "rate": {"max_offsets": 1000},
            "spark": {"master": "local[2]"},
        }

    @property
    def config(self) -> dict[str, str]:
        return connection.connect_to(self.bootstrap)

    @property
    def file(self) -> Path:
        """The spec as a file, as it is now."""
        path = self.directory / "payments.yaml"
        whole = path.with_name(f"{path.name}.{uuid.uuid4().hex[:6]}")  # another thread may be reading the old one
        YAML().dump(self.spec, whole)
        return whole.replace(path)

    @property
    def pipeline(self) -> Pipeline:
        return load_spec(self.file)

    @property
    def home(self) -> Path:
        return Home.of(self.pipeline).path

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = TopicSettings(partitions=partitions, replication=self.replication, config=config)
        admin.create_missing(self.config, {topic: settings})

    def produce(self, count: int, poison: float = 0.0, seed: int = 7) -> Acknowledged:
        ledger = self.directory / f"acknowledged-{uuid.uuid4().hex[:6]}.arrow"
        recipe = Recipe(count=count, seed=seed, poison=Fraction(str(poison)))
        report = load.produce(self.config, self.topic, recipe, ledger=ledger)
        assert report.complete
        return Acknowledged.read(ledger)

    def send(self, *values: bytes | None, key: bytes | None = None, headers: Any = None, topic: str = "") -> None:
        producer = connection.producer(self.config, message_max_bytes=4_000_000)
        for value in values:
            producer.produce(topic or self.topic, value, key, headers=headers or [])
        assert producer.flush(30) == 0

    def put(self, number: int, partition: int, at_ms: int = 0) -> None:
        """One good record into this partition."""
        producer = connection.producer(self.config)
        refused: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            refused.extend([error] if error else [])

        producer.produce(self.topic, good(number), partition=partition, timestamp=at_ms, on_delivery=delivered)
        assert producer.flush(10) == 0
        assert not refused

    def expire(self, offset: int, partition: int = 0, topic: str = "") -> None:
        """Let Kafka delete what is before this offset, as retention would."""
        client = connection.admin(self.config)
        [gone] = client.delete_records([TopicPartition(topic or self.topic, partition, offset)]).values()
        gone.result(10)

    def read_by_pattern(self, **more: Any) -> None:
        read = self.spec["source"]["topics"][self.topic]
        self.spec["source"] = {"pattern": {"match": f"{self.topic}(-[a-z]+)?", **read, **more}}
        self.spec["dead_letters"] = {"kafka": {"topic": f"{self.topic}.DLT"}}

    def run(self, **options: Any) -> None:
        stream.run(self.pipeline, until_caught_up=True, **options)

    def cli(self, *words: str, expect: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """The real command in a process of its own."""
        __tracebackhide__ = True  # what it said is what matters
        done = subprocess.run(
            [PENSTOCK, *words],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **QUICK_JVM, **environment},
            check=False,
        )
        assert expect is None or done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        return done

    def verify(self) -> Report:
        return verify(self.pipeline)

    def rows(self) -> list[dict[str, Any]]:
        """What a reader that is not Spark sees in the table."""
        return list(DeltaTable(str(self.directory / "lake")).to_pyarrow_table().to_pylist())

    def ids(self) -> list[str]:
        return sorted(row["payment_id"] for row in self.rows())

    def entries(self) -> list[Entry]:
        return list(Ledger(self.home / "ledger").entries())

    def places(self) -> Counter[Place]:
        """Where the rows of the table came from, with repetitions."""
        return Counter((r["_kafka"]["topic"], r["_kafka"]["partition"], r["_kafka"]["offset"]) for r in self.rows())

    def dead(self) -> list[DeadLetter]:
        return list(dead_letters(self.pipeline).read())


def judge(payments: Payments, sent: list[Acknowledged], table: Counter[Place] | None = None) -> list[str]:
    """The judge of crash tests, outside the product: the producer's ledger against table and dead letters.

    Returns what is wrong, so that a test can also show that it finds something wrong. `table`: what another reader
    found in a table that is not Delta's.
    """
    wrong = []
    kept = Counter(place for part in sent for place in places(part.kept()))
    poison = Counter(place for part in sent for place in places(part.poison()))
    table = payments.places() if table is None else table
    dead = Counter(letter.position for letter in payments.dead())
    for name, expected, found in (("table", kept, table), ("dead letters", poison, dead)):
        lost, extra = expected - found, found - expected
        if lost:
            wrong.append(f"{name}: {sum(lost.values())} lost, e.g. {min(lost)}")
        if extra:
            wrong.append(f"{name}: {sum(extra.values())} repeated or invented, e.g. {min(extra)}")
    return wrong


class Heard(stream.Watch):
    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.warnings: list[str] = []

    def batch_done(self, entry: Any, seconds: float) -> None:
        self.entries.append(entry)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def good(number: int, **changes: Any) -> bytes:
    payment = {
        "payment_id": f"p-{number}",
        "account": "a-1",
        "amount": 12.5,
        "currency": "EUR",
        "status": "SETTLED",
        "event_time": "2026-11-01T10:00:00Z",
        **changes,
    }
    return json.dumps({k: v for k, v in payment.items() if v is not ...}).encode()


def deleted(payments: Payments) -> None:
    client = connection.admin(payments.config)
    client.delete_topics([payments.topic])[payments.topic].result(10)
    until(lambda: payments.topic not in client.list_topics(timeout=5).topics)


def made_again(payments: Payments, partitions: int) -> None:
    deleted(payments)

    def created() -> bool:
        try:
            payments.create(payments.topic, partitions)
        except PenstockError:
            return False  # Kafka is still busy deleting the old one
        return True

    until(created)


def until(fact: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.2)
