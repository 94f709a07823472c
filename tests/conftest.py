"""One real broker and one real Spark session for the whole run; both start only when a test asks for them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from penstock.local.broker import Cluster
from penstock.local.postgres import LocalPostgres
from tests.payments import Payments
from tests.processes import QUICK_JVM, running

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

# A shell that runs the tests in the background ignores Ctrl-C, and every command they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("kafka"), brokers=1)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """The session that every in-process run takes over, because a process has one JVM."""
    from penstock.spark import session
    from penstock.spec.model import Pipeline

    pipeline = Pipeline.model_validate(
        {
            "name": "tests",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": {"a": "int"}}}}}},
            "sinks": {"lake": {"from": "t", "delta": {"path": "lake"}}},
            "spark": {"master": "local[2]"},
        }
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(*next(iter(QUICK_JVM.items())))
        every = ["core", "delta", "iceberg", "postgres"]
        made = session.start(pipeline, tmp_path_factory.mktemp("spark-logs"), groups=every)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """A real PostgreSQL. Tests share it: each uses a schema of its own."""
    with running(LocalPostgres(tmp_path_factory.mktemp("postgres"))) as server:
        yield server


@pytest.fixture
def payments(kafka: Cluster, tmp_path: Path) -> Payments:
    """A payments pipeline of its own: new topics, new directories, the schema and rules of the example."""
    return Payments(kafka.bootstrap, tmp_path)
