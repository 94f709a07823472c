"""Records for the decode cases, written by libraries that are not ours: msgspec, fastavro, protobuf."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import msgspec
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from bench.decode import AVRO, PROTO
from penstock.kafka import connection
from penstock.schema.protobuf import message as protobuf_schema

Encode = Callable[[dict[str, Any]], bytes]


def produce(bootstrap: str, topic: str, case: str, count: int, ids: list[int]) -> None:
    producer = connection.producer(
        connection.connect_to(bootstrap), queue_buffering_max_messages="1000000", linger_ms="50"
    )
    for value in values(case, count, ids):
        while True:
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.2)
            else:
                break
        producer.poll(0)
    assert producer.flush(60) == 0


def values(case: str, count: int, ids: list[int]) -> Iterator[bytes]:
    """`-bad-10` in the name of a case makes every tenth value end too early."""
    encode, chance, bad = _encoder(case), random.Random(1), case.endswith("-bad-10")
    for number in range(count):
        value = encode(_payment(number, chance))
        if ids:
            value = b"\0" + ids[number % len(ids)].to_bytes(4, "big") + value
        yield value[: len(value) // 2] if bad and number % 10 == 0 else value


def variants(count: int) -> list[str]:
    """Schemas that write the same bytes and are not the same: a default differs."""
    made = []
    for number in range(count):
        fields = [dict(f) for f in AVRO["fields"]]  # type: ignore[call-overload]
        fields[0]["default"] = f"none-{number}"
        made.append(json.dumps({**AVRO, "fields": fields}))
    return made


def _encoder(case: str) -> Encode:
    if case.startswith("json"):
        return msgspec.json.encode
    if case.startswith("protobuf"):
        kind = GetMessageClass(protobuf_schema.from_text(PROTO).descriptor())
        return lambda payment: bytes(kind(**payment).SerializeToString())
    schema = fastavro.parse_schema(AVRO)

    def avro(payment: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, payment)
        return out.getvalue()

    return avro


def _payment(number: int, chance: random.Random) -> dict[str, Any]:
    return {
        "payment_id": f"p-{number:012}",
        "account": f"account-{chance.randrange(10_000)}",
        "amount": chance.randrange(1, 10_000_000) / 100,
        "currency": chance.choice(("EUR", "USD", "GBP")),
        "status": chance.choice(("SETTLED", "PENDING", "VOID")),
        "event_time": 1_790_000_000_000 + number,
        "country": chance.choice(("DE", "FR", None)),
    }
