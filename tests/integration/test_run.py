"""`run` on real Kafka and real Spark: what comes out, and that `verify` proves it."""

from __future__ import annotations

import gc
import json
import time
import weakref
from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.payments import Heard, Payments, good, judge

from penstock import record
from penstock.batch import run
from penstock.errors import (
    NotWritable,
    ReferenceMissing,
    RuleStopped,
    SinkFailed,
    StepFailed,
    TopicMissing,
)
from penstock.kafka import connection
from penstock.lifecycle import stream
from penstock.local.payments import POISON
from penstock.plan import build
from penstock.source.topics import TopicWatch
from penstock.spec.model import Pipeline

pytestmark = pytest.mark.usefixtures("spark")


def test_every_record_ends_in_the_table_or_as_a_dead_letter_and_verify_says_complete(payments: Payments) -> None:
    sent = payments.produce(3000, poison=0.05)
    heard = Heard()
    payments.run(watch=heard)
    assert len(heard.entries) >= 3  # the cap of 1,000 offsets made several batches
    assert judge(payments, [sent]) == []
    report = payments.verify()
    assert report.complete, report.findings
    assert report.proof == {"lake": "by offset"}
    assert report.records == 3000
    assert report.dead == len(sent.poison())
    # Every kind of poison died for the reason it was made for.
    died = {letter.position: letter.error_class for letter in payments.dead()}
    for row in sent.poison().to_pylist():
        assert died[row["topic"], row["partition"], row["offset"]] == POISON[row["kind"]], row


def test_reasons_name_the_field_the_value_and_what_was_expected(payments: Payments) -> None:
    payments.send(
        good(1, amount="much"),
        good(2, account=...),
        good(3, amount=-5),
        good(4, merchant={"name": 7}),
        good(5, amount=1e15),
        good(6, unknown={"deep": [1]}),
        None,
        b"",
    )
    payments.run()
    reasons = Counter((d.error_class, d.reason) for d in payments.dead())
    assert set(reasons) == {
        (record.WRONG_TYPE, "merchant.name: expected string, got int; the value is 7"),
        (record.MISSING_FIELD, "account: required, but absent"),
        (record.BROKEN_RULE, "positive: not true: amount > 0; amount = -5.00"),
        (record.OUT_OF_RANGE, "amount: 1000000000000000.0 is not a value that fits decimal(12,2)"),
        (record.NULL_VALUE, "the value is null"),
        (record.EMPTY_VALUE, "the value is empty (0 bytes)"),
        (record.WRONG_TYPE, 'amount: "much" is not a number'),
    }
    assert [r["payment_id"] for r in payments.rows()] == ["p-6"]


def test_awkward_records_are_dead_letters_or_rows_and_nothing_is_lost(payments: Payments) -> None:
    """A dead letter has the bytes, headers and origin of its record."""
    value = b'{"payment_id": "p", "amount": \xff\x00}'
    headers = [("trace", b"\x00\xfe"), ("trace", b"again"), ("empty", b""), ("none", None)]
    payments.send(value, key=b"\x80key", headers=headers)
    deep = b'{"payment_id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    payments.send(
        good(1, tags=["x" * 1_000_000]),
        good(2, payment_id="invalid").replace(b"invalid", b"inv\xffalid"),
        good(3, amount=10**30),
        deep,
        good(4, payment_id="nul \x00 and \U0001f600"),
        b'{"payment_id": "\\ud800"}',
        b"\xef\xbb\xbf" + good(5),
        good(6) + good(7),
        b"\n" + good(8).replace(b",", b",\n"),
    )
    payments.run()
    assert {r["payment_id"] for r in payments.rows()} == {"p-1", "nul \x00 and \U0001f600", "p-8"}
    assert len(payments.dead()) == 7
    [letter] = [each for each in payments.dead() if each.value == value]
    assert (letter.key, letter.headers) == (b"\x80key", headers)
    assert (letter.topic, letter.offset, letter.batch, letter.pipeline) == (payments.topic, 0, 0, "payments")
    assert (letter.stage, letter.error_class) == (record.DECODE, record.MALFORMED)
    assert letter.timestamp_ms > 1_700_000_000_000
    assert payments.verify().complete


