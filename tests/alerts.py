"""The example of real-time mode on topics of its own, for tests: send, run as a process, look at what came out."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

from penstock.deadletters import dead_letter
from penstock.errors import KafkaUnreachable
from penstock.kafka import admin, connection
from penstock.kafka.consume import headers_of, visible
from penstock.spec.model import TopicSettings
from tests.processes import PENSTOCK, QUICK_JVM

ENVIRONMENT = {**os.environ, **QUICK_JVM}
EXAMPLE = Path(__file__).parents[1] / "examples" / "real-time"


class Alerts:
    """The example on topics of its own."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.directory, self.config = directory, connection.connect_to(bootstrap)
        shutil.copytree(EXAMPLE / "schemas", directory / "schemas")
        self.topic, self.out = f"rt-{uuid.uuid4().hex[:8]}", f"rt-{uuid.uuid4().hex[:8]}.large"
        self.dead = f"{self.topic}.DLT"
        self.spec: dict[str, Any] = YAML(typ="safe").load(EXAMPLE / "spec.yaml")
        self.spec["kafka"] = {"bootstrap": bootstrap}
        self.spec["source"]["topics"] = {self.topic: {"view": "payments", **self.spec["source"]["topics"]["payments"]}}
        self.spec["source"]["start"] = "earliest"
        self.spec["sinks"]["large"]["kafka"]["topic"] = self.out
        self.spec["trigger"] = {"real_time": "3s"}
        topics = {self.topic: 2, self.out: 1, self.dead: 1}
        admin.create_missing(self.config, {name: TopicSettings(partitions=n) for name, n in topics.items()})

    @property
    def home(self) -> Path:
        return self.directory / ".penstock" / "alerts"

    @property
    def file(self) -> Path:
        path = self.directory / "alerts.yaml"
        YAML().dump(self.spec, path)
        return path

    def send(self, *values: bytes | None, headers: Any = ()) -> None:
        producer = connection.producer(self.config)
        for i, value in enumerate(values):
            producer.produce(self.topic, value, b"k", partition=i % 2, headers=list(headers))
        assert producer.flush(30) == 0

    def read(self, topic: str) -> list[Any]:
        for _ in range(20):  # a topic that was just made has no leader for a moment
            try:
                return list(visible(self.config, topic, 1))
            except KafkaUnreachable:
                time.sleep(0.5)
        return list(visible(self.config, topic, 1))

    def letters(self) -> list[dead_letter.DeadLetter]:
        found = [dead_letter.from_headers(m.key(), m.value(), headers_of(m)) for m in self.read(self.dead)]
        return [letter for letter in found if letter is not None]

    def until(self, what: Any, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, (len(self.read(self.out)), len(self.read(self.dead)), self.log())
            time.sleep(0.3)

    def log(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-6000:] for file in self.directory.glob("run-*.log"))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.directory / f"run-{uuid.uuid4().hex[:4]}.log").open("wb") as log:
            process = subprocess.Popen(
                [PENSTOCK, "run", str(self.file)], stdout=log, stderr=subprocess.STDOUT, env=ENVIRONMENT
            )
            try:
                yield process
            finally:
                killed(process)

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PENSTOCK, *words], capture_output=True, text=True, timeout=120, env=ENVIRONMENT, check=False
        )


def payment(id_: int, amount: str = '"2000.00"', status: str = "NEW", **more: str) -> bytes:
    fields = {"id": str(id_), "account": '"a"', "amount": amount, "status": f'"{status}"', **more}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}").encode()


def killed(process: subprocess.Popen[bytes]) -> None:
    """With -9, and the engine with it: nothing of it can write another word."""
    if process.poll() is None:
        for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            each.kill()
    process.wait()
