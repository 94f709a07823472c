"""Every way to say what is read and from where, on real Kafka and real Spark."""

from __future__ import annotations

import time
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.payments import Heard, Payments, good, until

from penstock.doctor.gather import examined
from penstock.errors import OffsetsVanished, StartNotThere
from penstock.kafka import connection
from penstock.lifecycle import backfill, preview, stream
from penstock.observe.measure_lag import lag_of

pytestmark = pytest.mark.usefixtures("spark")


def test_topics_that_match_a_pattern_share_a_view_and_a_new_one_joins_a_running_query(payments: Payments) -> None:
    payments.read_by_pattern()
    payments.create(f"{payments.topic}-eu", 2)
    payments.send(good(1))
    payments.send(good(2), b"broken", topic=f"{payments.topic}-eu")
    stop, heard = stream.StopRequest(), Heard()

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
    stream.run(payments.pipeline, watch=heard, stop=stop)
    assert payments.ids() == ["p-1", "p-2", "p-3"]
    assert {t.rpartition("-")[2] for t, _, _ in payments.places()} >= {"eu", "us"}
    [letter] = payments.dead()
    assert letter.topic == f"{payments.topic}-eu"
    assert payments.verify().complete


def test_a_new_topic_is_held_back_until_it_is_accepted(payments: Payments) -> None:
    payments.read_by_pattern(new_topics="hold")
    payments.send(good(1))
    payments.run()
    payments.create(f"{payments.topic}-new")
    payments.send(good(2), topic=f"{payments.topic}-new")
    assert (lag_of(payments.pipeline).total, examined(payments.pipeline)[1]) == (0, [])  # nobody is to wait for it
    heard = Heard()
    payments.run(watch=heard)
    assert payments.ids() == ["p-1"]
    assert f"{payments.topic}-new" in heard.warnings[0]
    backfill.run(payments.pipeline, backfill.Range("earliest", "latest"))
    assert payments.ids() == ["p-1", "p-1"]
    payments.run(accept=["new-topics"])
    assert payments.ids() == ["p-1", "p-1", "p-2"]
    assert payments.verify().complete


def test_of_the_topics_that_match_only_those_on_the_list_are_read(payments: Payments) -> None:
    payments.read_by_pattern(only=[payments.topic, f"{payments.topic}-eu"])
    for number, name in enumerate((payments.topic, f"{payments.topic}-eu", f"{payments.topic}-us")):
        payments.create(name)
        payments.send(good(number), topic=name)
    payments.run()
    assert payments.ids() == ["p-0", "p-1"]
    assert payments.verify().complete


def test_only_the_partitions_that_are_named_are_read(payments: Payments) -> None:
    payments.spec["source"]["topics"][payments.topic]["partitions"] = [0, 2]
    for partition in range(3):
        payments.put(partition, partition)
    payments.run()
    assert payments.ids() == ["p-0", "p-2"]
    assert payments.verify().complete
    payments.spec["source"]["topics"][payments.topic]["partitions"] = [0]
    payments.put(3, 0)
    [problem] = preview.plan(payments.pipeline).problems
    assert (problem.code, payments.topic in str(problem.cause)) == (OffsetsVanished.code, True)
    with pytest.raises(OffsetsVanished):
        payments.run()


def test_start_at_offsets_with_kafkas_own_markers(payments: Payments) -> None:
    for partition in range(3):
        for number in range(3):
            payments.put(partition * 10 + number, partition)
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {0: 2, 1: -1}}}
    payments.run()
    assert payments.ids() == ["p-2", "p-20", "p-21", "p-22"]  # partition 2 is not named: from the first one
    assert payments.verify().complete


def test_a_start_at_offsets_that_are_not_there_is_refused_and_can_be_corrected(payments: Payments) -> None:
    payments.put(0, 0)
    payments.put(1, 0)
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {0: 7}}}
    with pytest.raises(StartNotThere) as raised:
        payments.run()
    assert f"{payments.topic}-0: offset 7 is wanted, Kafka holds 0 to 2" in str(raised.value.cause)
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {0: 1}}}
    payments.run()
    assert payments.ids() == ["p-1"]


