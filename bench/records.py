"""Records for the decode cases, written by libraries that are not ours: msgspec, fastavro, protobuf."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import fastavro
import msgspec
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from penstock.kafka import connection
from penstock.kafka.connection import Config
from penstock.registry.protobuf import message as protobuf_schema

FIELDS: dict[str, Any] = {
    "payment_id": {"type": "string", "required": True},
    "account": {"type": "string", "required": True},
    "amount": {"type": "double", "required": True},
    "currency": {"type": "string", "required": True},
    "status": {"type": "string", "required": True},
    "event_time": {"type": "bigint", "required": True},
    "country": "string",
}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        *({"name": n, "type": "string"} for n in ("payment_id", "account")),
        {"name": "amount", "type": "double"},
        *({"name": n, "type": "string"} for n in ("currency", "status")),
        {"name": "event_time", "type": "long"},
        {"name": "country", "type": ["null", "string"], "default": None},
    ],
}
PROTO = """
syntax = "proto3";
message Payment {
  string payment_id = 1; string account = 2; double amount = 3; string currency = 4; string status = 5;
  int64 event_time = 6; optional string country = 7;
}
"""
_LIMIT_S = 120  # for the last acknowledgements

Encode = Callable[[dict[str, Any]], bytes]


def produce(config: Config, topic: str, kind: str, count: int, bad: Fraction, headers: Sequence[bytes]) -> int:
    """Returns how many of them are bad. Raises when one was not acknowledged."""
    failed: list[str] = []

    def reported(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = connection.producer(
        config,
        enable_idempotence="true",
        compression_type="lz4",
        queue_buffering_max_messages="100000",
        linger_ms="50",
    )
    broken = 0
    for value, is_bad in values(kind, count, bad, headers):
        broken += is_bad
        while True:
            try:
                producer.produce(topic, value, on_delivery=reported)
            except BufferError:
                producer.poll(0.2)
            else:
                break
        producer.poll(0)
    left = producer.flush(_LIMIT_S)
    if left or failed:
        raise SystemExit(f"{topic}: {left + len(failed):,} of {count:,} records not acknowledged: {failed[:1]}")
    return broken


def values(kind: str, count: int, bad: Fraction, headers: Sequence[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Bad ones lack their last byte, which in every format is seen last and cannot be missed: the dearest fault."""
    encode, chance, every = _encoder(kind), random.Random(1), int(1 / bad) if bad else 0
    for number in range(count):
        value = headers[number % len(headers)] + encode(_payment(number, chance))
        is_bad = bool(every) and number % every == 0
        yield value[:-1] if is_bad else value, is_bad


def variants(count: int) -> list[str]:
    """Schemas that write the same bytes and are not the same: a default differs. The first one has none."""
    made = [json.dumps(AVRO)]
    for number in range(1, count):
        fields = [dict(f) for f in AVRO["fields"]]
        fields[0]["default"] = f"none-{number}"
        made.append(json.dumps({**AVRO, "fields": fields}))
    return made


def _encoder(kind: str) -> Encode:
    if kind == "json":
        return msgspec.json.encode
    if kind == "protobuf":
        message = GetMessageClass(protobuf_schema.from_text(PROTO).descriptor())
        return lambda payment: bytes(message(**payment).SerializeToString())
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
