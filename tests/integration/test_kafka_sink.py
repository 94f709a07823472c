"""Kafka as a sink, read back by consumers that are not ours."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from tests.committed import Seen
from tests.forwarding import Forward, event
from tests.payments import Heard, Payments, until

from penstock.errors import SpecInvalid, TableOfAnotherQuery
from penstock.kafka import connection
from penstock.lifecycle import stream
from penstock.spec.model import Pipeline
from penstock.watch import StopRequest

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def forward(payments: Payments) -> Forward:
    return Forward(payments)


def test_records_go_out_once_with_key_and_headers_and_the_offsets_are_in_the_same_transaction(forward: Forward) -> None:
    forward.to(key={"format": "string", "column": "who"}, headers="_kafka.headers", origin=True)
    forward.payments.spec["source"]["topics"][forward.payments.topic]["kafka_columns"] = ["headers"]
    forward.payments.spec["rate"] = {"max_offsets": 20}
    forward.send(*(event(n, tags=["a", None]) for n in range(50)))
    forward.payments.run()
    seen = forward.seen()
    assert sorted(json.loads(each.value or b"")["id"] for each in seen) == list(range(50))
    first = next(each for each in seen if json.loads(each.value or b"")["id"] == 7)
    assert json.loads(first.value or b"") == {
        "id": 7, "who": "w7", "amount": 1.50, "at": "2026-01-02T03:04:05.678901Z", "tags": ["a", None],
    }  # fmt: skip
    assert first.key == b"w7"
    assert first.headers[0] == ("trace", b"7")
    ends = {(r.topic, r.partition): r.end for r in _last_ranges(forward.payments)}
    assert {place: end for place, end in forward.offsets_of_groups().items() if end >= 0} == {
        place: end
        for place, end in ends.items()
        if end  # a partition without records has no mark
    }
    report = forward.payments.verify()
    assert report.complete, report.findings
    assert report.proof == {"out": "by offset"}


def test_records_of_one_input_partition_keep_their_order(forward: Forward) -> None:
    forward.to(origin=True, partition="which")
    forward.payments.spec["transform"] = [{"view": "placed", "sql": "select *, 0 as which from events where id <> 3"}]
    forward.payments.spec["sinks"]["out"]["from"] = "placed"
    forward.payments.spec["rate"] = {"max_offsets": 30}
    forward.send(*(event(n) for n in range(100)))
    forward.payments.run()
    by_partition: dict[int, list[int]] = {}
    for each in forward.seen():
        assert each.partition == 0
        by_partition.setdefault(each.origin[1], []).append(each.origin[2])
    assert sum(map(len, by_partition.values())) == 99
    assert all(offsets == sorted(offsets) for offsets in by_partition.values())


def test_view_that_is_grouped_goes_out_by_batch(forward: Forward) -> None:
    forward.payments.spec["transform"] = [
        {"view": "counted", "sql": "select who, count(*) as n from events group by who"}
    ]
    forward.to(from_="counted")
    forward.send(*(event(n, who="ab"[n % 2]) for n in range(10)))
    forward.payments.run()
    assert sorted((d["who"], d["n"]) for d in _values(forward.seen())) == [("a", 5), ("b", 5)]
    forward.send(event(11, who="c"))
    forward.payments.run()
    assert Counter(d["who"] for d in _values(forward.seen())) == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("how", ["split", "grouped", "without origin"])
def test_mode_that_does_not_hold_is_refused_before_the_start(forward: Forward, how: str) -> None:
    forward.to(guarantee="exactly-once-by-partition")
    if how == "split":
        forward.payments.spec["source"]["min_partitions"] = 8
    else:
        sql = "select max(id) as id from events" if how == "grouped" else "select id from events"
        forward.payments.spec["transform"] = [{"view": "other", "sql": sql}]
        forward.payments.spec["sinks"]["out"]["from"] = "other"
    with pytest.raises(SpecInvalid, match="cannot write by partition"):
        forward.payments.run()


def test_at_least_once_goes_through_sparks_own_sink(forward: Forward) -> None:
    forward.to(guarantee="at-least-once", key={"format": "json", "columns": ["id", "who"]}, headers="_kafka.headers")
    forward.payments.spec["source"]["topics"][forward.payments.topic]["kafka_columns"] = ["headers"]
    forward.send(*(event(n) for n in range(20)))
    forward.payments.run()
    seen = forward.seen()
    assert sorted(d["id"] for d in _values(seen)) == list(range(20))
    assert {json.loads(each.key or b"")["who"] for each in seen} == {f"w{n}" for n in range(20)}
    assert {name for each in seen for name, _ in each.headers} == {"trace"}


def test_topic_per_record_and_one_that_cannot_be_a_topic(forward: Forward) -> None:
    payments = forward.payments
    for name in "ab":
        payments.create(f"{payments.topic}-to-{name}", 1)
    payments.spec["transform"] = [
        {"view": "aimed", "sql": f"select *, concat('{payments.topic}-to', who) as target from events"}
    ]
    payments.spec["sinks"]["out"] = {"from": "aimed", "kafka": {"topic_column": "target", "columns": None}}
    payments.spec["sinks"]["out"]["kafka"].pop("columns")
    forward.send(event(1, who="-a"), event(2, who="-b"), event(3, who=" c"), event(4, who="-a"))
    payments.run()
    by_topic = {name: forward.seen(f"{payments.topic}-to-{name}") for name in "ab"}
    assert [[d["id"] for d in sorted(_values(by_topic[name]), key=lambda d: d["id"])] for name in "ab"] == [[1, 4], [2]]
    assert "target" not in _values(by_topic["b"])[0]
    (dead,) = payments.dead()
    assert (dead.stage, json.loads(dead.value or b"")["id"]) == ("sink", 3)
    assert "is no name of a topic" in dead.reason
    report = payments.verify()
    assert not report.findings
    assert report.unproven == ["sink 'out' writes to topics that its records chose"]


@pytest.mark.parametrize("guarantee", ["exactly-once", "exactly-once-by-batch", "at-least-once"])
def test_records_that_choose_a_topic_or_a_partition_that_is_not_there_die_and_no_other(
    forward: Forward, guarantee: str
) -> None:
    payments = forward.payments
    payments.create(f"{payments.topic}-to-a", 1)
    payments.create(f"{payments.topic}-to-b", 2)
    payments.spec["transform"] = [
        {
            "view": "aimed",
            "sql": f"select *, concat('{payments.topic}-to-', who) as target, id % 2 as which from events",
        }
    ]
    kafka = {"topic_column": "target", "partition": "which", "guarantee": guarantee}
    payments.spec["sinks"]["out"] = {"from": "aimed", "kafka": kafka}
    forward.send(event(0, who="a"), event(1, who="a"), event(2, who="none"), event(3, who="b"), event(4, who="b"))
    payments.run()
    found = {(name, d["id"]) for name in "ab" for d in _values(forward.seen(f"{payments.topic}-to-{name}"))}
    assert found == {("a", 0), ("b", 3), ("b", 4)}
    dead = {json.loads(d.value or b"")["id"]: (d.stage, d.reason) for d in payments.dead()}
    assert dead == {
        1: ("sink", "sink 'out': its partition is 1, the topic has 0 to 0"),
        2: ("sink", f"sink 'out': there is no topic '{payments.topic}-to-none'"),
    }
    payments.create(f"{payments.topic}-to-none", 1)  # while nothing runs, or between two batches
    forward.send(event(6, who="none"))
    payments.run()
    assert [d["id"] for d in _values(forward.seen(f"{payments.topic}-to-none"))] == [6]


@pytest.mark.parametrize("value", [{"format": "json"}, {"format": "avro", "wire": "raw"}])
def test_row_for_a_partition_that_the_topic_does_not_have_is_a_dead_letter(
    forward: Forward, value: dict[str, str]
) -> None:
    payments = forward.payments
    places = "case id when 1 then -1 when 2 then 2 when 3 then 4294967296 when 4 then null else 1 end"
    payments.spec["transform"] = [{"view": "placed", "sql": f"select *, {places} as which from events"}]
    forward.to(from_="placed", origin=True, partition="which", value=value)
    forward.send(*(event(n) for n in range(6)))
    payments.run()
    seen = forward.seen()
    assert len(seen) == 3
    assert [each.partition for each in seen].count(1) >= 2
    dead = {json.loads(each.value or b"")["id"]: each for each in payments.dead()}
    assert {(each.stage, each.error_class) for each in dead.values()} == {("sink", "out-of-range")}
    assert dead.keys() == {1, 2, 3}
    assert "its partition is 2, the topic has 0 to 1" in dead[2].reason
    assert payments.verify().findings == []


@pytest.mark.parametrize("guarantee", ["exactly-once-by-batch", "at-least-once"])
def test_partitions_that_a_topic_gets_while_it_runs_are_written_to(forward: Forward, guarantee: str) -> None:
    payments = forward.payments
    payments.spec["transform"] = [{"view": "placed", "sql": "select *, if(id < 3, 1, 3) as which from events"}]
    payments.spec["rate"]["max_offsets"] = 3
    forward.to(f"more-{uuid.uuid4().hex[:8]}", from_="placed", partition="which", guarantee=guarantee)
    heard, stop = Heard(), StopRequest()

    def grow(entry: Any, _seconds: float) -> None:
        heard.entries.append(entry)
        if len(heard.entries) == 1:
            client = connection.admin(payments.config)
            (grown,) = client.create_partitions([NewPartitions(forward.out, 4)]).values()
            grown.result(10)
            until(lambda: len(client.list_topics(forward.out, timeout=5).topics[forward.out].partitions) == 4)
            payments.send(*(json.dumps(event(n)).encode() for n in range(3, 6)), key=b"k")
        if sum(each.read for each in heard.entries) == 6:
            stop.ask()

    heard.batch_done = grow  # type: ignore[method-assign]
    payments.send(*(json.dumps(event(n)).encode() for n in range(3)), key=b"k")
    stream.run(payments.pipeline, watch=heard, stop=stop)
    assert sorted((d.partition, json.loads(d.value or b"")["id"]) for d in forward.seen()) == [
        *((1, n) for n in range(3)),
        *((3, n) for n in range(3, 6)),
    ]
    assert payments.dead() == []


@pytest.mark.parametrize("guarantee", ["exactly-once-by-partition", "exactly-once-by-batch", "at-least-once"])
def test_record_that_is_larger_than_the_topic_takes_is_a_dead_letter(forward: Forward, guarantee: str) -> None:
    payments = forward.payments
    small = f"{payments.topic}-small"
    payments.create(small, 1, **{"max.message.bytes": "2000"})
    forward.to(topic=small, origin=True, guarantee=guarantee)
    # Together they are larger than the topic takes at once; each alone is not.
    fits = [{"id": n, "who": "x" * 1750} for n in range(10)]
    forward.send(*fits, {"id": 13, "who": "x" * 2000}, event(14))
    payments.run()
    assert sorted(d["id"] for d in _values(forward.seen(small))) == [*range(10), 14]
    (dead,) = payments.dead()
    assert (dead.stage, dead.error_class, json.loads(dead.value or b"")["id"]) == ("sink", "too-large", 13)
    assert payments.verify().findings == []


def test_delete_goes_out_as_a_record_without_a_value(forward: Forward) -> None:
    read = forward.payments.spec["source"]["topics"][forward.payments.topic]
    read["value"]["tombstones"] = "delete"
    read["key"] = {"format": "string"}
    forward.to(key={"format": "string", "column": "_key"})
    forward.payments.send(json.dumps(event(1)).encode(), None, key=b"k1")
    forward.payments.run()
    assert [(each.key, each.value is None) for each in forward.seen()] == [(b"k1", False), (b"k1", True)]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_record_without_a_key_is_a_dead_letter_where_the_topic_is_compacted(forward: Forward, guarantee: str) -> None:
    payments = forward.payments
    payments.create(latest := f"{payments.topic}-latest", 1, **{"cleanup.policy": "compact"})
    forward.to(topic=latest, origin=True, guarantee=guarantee)
    with pytest.raises(SpecInvalid, match="compacted, and the sink gives its records no key"):
        payments.run()
    forward.to(topic=latest, origin=True, guarantee=guarantee, key={"format": "string", "column": "who"})
    forward.send(event(1), {"id": 2, "who": None}, event(3))
    payments.run()
    assert sorted(d["id"] for d in _values(forward.seen(latest))) == [1, 3]
    (dead,) = payments.dead()
    assert (dead.stage, dead.error_class, dead.reason) == (
        "sink", "missing-field", "sink 'out': its key is null, and the topic is compacted",
    )  # fmt: skip
    assert payments.verify().findings == []


def test_several_sinks_with_conditions_share_one_read(forward: Forward) -> None:
    payments = forward.payments
    payments.create(f"{payments.topic}-odd", 1)
    forward.to("even", where="id % 2 = 0")
    forward.to("odd", where="id % 2 = 1", topic=f"{payments.topic}-odd")
    payments.spec["sinks"]["lake"] = {"from": "events", "delta": {"path": "lake"}}
    forward.send(*(event(n) for n in range(21)))
    payments.run()
    assert sorted(d["id"] for d in _values(forward.seen())) == list(range(0, 21, 2))
    assert sorted(d["id"] for d in _values(forward.seen(f"{payments.topic}-odd"))) == list(range(1, 21, 2))
    assert sorted(row["id"] for row in payments.rows()) == list(range(21))
    assert not payments.verify().findings


def test_new_checkpoint_does_not_write_everything_again_by_accident(forward: Forward) -> None:
    forward.to()
    forward.send(event(1))
    forward.payments.run()
    forward.payments.spec["checkpoint"] = "another"
    with pytest.raises(TableOfAnotherQuery):
        forward.payments.run()
    forward.payments.run(accept=["table-of-another-query"])
    assert len(forward.seen()) == 2


def _values(seen: list[Seen]) -> list[Any]:
    return [json.loads(each.value or b"") for each in seen]


def _last_ranges(payments: Payments) -> Any:
    from penstock.checkpoint.home import Home
    from penstock.checkpoint.ledger import Ledger

    pipeline: Pipeline = payments.pipeline
    last = Ledger(Home.of(pipeline).ledger).last()
    assert last is not None
    return last.ranges
