"""What may happen to a record on its way, and whether anybody could still read it."""

from __future__ import annotations

import random

from penstock import record
from tests.samples.lab import (
    HEADER,
    Sample,
)

ANYWHERE = ["cut", "add", "change"]
HEADERS = ["magic", "unknown id", "id of another kind"]


def damaged(how: str, value: bytes, sample: Sample, chance: random.Random, others: dict[str, int]) -> bytes:
    match how:
        case "cut":
            return value[: chance.randrange(len(value))] if value else b"\xff"
        case "add":
            return value + chance.randbytes(chance.randint(1, 4))
        case "change":
            if len(value) <= sample.header:
                return value + b"\xff"
            at = chance.randrange(sample.header, len(value))
            return value[:at] + bytes([value[at] ^ chance.randint(1, 255)]) + value[at + 1 :]
        case "magic":
            return bytes([chance.randint(1, 255)]) + value[1:]
        case "unknown id":
            unknown = chance.choice([chance.randrange(10**7, 2**31), chance.randrange(2**31, 2**32), 0, 2**32 - 1])
            return b"\x00" + unknown.to_bytes(HEADER - 1, "big") + value[HEADER:]
        case "id of another kind":
            other = chance.choice([schema_id for kind, schema_id in others.items() if kind != sample.kind])
            return b"\x00" + other.to_bytes(HEADER - 1, "big") + value[HEADER:]
        case "indexes":
            return value[:HEADER] + wrong_indexes(sample.at, chance) + value[sample.header :]
    raise AssertionError(how)


def wrong_indexes(at: int, chance: random.Random) -> bytes:
    """Zig-zag numbers that do not lead to the message."""
    match chance.randrange(4):
        case 0:  # a negative count, and whatever
            return bytes([chance.randrange(1, 128, 2)]) + chance.randbytes(chance.randint(0, 4))
        case 1:  # another message of the file, or none
            return b"\x02" + bytes([2 * chance.choice([i for i in range(64) if i != at])])
        case 2:  # a message inside another
            return bytes([4, 2 * at, 2 * chance.randrange(64)])
    return chance.choice(
        [
            b"\x02\x01",  # a negative index
            b"\xfe\x01",  # a count of 127
            b"\xff" * 6,  # a number without end
            b"\x80\x80\x80\x80\x10",  # of more than 32 bits
            b"\x02\x80\x80\x80\x80\x10",
        ]
    )


def must_fail(how: str, value: bytes, original: bytes, sample: Sample) -> bool:
    """Whether nobody could take these bytes for a record; where they may be one, it is a record like any other."""
    if how in (*HEADERS, "indexes") or len(value) < sample.header:
        return True
    match sample.kind:
        case "avro":
            return how in ("cut", "add")
        case "json":
            return how == "cut" or (how == "add" and bool(value[len(original) :].strip(b" \t\r\n")))
    return not sample.parses(value[sample.header :])


EXPECTED = {
    "magic": {record.MALFORMED},
    "unknown id": {record.UNKNOWN_SCHEMA},
    "id of another kind": {record.INCOMPATIBLE_SCHEMA},
    "indexes": {record.MALFORMED, record.INCOMPATIBLE_SCHEMA},  # no message, or another one
    "cut": {record.MALFORMED, record.EMPTY_VALUE, record.MISSING_FIELD, record.WRONG_TYPE, record.OUT_OF_RANGE},
}


def ways_of(kind: str) -> list[str]:
    return ANYWHERE + (HEADERS if kind in FROM_REGISTRY else []) + (["indexes"] if kind == "protobuf" else [])


CLASSES = {
    record.EMPTY_VALUE,
    record.MALFORMED,
    record.WRONG_TYPE,
    record.OUT_OF_RANGE,
    record.MISSING_FIELD,
    record.UNKNOWN_SCHEMA,
    record.INCOMPATIBLE_SCHEMA,
}


FROM_REGISTRY = ["avro", "protobuf", "json"]