def test_start_at_a_time_for_all_for_a_topic_and_for_a_partition(payments: Payments) -> None:
    noon = int(time.time() * 1000) - 3_600_000  # Kafka deletes old ones and refuses those to come
    for partition in range(3):
        for number in range(3):
            payments.put(partition * 10 + number, partition, noon + number * 60_000)
    payments.spec["source"]["start"] = {"timestamp": {payments.topic: {0: noon + 60_000, 1: noon + 120_000}}}
    payments.run()
    assert payments.ids() == ["p-1", "p-12", "p-2", "p-20", "p-21", "p-22"]
    second = noon + 90_000
    for name, start in (("all", second), ("topic", {payments.topic: second})):
        payments.spec.update(name=name, checkpoint=name)
        payments.spec["sinks"]["lake"]["delta"]["path"] = name
        payments.spec["source"]["start"] = {"timestamp": start}
        payments.run()
        assert sum(entry.read for entry in payments.entries()) == 3


def test_a_time_that_no_record_has_reached_stops_or_begins_at_the_end_as_the_spec_says(payments: Payments) -> None:
    payments.put(1, 0)
    payments.spec["source"]["start"] = {"timestamp": "2099-01-01T00:00:00Z"}
    with pytest.raises(StartNotThere) as stopped:
        payments.run()
    assert "no_such_record: latest" in str(stopped.value.next_command)
    payments.spec["source"]["start"]["no_such_record"] = "latest"
    payments.run()
    payments.put(2, 0)
    payments.run()
    assert payments.ids() == ["p-2"]


def test_tasks_can_be_more_than_partitions_and_nothing_changes(payments: Payments) -> None:
    payments.spec["source"] |= {"min_partitions": 7, "max_records_per_partition": 100}
    payments.spec["transform"] = []
    payments.spec["sinks"]["lake"] = {"from": "payments", "delta": {"path": "lake"}}
    sent = payments.produce(900, poison=0.03)
    payments.run()
    table = DeltaTable(str(payments.directory / "lake"))
    assert len(payments.entries()) == 1
    assert len(table.file_uris()) >= 9  # each task writes one; there are three partitions
    assert set(payments.places().values()) == {1}
    assert len(payments.places()) == 900 - len(sent.poison())
    assert payments.verify().complete


def test_partitions_added_while_it_runs_are_read(payments: Payments) -> None:
    from confluent_kafka.admin import NewPartitions

    payments.spec["trigger"] = {"every": "500ms"}
    payments.send(good(1))
    client, stop, heard = connection.admin(payments.config), stream.StopRequest(), Heard()

    def follow(entry: Any, _: float) -> None:
        heard.entries.append(entry)
        if len(heard.entries) == 1:
            client.create_partitions([NewPartitions(payments.topic, 5)])[payments.topic].result(10)
            until(lambda: len(client.list_topics(payments.topic, timeout=5).topics[payments.topic].partitions) == 5)
            payments.put(2, 4)
        if sum(e.read for e in heard.entries) == 2:
            stop.ask()

    heard.batch_done = follow  # type: ignore[method-assign]
    stream.run(payments.pipeline, watch=heard, stop=stop)
    assert payments.ids() == ["p-1", "p-2"]
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
    assert payments.ids() == sorted(f"p-{n}" for n in [*range(5), *range(20, 25)])
    report = payments.verify()
    assert report.complete, report.findings
    assert (report.records, report.offsets) == (10, 18)
    assert (report.markers, report.gaps) == (8, 0)  # three markers and five aborted records are no records


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
    until(lambda: _records_in(payments, topic) < 25, 40)
    payments.run()
    report = payments.verify()
    assert report.complete, report.findings
    assert report.offsets == 30
    assert report.records == len(payments.rows()) < 25
    assert report.gaps == 30 - report.records > 5  # also where Kafka has gone on compacting


def _records_in(payments: Payments, topic: str) -> int:
    from penstock.kafka.consume import visible

    return sum(1 for _ in visible(payments.config, topic, 1))


def test_a_start_for_a_partition_that_is_not_read_is_refused(payments: Payments) -> None:
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {9: 0}}}
    with pytest.raises(StartNotThere, match=f"{payments.topic}-9"):
        payments.run()
