"""Every way to say what is read and from where, on real Kafka and real Spark."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.payments import Heard, Payments, good, judge

from penstock import failpoint
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.errors import BadArgument, OffsetsVanished, StartNotThere, TopicRecreated
from penstock.kafka import admin, connection
from penstock.runtime import backfill, build, supervise
from penstock.runtime.verify import verify

pytestmark = pytest.mark.usefixtures("spark")


def ids(payments: Payments) -> list[str]:
    return sorted(row["payment_id"] for row in payments.rows())


def put(payments: Payments, number: int, partition: int, at_ms: int = 0) -> None:
    producer = connection.producer(payments.config)
    refused: list[Any] = []

    def delivered(error: Any, _message: Any) -> None:
        refused.extend([error] if error else [])

    producer.produce(payments.topic, good(number), partition=partition, timestamp=at_ms, on_delivery=delivered)
    assert producer.flush(10) == 0
    assert not refused


def entries(payments: Payments) -> list[Entry]:
    return list(Ledger(build.home(payments.pipeline).ledger).entries())


def by_pattern(payments: Payments, **more: Any) -> None:
    read = payments.spec["source"]["topics"][payments.topic]
    payments.spec["source"] = {"pattern": {"match": f"{payments.topic}(-[a-z]+)?", **read, **more}}
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}


def test_topics_that_match_a_pattern_share_a_view_and_a_new_one_joins_a_running_query(payments: Payments) -> None:
    by_pattern(payments)
    payments.create(f"{payments.topic}-eu", 2)
    payments.send(good(1))
    payments.send(good(2), b"broken", topic=f"{payments.topic}-eu")
    stop, heard = supervise.StopRequest(), Heard()

    def follow(entry: Any, _: float) -> None:
        heard.entries.append(entry)
        read = sum(e.read for e in heard.entries)
        if read == 3 and f"{payments.topic}-us" not in entry.topics:
            payments.create(f"{payments.topic}-us")
            payments.send(good(3), topic=f"{payments.topic}-us")
        if read == 4:
            stop.ask()

    heard.batch_done = follow  # type: ignore[method-assign]
    payments.spec["trigger"] = {"every": "500ms"}
    supervise.run(payments.pipeline, watch=heard, stop=stop)
    assert ids(payments) == ["p-1", "p-2", "p-3"]
    assert {t.rpartition("-")[2] for t, _, _ in payments.places()} >= {"eu", "us"}
    [letter] = payments.dead()
    assert letter.topic == f"{payments.topic}-eu"
    assert payments.verify().complete


def test_a_new_topic_is_held_back_until_it_is_accepted(payments: Payments) -> None:
    by_pattern(payments, new_topics="hold")
    payments.send(good(1))
    payments.run()
    payments.create(f"{payments.topic}-new")
    payments.send(good(2), topic=f"{payments.topic}-new")
    heard = Heard()
    payments.run(watch=heard)
    assert ids(payments) == ["p-1"]
    assert f"{payments.topic}-new" in heard.warnings[0]
    payments.run(accept=["new-topics"])
    assert ids(payments) == ["p-1", "p-2"]
    assert payments.verify().complete


def test_only_the_partitions_that_are_named_are_read(payments: Payments) -> None:
    payments.spec["source"]["topics"][payments.topic]["partitions"] = [0, 2]
    for partition in range(3):
        put(payments, partition, partition)
    payments.run()
    assert ids(payments) == ["p-0", "p-2"]
    assert payments.verify().complete


def test_start_at_offsets_with_kafkas_own_markers(payments: Payments) -> None:
    for partition in range(3):
        for number in range(3):
            put(payments, partition * 10 + number, partition)
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {0: 2, 1: -1}}}
    payments.run()
    assert ids(payments) == ["p-2", "p-20", "p-21", "p-22"]  # partition 2 is not named: from the first one
    assert payments.verify().complete


def test_start_at_a_time_for_all_for_a_topic_and_for_a_partition(payments: Payments) -> None:
    noon = int(time.time() * 1000) - 3_600_000  # Kafka deletes old ones and refuses those to come
    for partition in range(3):
        for number in range(3):
            put(payments, partition * 10 + number, partition, noon + number * 60_000)
    payments.spec["source"]["start"] = {"timestamp": {payments.topic: {0: noon + 60_000, 1: noon + 120_000}}}
    payments.run()
    assert ids(payments) == ["p-1", "p-12", "p-2", "p-20", "p-21", "p-22"]
    second = noon + 90_000
    payments.spec.update(name="again", checkpoint="again")
    payments.spec["sinks"]["lake"]["delta"]["path"] = "other"
    payments.spec["source"]["start"] = {"timestamp": second}
    payments.run()
    assert sum(entry.read for entry in entries(payments)) == 3


def test_a_time_that_no_record_has_reached_stops_or_begins_at_the_end_as_the_spec_says(payments: Payments) -> None:
    put(payments, 1, 0)
    payments.spec["source"]["start"] = {"timestamp": "2099-01-01T00:00:00Z"}
    with pytest.raises(StartNotThere) as stopped:
        payments.run()
    assert "no_such_record: latest" in str(stopped.value.next_command)
    payments.spec["source"]["start"]["no_such_record"] = "latest"
    payments.run()
    put(payments, 2, 0)
    payments.run()
    assert ids(payments) == ["p-2"]


def test_tasks_can_be_more_than_partitions_and_nothing_changes(payments: Payments) -> None:
    payments.spec["source"] |= {"min_partitions": 7, "max_records_per_partition": 100}
    sent = payments.produce(900, poison=0.03)
    payments.run()
    assert judge(payments, [sent]) == []
    assert payments.verify().complete


def test_partitions_added_while_it_runs_are_read(payments: Payments) -> None:
    from confluent_kafka.admin import NewPartitions

    payments.spec["trigger"] = {"every": "500ms"}
    payments.send(good(1))
    client, stop, heard = connection.admin(payments.config), supervise.StopRequest(), Heard()

    def follow(entry: Any, _: float) -> None:
        heard.entries.append(entry)
        if len(heard.entries) == 1:
            client.create_partitions([NewPartitions(payments.topic, 5)])[payments.topic].result(10)
            _until(lambda: len(client.list_topics(payments.topic, timeout=5).topics[payments.topic].partitions) == 5)
            put(payments, 2, 4)
        if sum(e.read for e in heard.entries) == 2:
            stop.ask()

    heard.batch_done = follow  # type: ignore[method-assign]
    supervise.run(payments.pipeline, watch=heard, stop=stop)
    assert ids(payments) == ["p-1", "p-2"]
    assert payments.verify().complete


def test_transactions_that_were_aborted_are_not_there_and_markers_are_no_records(payments: Payments) -> None:
    producer = connection.producer(payments.config, transactional_id=payments.topic)
    producer.init_transactions(10)
    for number, keep in enumerate([True, False, True]):
        producer.begin_transaction()
        for part in range(5):
            producer.produce(payments.topic, good(number * 10 + part), partition=0)
        producer.flush(10)
        producer.commit_transaction(10) if keep else producer.abort_transaction(10)
    payments.run()
    assert ids(payments) == sorted(f"p-{n}" for n in [*range(5), *range(20, 25)])
    report = payments.verify()
    assert report.complete, report.findings
    assert (report.records, report.offsets) == (10, 18)  # three markers and five aborted records are no records


def test_a_compacted_topic_is_read_with_its_gaps(payments: Payments) -> None:
    topic = f"{payments.topic}-compact"
    payments.create(
        topic,
        1,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "200",
            "delete.retention.ms": "100",
        },
    )
    read = payments.spec["source"]["topics"].pop(payments.topic)
    payments.spec["source"]["topics"][topic] = read
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.DLT"}}
    for number in range(30):
        payments.send(good(number), key=b"same", topic=topic)
        if number % 10 == 9:
            time.sleep(0.2)
    _until(lambda: _records_in(payments, topic) < 25, 40)
    payments.run()
    report = payments.verify()
    assert report.complete, report.findings
    assert report.offsets == 30
    assert report.records == len(payments.rows()) < 25


def test_a_topic_that_was_made_again_stops_the_pipeline(payments: Payments) -> None:
    payments.send(good(1))
    payments.run()
    client = connection.admin(payments.config)
    client.delete_topics([payments.topic])[payments.topic].result(10)
    _until(lambda: payments.topic not in client.list_topics(timeout=5).topics)
    _until(lambda: _created(payments, payments.topic))
    payments.send(*(good(n) for n in range(50)))  # more than before: offsets alone would not show it
    with pytest.raises(TopicRecreated) as stopped:
        payments.run()
    assert stopped.value.facts == {"topic": payments.topic}
    assert ids(payments) == ["p-1"]


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_offsets_that_expired_unread_stop_or_are_written_down(payments: Payments, policy: str) -> None:
    from confluent_kafka import TopicPartition

    payments.spec["source"]["on_data_loss"] = policy
    put(payments, 0, 0)
    payments.run()
    for number in range(1, 11):
        put(payments, number, 0)
    client = connection.admin(payments.config)
    [gone] = client.delete_records([TopicPartition(payments.topic, 0, 6)]).values()
    gone.result(10)
    heard = Heard()
    if policy == "fail":
        with pytest.raises(OffsetsVanished):
            payments.run()
        return
    payments.run(watch=heard)
    assert ids(payments) == sorted(f"p-{n}" for n in [0, *range(6, 11)])
    [lost] = [r for entry in entries(payments) for r in entry.lost]
    assert (lost.topic, lost.partition, lost.start, lost.end) == (payments.topic, 0, 1, 6)
    assert "5 offsets expired" in heard.warnings[0]
    report = payments.verify()
    assert report.complete, report.findings
    assert report.lost == [lost]


def test_records_that_expire_after_they_were_read_are_not_lost(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker of a transaction has an offset too: fewer records are read than the batch has offsets."""
    from confluent_kafka import TopicPartition

    payments.spec["source"]["on_data_loss"] = "continue"
    producer = connection.producer({**payments.config, "transactional.id": payments.topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(payments.topic, good(number), partition=0)
    producer.commit_transaction(20)

    def expire(place: str, *_: Any) -> None:
        if place == "after-sinks":
            client = connection.admin(payments.config)
            [gone] = client.delete_records([TopicPartition(payments.topic, 0, 2)]).values()
            gone.result(10)

    monkeypatch.setattr(failpoint, "reach", expire)
    payments.run()
    assert ids(payments) == ["p-0", "p-1", "p-2"]
    [entry] = entries(payments)
    assert sum(map(len, entry.ranges)) == 4
    assert entry.lost == []


def test_a_backfill_sends_a_range_through_the_same_spec_once(payments: Payments) -> None:
    payments.spec["source"]["start"] = "latest"
    payments.run()
    for number in range(10):
        put(payments, number, 0)
    payments.spec["rate"]["max_offsets"] = 3
    wanted = backfill.Range(f"{payments.topic}:0=2", f"{payments.topic}:0=8")
    heard = Heard()
    home = backfill.run(payments.pipeline, wanted, watch=heard)
    assert ids(payments) == [f"p-{n}" for n in range(2, 8)]
    assert len(heard.entries) >= 2
    backfill.run(payments.pipeline, wanted)  # again: nothing
    assert ids(payments) == [f"p-{n}" for n in range(2, 8)]
    assert verify(payments.pipeline, home.path.name).complete
    payments.spec["rate"]["max_offsets"] = 1000
    payments.run()  # the stream knows nothing of it
    assert Counter(ids(payments)) == Counter([f"p-{n}" for n in range(10)] + [f"p-{n}" for n in range(2, 8)])
    for name in (None, home.path.name):
        report = verify(payments.pipeline, name)
        assert (report.findings, report.proof) == ([], {"lake": "by offset"})
    DeltaTable(str(payments.directory / "lake")).delete("payment_id = 'p-5'")  # of stream and backfill
    for name in (None, home.path.name):
        lost = [found for found in verify(payments.pipeline, name).findings if found.kind == "lost"]
        assert [(found.partition, found.offsets) for found in lost] == [(0, [5])]


def test_a_backfill_to_the_end_ends_before_a_transaction_that_is_open(payments: Payments) -> None:
    for number in range(3):
        put(payments, number, 0)
    own = {"transactional.id": payments.topic, "transaction.timeout.ms": "600000"}
    producer = connection.producer({**payments.config, **own})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(payments.topic, good(3), partition=0)
    assert producer.flush(10) == 0
    put(payments, 4, 0)  # committed, but behind the open one: nobody can read it yet
    home = backfill.run(payments.pipeline, backfill.Range("earliest", "latest"))
    assert ids(payments) == ["p-0", "p-1", "p-2"]
    assert verify(payments.pipeline, home.path.name).complete
    for end in (f"{payments.topic}:0=5", "2100-01-01T00:00:00Z"):
        with pytest.raises(BadArgument, match="cannot be read up to offset 5 yet"):
            backfill.run(payments.pipeline, backfill.Range("earliest", end))
    producer.commit_transaction(20)
    backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:0=3", "latest"))
    assert ids(payments) == [f"p-{n}" for n in range(5)]


def _until(fact: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _created(payments: Payments, topic: str) -> bool:
    """Kafka may still be busy deleting the old one."""
    from penstock.errors import PenstockError

    try:
        payments.create(topic, 3)
    except PenstockError:
        return False
    return True


def _records_in(payments: Payments, topic: str) -> int:
    from penstock.kafka.consume import visible

    return sum(1 for _ in visible(payments.config, topic, 1))


def test_a_backfill_reads_the_partitions_that_are_named_and_refuses_those_that_are_not_there(
    payments: Payments,
) -> None:
    for number in range(6):
        payments.send(good(number), key=str(number).encode())
    ends = {p: high for (_, p), (_, high) in admin.watermarks(payments.config, {payments.topic: 3}).items()}
    there = max(ends, key=lambda p: ends[p])
    backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:{there}=0", "latest"))
    assert {partition for _, partition, _ in payments.places()} == {there}
    assert sum(payments.places().values()) == ends[there]
    with pytest.raises(StartNotThere, match="which is not read"):
        backfill.run(payments.pipeline, backfill.Range(f"{payments.topic}:9=0", "latest"), "no-such-partition")
    wrong = backfill.Range(f"{payments.topic}:{there}=1", f"{payments.topic}:{there}=0")
    with pytest.raises(BadArgument, match="ends before it begins"):
        backfill.run(payments.pipeline, wrong, "backwards")


def test_a_start_for_a_partition_that_is_not_read_is_refused(payments: Payments) -> None:
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {9: 0}}}
    with pytest.raises(StartNotThere, match=f"{payments.topic}-9"):
        payments.run()
