"""Servers that only integration tests need: one for the whole run, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.databases import Database, database
from tests.processes import running
from tests.samples.lab import Lab

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
