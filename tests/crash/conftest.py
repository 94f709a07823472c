"""Three brokers for the crash tests that are about a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.local.broker import Cluster
from tests.payments import Payments
from tests.processes import running


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(Cluster(tmp_path_factory.mktemp("three-brokers"), brokers=3)) as cluster:
        yield cluster


@pytest.fixture
def payments_of_three(brokers: Cluster, tmp_path: Path) -> Payments:
    (tmp_path / "three").mkdir()
    return Payments(brokers.bootstrap, tmp_path / "three", replication=3)