def test_an_empty_topic_ends_at_once_and_records_that_come_later_are_processed(payments: Payments) -> None:
    heard = Heard()
    payments.run(watch=heard)
    assert sum(entry.read for entry in heard.entries) == 0
    payments.send(good(1))
    payments.run()
    assert len(payments.rows()) == 1
    assert payments.verify().complete


def test_a_second_run_goes_on_where_the_first_one_ended(payments: Payments) -> None:
    first = payments.produce(900, poison=0.02, seed=1)
    payments.run()
    second = payments.produce(900, poison=0.02, seed=2)
    payments.run()
    assert judge(payments, [first, second]) == []
    assert payments.verify().complete


def test_what_a_run_had_open_is_let_go_of_when_it_is_over(payments: Payments, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine keeps what it was given to call; a process that runs again and again must not keep clients with it."""
    made: list[weakref.ref[TopicWatch]] = []
    assembly = build.assembly

    def seen(*about: Any, **more: Any) -> run.Assembly:
        parts = assembly(*about, **more)
        made.append(weakref.ref(parts.topics))
        return parts

    monkeypatch.setattr(build, "assembly", seen)
    payments.produce(10)
    payments.run()
    gc.collect()
    assert [known() for known in made] == [None]


def test_start_latest_skips_what_was_there_and_a_changed_start_is_reported(payments: Payments) -> None:
    payments.spec["source"]["start"] = "latest"
    payments.send(good(1))
    payments.run()
    payments.send(good(2))
    payments.run()
    assert [r["payment_id"] for r in payments.rows()] == ["p-2"]
    payments.spec["source"]["start"] = "earliest"
    heard = Heard()
    payments.run(watch=heard)
    assert len(heard.warnings) == 1
    assert "`start: earliest` has no effect" in heard.warnings[0]
    assert [r["payment_id"] for r in payments.rows()] == ["p-2"]
    payments.send(good(3))
    payments.run()
    heard = Heard()
    payments.run(watch=heard)  # also after a batch ran under the changed spec
    assert "this pipeline began with `latest`" in heard.warnings[0]


def test_rules_can_drop_and_tombstones_can_be_dropped_and_both_are_counted(payments: Payments) -> None:
    payments.spec["contract"]["payments"] += [
        {"name": "known-currency", "rule": "currency in ('EUR')", "otherwise": "drop"}
    ]
    payments.spec["source"]["topics"][payments.topic]["value"]["tombstones"] = "drop"
    payments.send(good(1), good(2, currency="XXX"), None, good(3, amount=-1, currency="XXX"))
    payments.run()
    report = payments.verify()
    assert report.complete, report.findings
    assert (report.dropped["known-currency"], report.dropped["!tombstone"], report.dead) == (1, 1, 1)


def test_a_stop_rule_stops_before_anything_of_the_batch_is_written(payments: Payments) -> None:
    payments.spec["contract"]["payments"] = [{"name": "sane", "rule": "amount < 1000", "otherwise": "stop"}]
    payments.send(good(1), good(2, amount=5000))
    with pytest.raises(RuleStopped) as stopped:
        payments.run()
    assert "payments.sane" in stopped.value.what
    assert "amount = 5000.00" in stopped.value.what
    assert not list((payments.directory / "lake" / "_delta_log").glob("*.json"))
    payments.spec["contract"]["payments"][0]["otherwise"] = "dead-letter"
    payments.run()
    assert len(payments.rows()) == 1
    assert payments.verify().complete


def test_kafka_columns_are_in_the_view_when_asked_for(payments: Payments) -> None:
    payments.spec["source"]["topics"][payments.topic]["kafka_columns"] = ["key", "value", "headers", "timestamp_type"]
    payments.spec["transform"][0]["sql"] = "select payment_id, _kafka from payments"
    payments.spec["sinks"]["lake"]["delta"] = {"path": "lake"}
    at = int(time.time() * 1000) - 60_000
    producer = connection.producer(payments.config)
    producer.produce(payments.topic, good(1), b"k", partition=2, timestamp=at, headers=[("h", b"v")])
    assert producer.flush(10) == 0
    payments.run()
    [row] = payments.rows()
    kafka = row["_kafka"]
    assert (kafka["key"], kafka["value"]) == (b"k", good(1))
    assert (kafka["topic"], kafka["partition"], kafka["offset"]) == (payments.topic, 2, 0)
    assert kafka["timestamp"].timestamp() * 1000 == at
    assert kafka["headers"] == [{"key": "h", "value": b"v"}]
    assert kafka["timestamp_type"] == 0


def test_two_topics_and_two_sinks_share_one_batch(payments: Payments) -> None:
    other = f"{payments.topic}-refunds"
    payments.create(other, 2)
    payments.create(f"{other}.DLT")
    schema = {"fields": {"payment_id": {"type": "string", "required": True}, "why": "string"}}
    payments.spec["source"]["topics"][other] = {"view": "refunds", "value": {"format": "json", "schema": schema}}
    payments.spec["sinks"]["back"] = {"from": "refunds", "delta": {"path": "refunds"}}
    sent = payments.produce(800, poison=0.05)
    payments.send(b'{"payment_id": "r-1", "why": "late"}', b"{}", topic=other)
    payments.run()
    assert len(DeltaTable(str(payments.directory / "refunds")).to_pyarrow_table()) == 1
    assert len(payments.rows()) == len(sent.kept())
    dead = Counter(letter.topic for letter in payments.dead())
    assert dead == {payments.topic: len(sent.poison()), other: 1}
    report = payments.verify()
    assert report.complete, report.findings


def test_the_same_pipeline_in_python_runs(payments: Payments) -> None:
    made = Pipeline.model_validate(payments.spec).at(payments.directory)
    assert made == payments.pipeline
    payments.send(good(1))
    stream.run(made, until_caught_up=True)
    assert len(payments.rows()) == 1


def test_a_missing_topic_is_an_error_that_says_which_command_makes_it(payments: Payments) -> None:
    settings = payments.spec["source"]["topics"].pop(payments.topic)
    payments.spec["source"]["topics"]["nowhere"] = settings
    with pytest.raises(TopicMissing) as missing:
        payments.run()
    assert missing.value.facts == {"missing": ["nowhere"]}
    assert "penstock apply" in str(missing.value.next_command)


def test_a_missing_environment_variable_is_an_error(payments: Payments) -> None:
    payments.spec["kafka"]["bootstrap"] = "${env:PENSTOCK_TEST_NOT_SET}"
    with pytest.raises(ReferenceMissing) as missing:
        payments.run()
    assert "PENSTOCK_TEST_NOT_SET" in missing.value.what


def test_sql_that_does_not_resolve_is_an_error_before_anything_is_read(payments: Payments) -> None:
    payments.spec["transform"][0]["sql"] = "select nothing_like_it from payments"
    payments.send(good(1))
    with pytest.raises(StepFailed) as failed:
        payments.run()
    assert failed.value.facts == {"view": "settled"}
    assert "nothing_like_it" in str(failed.value.cause)
    assert not (payments.home / "spark" / "offsets").exists()


@pytest.mark.parametrize("part", ["checkpoint", "sink"])
def test_a_place_that_cannot_be_written_is_an_error(payments: Payments, part: str) -> None:
    (payments.directory / "file").write_text("not a directory")
    if part == "checkpoint":
        payments.spec["checkpoint"] = "file/home"
    else:
        payments.spec["sinks"]["lake"]["delta"]["path"] = "file/lake"
    with pytest.raises(NotWritable):
        payments.run()


def test_a_schema_of_a_thousand_columns_is_decoded(payments: Payments) -> None:
    fields = {f"c{n}": "bigint" for n in range(1000)}
    topic = payments.spec["source"]["topics"][payments.topic]
    topic["value"]["schema"] = {"fields": fields}
    payments.spec["contract"], payments.spec["transform"] = {}, []
    payments.spec["sinks"]["lake"] = {"from": "payments", "delta": {"path": "lake"}}
    payments.send(json.dumps({name: n for n, name in enumerate(fields)}).encode(), b'{"c999": "x"}')
    payments.run()
    [row] = payments.rows()
    assert (row["c0"], row["c999"]) == (0, 999)
    assert len(payments.dead()) == 1


def test_a_dead_letter_too_large_for_its_topic_is_written_once_there_is_room(
    payments: Payments,
) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    payments.create(f"{payments.topic}.small", **{"max.message.bytes": "100000"})
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.small"}}
    payments.send(b"{" + b"x" * 200_000, good(1))
    with pytest.raises(SinkFailed) as refused:
        payments.run()
    assert "max.message.bytes" in str(refused.value.next_command)
    room = ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, f"{payments.topic}.small", incremental_configs=[room])
    client = connection.admin(payments.config)
    [changed] = client.incremental_alter_configs([topic]).values()
    changed.result(10)
    payments.run()
    assert (len(payments.dead()), len(payments.rows())) == (1, 1)
    assert payments.verify().complete


def test_a_rule_may_have_any_name_and_a_record_for_which_it_cannot_be_computed_breaks_it(payments: Payments) -> None:
    names = ["read", "passed", "dead_at", "count_1"]
    payments.spec["contract"]["payments"] = [
        *({"name": name, "rule": f"amount <> {n}"} for n, name in enumerate(names, 1)),
        {"name": "numbered", "rule": "cast(account as int) / (amount - 5) > 0"},
    ]
    payments.send(
        good(1, account="12", amount=1),
        good(2, account="12", amount=4),
        good(3, account="12"),
        good(4, account="twelve"),
        good(5, account="12", amount=5),
    )
    payments.run()
    assert [row["payment_id"] for row in payments.rows()] == ["p-3"]
    broken = sorted(d.reason for d in payments.dead())
    assert [reason.split(":")[0] for reason in broken] == ["count_1", "numbered", "numbered", "read"]
    assert sorted(reason.split("; ")[1] for reason in broken[1:3]) == ["account = 12", "account = twelve"]
    assert payments.verify().complete


def test_a_batch_too_large_to_locate_its_dead_writes_the_same_dead_letters(
    payments: Payments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_LOCATED", 0)
    sent = payments.produce(900, poison=0.1)
    payments.run()
    assert judge(payments, [sent]) == []
    assert payments.verify().complete


def test_an_interval_runs_batches_until_it_is_told_to_stop(payments: Payments) -> None:
    payments.spec["trigger"] = {"every": "500ms"}
    stop, heard = stream.StopRequest(), Heard()
    heard.batch_done = lambda entry, _: (heard.entries.append(entry), stop.ask() if entry.read else None)  # type: ignore[method-assign]
    payments.send(good(1))
    stream.run(payments.pipeline, watch=heard, stop=stop)
    assert len(payments.rows()) == 1
    assert payments.verify().complete


def test_available_now_reads_what_is_there_and_ends(payments: Payments) -> None:
    payments.spec["trigger"] = "available-now"
    payments.send(*(good(number) for number in range(3)))
    stream.run(payments.pipeline)
    assert len(payments.rows()) == 3
    assert payments.verify().complete


def test_rule_over_headers_has_them_also_when_dead_letters_are_made(payments: Payments) -> None:
    topic = payments.spec["source"]["topics"][payments.topic]
    topic["kafka_columns"] = ["header_map"]
    rule = {"name": "traced", "rule": "_kafka.header_map['trace'] is not null"}
    payments.spec["contract"] = {"payments": [rule]}
    payments.spec["transform"] = [{"view": "settled", "sql": "select * except (_kafka) from payments"}]
    payments.spec["sinks"] = {"lake": {"from": "settled", "delta": {"path": "lake"}}}
    payments.send(good(1), headers=[("trace", b"1")])
    payments.send(good(2), b"{")
    payments.run()
    assert [row["payment_id"] for row in payments.rows()] == ["p-1"]
    assert sorted(letter.error_class for letter in payments.dead()) == ["broken-rule", "malformed"]


def test_what_was_accepted_is_for_the_first_batch_only_also_when_a_later_one_comes_again(payments: Payments) -> None:
    payments.spec["transform"] = [{"view": "settled", "sql": "select *, cast(account as int) as n from payments"}]
    payments.spec["sinks"] = {"lake": {"from": "settled", "delta": {"path": "lake"}}}
    payments.spec["rate"]["max_offsets"] = 3
    payments.send(*(good(n, account=str(n)) for n in range(3)))
    payments.send(good(3, account="none"))
    heard = Heard()
    payments.run(accept=["batch-unbalanced"], watch=heard)
    assert [entry.accepted for entry in heard.entries] == [["batch-unbalanced"], *[[]] * (len(heard.entries) - 1)]
    assert len(heard.entries) > 1
    assert [letter.stage for letter in payments.dead()] == ["transform"]
