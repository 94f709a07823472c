"""Transactions over a connection that takes records slowly."""

from __future__ import annotations

import time
import uuid

import pytest
from tests.committed import committed

from penstock.kafka import admin, transaction
from penstock.kafka.connection import connect_to
from penstock.kafka.transaction import Mark, Owner
from penstock.local.broker import Cluster
from penstock.spec.model import TopicSettings

RECORDS = 20_000
SLOW = {"batch.num.messages": "1", "max.in.flight.requests.per.connection": "1"}  # a round trip for every record


def test_records_that_take_longer_than_one_wait_are_committed(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    config = connect_to(kafka.bootstrap)
    admin.create_missing(config, {topic: TopicSettings(partitions=1, replication=1)})
    owner = Owner.take({**config, **SLOW}, topic, topic)
    owner.begin()
    for i in range(RECORDS):
        owner.forward(topic, None, str(i).encode(), [], 0)
    owner.mark({(topic, 0): Mark(1)})
    monkeypatch.setattr(transaction, "_TIMEOUT_S", 1.0)
    began = time.monotonic()
    owner.commit()
    assert time.monotonic() - began > 1, "not slow: this could have been one wait"
    while not (found := committed(kafka.bootstrap, topic)):  # markers are written a moment after the commit
        assert time.monotonic() - began < 60
        time.sleep(0.1)
    assert [int(m.value or b"") for m in found] == list(range(RECORDS))
