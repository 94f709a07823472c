"""Records that Kafka no longer has, or has under another topic id: told, written down, never passed over."""

from __future__ import annotations

from typing import Any

import pytest
from tests.commands import document, penstock
from tests.payments import Heard, Payments, good, made_again

from penstock import failpoint
from penstock.errors import OffsetsVanished, PenstockError, TopicRecreated
from penstock.kafka import connection
from penstock.lifecycle.preview import plan
from penstock.watch import CHECKING, ENGINE, RESOLVING

pytestmark = pytest.mark.usefixtures("spark")


def test_a_topic_that_joins_without_its_first_offsets_stops_the_pipeline_and_can_be_gone_on_with(
    payments: Payments,
) -> None:
    payments.read_by_pattern()
    payments.send(good(1))
    payments.run()
    late = f"{payments.topic}-late"
    payments.create(late)
    payments.send(good(2), good(3), good(4), topic=late)
    payments.expire(2, topic=late)
    with pytest.raises(OffsetsVanished) as raised:
        payments.run()
    assert raised.value.cause == f"{late}-0 [0, 2) (2 offsets)"
    payments.spec["source"]["on_data_loss"] = "continue"
    payments.run()
    assert payments.ids() == ["p-1", "p-4"]
    assert [(r.topic, r.start, r.end) for entry in payments.entries() for r in entry.lost] == [(late, 0, 2)]
    report = payments.verify()
    assert report.complete, report.findings


def test_offsets_that_expired_unread_stop_a_run_and_a_start_or_are_written_down(payments: Payments) -> None:
    payments.put(0, 0)
    payments.run()
    for number in range(1, 11):
        payments.put(number, 0)
    for number in range(11, 15):
        payments.put(number, 1)
    doings: list[str] = []

    class Expiring(Heard):
        def starting(self, doing: str) -> None:
            doings.append(doing)

        def started(self, *_: Any) -> None:  # the start has asked Kafka already
            payments.expire(6)
            payments.expire(3, 1)

    def refused() -> PenstockError:
        with pytest.raises(OffsetsVanished) as raised:
            payments.run(watch=Expiring())
        return raised.value

    by_engine = refused()
    assert by_engine.what == "8 offsets of 2 partitions expired unread"
    assert by_engine.cause == f"{payments.topic}-0 [1, 6) (5 offsets); {payments.topic}-1 [0, 3) (3 offsets)"
    assert doings == [CHECKING, ENGINE, RESOLVING]
    by_start = refused()
    assert doings[3:] == [CHECKING]
    [problem] = plan(payments.pipeline).problems
    assert problem.as_dict() == by_start.as_dict() == by_engine.as_dict()

    payments.spec["source"]["on_data_loss"] = "continue"
    heard = Heard()
    payments.run(watch=heard)
    assert payments.ids() == sorted(f"p-{n}" for n in [0, *range(6, 11), 14])
    lost = [r for entry in payments.entries() for r in entry.lost]
    assert [(r.topic, r.partition, r.start, r.end) for r in lost] == [
        (payments.topic, 0, 1, 6),
        (payments.topic, 1, 0, 3),
    ]
    assert "5 offsets expired" in heard.warnings[0]
    report = payments.verify()
    assert report.complete, report.findings
    assert report.lost == lost
    said = document("verify", payments.file, expect=6)
    assert (said["complete"], said["records_lost"], said["exit_status"]) == (True, True, 6)
    assert penstock("verify", payments.file, expect=6).stdout.endswith("complete but for what expired unread\n")


def test_what_had_expired_before_it_was_skipped_is_lost_and_the_rest_is_not(payments: Payments) -> None:
    payments.put(0, 0)
    payments.run()
    for number in range(1, 11):
        payments.put(number, 0)
    to = ("checkpoint", "seek", payments.file, "--to")
    penstock(*to, f"{payments.topic}:0=3")
    assert document("verify", payments.file)["records_lost"] is False  # a choice, and Kafka has them still
    payments.expire(6)
    penstock(*to, f"{payments.topic}:0=8")
    payments.run()
    report = payments.verify()
    assert report.complete, report.findings
    assert [(r.start, r.end) for r in report.lost] == [(3, 6)]
    assert [(r.start, r.end) for r in report.skipped] == [(1, 3), (6, 8)]
    assert "expired unread and what was skipped" in penstock("verify", payments.file, expect=6).stdout


def test_records_that_expire_after_they_were_read_are_not_lost(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker of a transaction has an offset too: fewer records are read than the batch has offsets."""
    payments.spec["source"]["on_data_loss"] = "continue"
    producer = connection.producer({**payments.config, "transactional.id": payments.topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(payments.topic, good(number), partition=0)
    producer.commit_transaction(20)

    def expire(place: str, *_: Any) -> None:
        if place == "after-sinks":
            payments.expire(2)

    monkeypatch.setattr(failpoint, "reach", expire)
    payments.run()
    assert payments.ids() == ["p-0", "p-1", "p-2"]
    [entry] = payments.entries()
    assert sum(map(len, entry.ranges)) == 4
    assert entry.lost == []


def test_records_that_expire_while_they_are_about_to_be_read_are_written_down_as_lost(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.spec["source"]["on_data_loss"] = "continue"
    for number in range(10):
        payments.put(number, 0)

    def expire(place: str, *_: Any) -> None:
        if place == "before-sinks":  # after the first look at what Kafka holds
            payments.expire(6)

    monkeypatch.setattr(failpoint, "reach", expire)
    payments.run()
    [entry] = payments.entries()
    assert payments.ids() == [f"p-{n}" for n in range(6, 10)]
    assert [(r.partition, r.start, r.end) for r in entry.lost] == [(0, 0, 6)]
    assert entry.read + sum(map(len, entry.lost)) == sum(map(len, entry.ranges))
    assert payments.verify().lost == entry.lost


def test_a_topic_that_is_made_again_while_a_batch_of_it_is_written_stops_the_batch(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments.put(0, 0)

    def reach(place: str, *_: Any) -> None:
        if place == "after-sinks":
            made_again(payments, 3)

    monkeypatch.setattr(failpoint, "reach", reach)
    with pytest.raises(TopicRecreated):
        payments.run()
    assert payments.entries() == []
