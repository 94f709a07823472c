"""Servers that only integration tests need: one for the whole run, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.databases import Database, database
from tests.processes import QUICK_JVM, Run, running
from tests.samples.lab import Lab
from tests.sink_kinds import Make, maker

from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from penstock.local.registry import LocalRegistry


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    """A real registry. Tests share it: each uses subjects of its own and leaves the global mode as it is."""
    with running(LocalRegistry(tmp_path_factory.mktemp("registry"))) as server:
        yield server


@pytest.fixture
def db(postgres: LocalPostgres, spark: SparkSession) -> Iterator[Database]:
    with database(postgres.url, spark) as made:
        yield made


@pytest.fixture(scope="module")
def lab(kafka: Cluster, registry: LocalRegistry) -> Iterator[Lab]:
    made = Lab(kafka.bootstrap, registry.url)
    yield made
    made.registry.close()
    for wire in made.wires.values():
        wire.consumer.close()
    made.wires.clear()  # a producer goes on until nobody has it


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A sink of a kind, over a place of its own, for the conformance suite."""
    return maker(request, tmp_path)


@pytest.fixture
def quick_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that lives for half a minute spends most of it optimising: without that it is twice as fast."""
    monkeypatch.setenv(*next(iter(QUICK_JVM.items())))


@pytest.fixture
def start(tmp_path: Path, quick_engine: None) -> Iterator[Callable[..., Run]]:
    """Starts a `penstock`; whatever a failed test leaves running is killed."""
    runs: list[Run] = []

    def begin(*words: str, **streams: Any) -> Run:
        runs.append(Run(tmp_path, *words, **streams))
        return runs[-1]

    yield begin
    for run in runs:
        run.kill()
