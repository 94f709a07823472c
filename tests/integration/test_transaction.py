"""Transactions over a connection that takes records slowly."""

from __future__ import annotations

import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.committed import committed

from penstock.kafka import transaction
from penstock.kafka.connection import connect_to
from penstock.kafka.transaction import Mark, Owner
from penstock.local.broker import Cluster

RECORDS = 20_000
SLOW = {"batch.num.messages": "1", "max.in.flight.requests.per.connection": "1"}  # a round trip for every record


def test_records_that_take_longer_than_one_wait_are_committed(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    AdminClient({"bootstrap.servers": kafka.bootstrap}).create_topics([NewTopic(topic, 1)])[topic].result(20)
    owner = Owner.take({**connect_to(kafka.bootstrap), **SLOW}, topic, topic)
    owner.begin()
    for i in range(RECORDS):
        owner.forward(topic, None, str(i).encode(), [], 0)
    owner.mark({(topic, 0): Mark(1)})
    monkeypatch.setattr(transaction, "_TIMEOUT_S", 1.0)
    began = time.monotonic()
    owner.commit()
    assert time.monotonic() - began > 1, "not slow: this could have been one wait"
    assert [int(m.value or b"") for m in committed(kafka.bootstrap, topic)] == list(range(RECORDS))
