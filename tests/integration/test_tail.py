"""`penstock tail` on a real broker and a real registry: decoded as the pipeline would, and nothing is left behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.cluster_documents import TAIL, checked
from tests.payments import Payments, good
from tests.processes import PENSTOCK
from typer.testing import CliRunner

from penstock.checkpoint.home import Home
from penstock.cli.main import app, register
from penstock.deadletters.dead_letter import DeadLetter, to_headers
from penstock.errors import BadArgument, TopicMissing
from penstock.kafka import admin, connection
from penstock.local.registry import LocalRegistry

Tail = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def tail(payments: Payments) -> Tail:
    """The messages that `penstock tail --json` prints."""
    register()

    def ask(*words: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(app, ["tail", str(payments.file), *words, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return [checked(json.loads(line), TAIL) for line in done.stdout.splitlines()]

    return ask


def put(payments: Payments, partition: int, *values: bytes | None, at: int = 0, topic: str = "", **more: Any) -> None:
    producer = connection.producer(payments.config)
    refused: list[object] = []
    for value in values:
        producer.produce(
            topic or payments.topic,
            value,
            partition=partition,
            timestamp=at,
            on_delivery=lambda error, _: refused.append(error) if error else None,
            **more,
        )
    assert producer.flush(30) == 0
    assert refused == []


def said(payments: Payments, *words: str, width: int = 120) -> str:
    register()
    done = CliRunner().invoke(
        app, ["tail", str(payments.file), *words], catch_exceptions=False, env={"COLUMNS": str(width)}
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def test_messages_are_decoded_by_the_spec_or_say_why_they_cannot_be(payments: Payments, tail: Tail) -> None:
    read = payments.spec["source"]["topics"][payments.topic]
    read["key"] = {"format": "string"}
    read["value"]["tombstones"] = "delete"
    put(payments, 0, good(1), b"{\x1b[31m", good(2, amount="much"), None, key=b"a-1", headers=[("trace", b"\xff")])
    first, broken, mistyped, deleted = tail()
    assert (first["partition"], first["offset"], first["key"]) == (0, 0, "a-1")
    assert first["value"]["payment_id"] == "p-1"
    assert first["value"]["amount"] == 12.5
    assert first["value"]["event_time"] == "2026-11-01T10:00:00Z"
    assert first["headers"] == [["trace", {"base64": "/w=="}]]
    assert (broken["error"]["class"], mistyped["error"]["class"]) == ("malformed", "wrong-type")
    assert "amount" in mistyped["error"]["reason"]
    assert (deleted["deleted"], deleted["value"], deleted["error"]) == (True, None, None)

    lines = said(payments)
    assert "\x1b" not in lines
    assert '"payment_id":"p-1"' in lines
    assert "! wrong-type: amount" in lines
    assert lines.splitlines()[3].endswith("a-1  deleted")
    assert max(map(len, said(payments, width=80).splitlines())) == 80
    assert "{\\x1b[31m" in said(payments, "--raw")

    assert not Home.of(payments.pipeline).path.exists()
    assert "penstock.reader" not in admin.groups(payments.config)


def test_newest_by_time_and_from_a_position_and_of_one_partition(payments: Payments, tail: Tail) -> None:
    hour_ago = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    minute = [hour_ago + timedelta(minutes=n) for n in range(9)]
    for n, moment in enumerate(minute):
        put(payments, n % 3, good(n), at=round(moment.timestamp() * 1000))

    def found(*words: str) -> list[str]:
        return [each["value"]["payment_id"] for each in tail(*words)]

    assert found("--last", "4") == ["p-5", "p-6", "p-7", "p-8"]
    assert found("--last", "0") == []
    assert found("--partition", "1") == ["p-1", "p-4", "p-7"]
    assert found("--partition", "2", "--from", "1") == ["p-5", "p-8"]
    assert sorted(found("--from", "earliest")) == [f"p-{n}" for n in range(9)]
    assert len(found("--from", "earliest", "--count", "5")) == 5
    assert found("--from", "latest") == []
    assert sorted(found("--from", minute[6].isoformat())) == ["p-6", "p-7", "p-8"]
    assert found("--from", "2100-01-01T00:00:00Z") == []
    for wrong in (("--from", "99"), ("--from", "soon"), ("--from", "1", "--last", "1")):
        with pytest.raises(BadArgument):
            tail(*wrong)
    with pytest.raises(TopicMissing):
        tail("--partition", "3")
    with pytest.raises(TopicMissing):
        tail("no-such-topic")
    payments.spec["source"]["topics"]["other"] = {"value": {"format": "string"}}
    with pytest.raises(BadArgument) as which:
        tail()
    assert payments.topic in str(which.value.cause)


def test_committed_messages_only_and_an_open_transaction_is_not_waited_for(payments: Payments, tail: Tail) -> None:
    put(payments, 0, good(0))
    producer = connection.producer(payments.config, transactional_id=f"tail-{payments.topic}")
    producer.init_transactions(30)
    for number, commits in ((1, True), (2, False), (3, True), (4, False)):
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(payments.topic, good(number), partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(payments.topic, good(5), partition=0)
    producer.flush(30)
    # Behind the last committed record: a marker, 20 aborted ones, their marker, an open transaction.
    assert [each["value"]["payment_id"] for each in tail("--last", "22")] == ["p-1"] * 2 + ["p-3"] * 20
    assert len(tail("--last", "100")) == 41
    producer.abort_transaction(30)


def test_topics_that_are_not_read_are_shown_as_they_are_and_dead_letters_with_their_reason(
    payments: Payments, tail: Tail
) -> None:
    letter = DeadLetter(
        b"k",
        b"{",
        [("trace", b"1")],
        payments.topic,
        2,
        7,
        0,
        0,
        "decode",
        "malformed",
        "ends \x1b[2J early",
        "p",
        "q",
        3,
    )
    put(payments, 0, letter.value, key=letter.key, headers=to_headers(letter), topic=f"{payments.topic}.DLT")
    put(payments, 0, b"\xff\xfe", topic=f"{payments.topic}.DLT")
    dead, other = tail(f"{payments.topic}.DLT")
    assert dead["dead_letter"] == {
        "pipeline": "p", "topic": payments.topic, "partition": 2, "offset": 7, "batch": 3, "stage": "decode",
        "class": "malformed", "reason": "ends \x1b[2J early", "schema_id": None,
    }  # fmt: skip
    assert (dead["key"], dead["value"], dead["headers"]) == ("k", "{", [["trace", "1"]])
    assert (other["dead_letter"], other["value"]) == (None, {"base64": "//4="})
    lines = said(payments, f"{payments.topic}.DLT")
    assert f"! decode, malformed: ends \\x1b[2J early ({payments.topic}-2 offset 7)" in lines
    assert "0xfffe" in lines


def test_avro_of_the_registry_is_decoded_and_the_checkpoint_keeps_nothing_of_it(
    payments: Payments, registry: LocalRegistry, tail: Tail
) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
        ],
    }
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))

    value = serialize(
        {"id": 1, "total": Decimal("9.90"), "tags": {"a": "b"}},
        SerializationContext(payments.topic, MessageField.VALUE),
    )
    payments.spec["registry"] = {"url": registry.url}
    payments.spec["source"]["topics"][payments.topic]["value"] = {"format": "avro"}
    payments.spec["contract"], payments.spec["transform"] = {}, []
    payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
    put(payments, 0, value, b"\x00\x7f\xff\xff\xff\x02", b"no header")
    good_one, unknown, plain = tail()
    assert good_one["value"] == {"id": 1, "total": 9.9, "tags": {"a": "b"}}
    assert good_one["schema_id"] is not None
    assert (unknown["error"]["class"], plain["error"]["class"]) == ("unknown-schema", "malformed")
    assert not Home.of(payments.pipeline).path.exists()


def test_following_shows_what_comes_and_ends_after_as_many_as_asked_for(payments: Payments) -> None:
    put(payments, 0, good(1))
    words = [PENSTOCK, "tail", str(payments.file), "--follow", "--last", "1", "--count", "3", "--json"]
    # No Java is to be found: none is needed.
    hidden = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=hidden) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        put(payments, 2, good(2), b"bad")
        rest = [json.loads(line) for line in following.stdout]
        assert following.wait(60) == 0
    assert first["value"]["payment_id"] == "p-1"
    assert [(each["partition"], each["offset"]) for each in rest] == [(2, 0), (2, 1)]
    assert (rest[0]["value"]["payment_id"], rest[1]["error"]["class"]) == ("p-2", "malformed")
