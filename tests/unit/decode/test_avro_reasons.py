"""Each way in which a record can be wrong has its class, and a reason that says where and what."""

from __future__ import annotations

import struct
import time
import tracemalloc
from typing import Any

import pytest
from avro_strategies import binaries, framed, registry, text_of

from penstock import record
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.avro.decoder import AvroDecoder
from penstock.record import Failure
from penstock.registry.client.registry import RegisteredSchema, RegistryUnreachable

HUGE = b"\xfe" + b"\xff" * 8 + b"\x01"  # 2**63 - 1
LEAST = b"\xff" * 9 + b"\x01"  # -2**63
LONG = int.from_bytes(b"\x01" * 20)
BILLIONS = b"\x80\xa8\xd6\xb9\x07"  # 1 000 000 000


def of(kind: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}


def decode(kind: Any, *values: bytes | None) -> Decoded:
    return AvroDecoder(text_of(of(kind)))(binaries(list(values)))


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
STRINGS = {"type": "array", "items": "string"}
NAMED = {"type": "array", "items": {**of("string"), "name": "Inner"}}

WIDE = "x: at byte 0 a number has more than 64 bits:"
UNFIT = "does not fit the reader schema:"
CUT = "x: the record ends too early: at byte"


@pytest.mark.parametrize(
    ("kind", "value", "error_class", "reason"),
    [
        ("int", b"\x80", record.MALFORMED, f"{CUT} 0 a whole number should follow, 1 left"),
        (
            "int",
            b"\x02\x00\x00",
            record.MALFORMED,
            "the record: 2 bytes are left over after its last field, from byte 1 on",
        ),
        ("int", b"\x02\x00", record.MALFORMED, "the record: 1 byte is left over after its last field, from byte 1 on"),
        ("int", b"\x80\x80\x80\x80\x20", record.MALFORMED, "x: 4294967296 does not fit an int"),
        ("long", b"\xff" * 10, record.MALFORMED, f"{WIDE} {'ff' * 10}"),
        ("long", b"\xff" * 9 + b"\x02", record.MALFORMED, f"{WIDE} {'ff' * 9}02"),
        ("boolean", b"\x02", record.MALFORMED, "x: a boolean is byte 0 or 1, not 0x02"),
        ("float", b"\x02\x00", record.MALFORMED, f"{CUT} 0 4 bytes should follow, 2 left"),
        ("double", b"\x02\x00", record.MALFORMED, f"{CUT} 0 8 bytes should follow, 2 left"),
        ("string", b"\x08abc", record.MALFORMED, f"{CUT} 1 4 bytes should follow, 3 left"),
        ("string", b"\x01", record.MALFORMED, "x: the length -1 before byte 1 is negative"),
        ("string", LEAST, record.MALFORMED, "x: the length -9223372036854775808 before byte 10 is negative"),
        ("string", HUGE + b"a", record.MALFORMED, f"{CUT} 10 9223372036854775807 bytes should follow, 1 left"),
        ("string", b"\x06a\xffc", record.MALFORMED, "x: invalid UTF-8: byte 0xff at position 1 of the text"),
        ("string", b"\x06\xed\xa0\x80", record.MALFORMED, "x: invalid UTF-8: byte 0xed at position 0 of the text"),
        (COLOUR, b"\x04", record.MALFORMED, "x: symbol 2 of 2 in the enum"),
        (COLOUR, b"\x01", record.MALFORMED, "x: symbol -1 of 2 in the enum"),
        (["null", "int"], b"\x04", record.MALFORMED, "x: branch 2 of a union that has 2"),
        (["null", "int"], b"\x01", record.MALFORMED, "x: branch -1 of a union that has 2"),
        (MONEY, b"\x04\x27\x10", record.OUT_OF_RANGE, "x: 10000e-2 does not fit decimal(4,2)"),
        (MONEY, b"\x04\xd8\xf0", record.OUT_OF_RANGE, "x: -10000e-2 does not fit decimal(4,2)"),
        (MONEY, b"\x28" + b"\x01" * 20, record.OUT_OF_RANGE, f"x: {LONG}e-2 does not fit decimal(4,2)"),
        (MONEY, b"\x00", record.MALFORMED, "x: a decimal of no bytes"),
        (MILLIS, b"\x80\x80\xc8\xca\xfc\xba\x39", None, None),
        (MILLIS, HUGE, record.OUT_OF_RANGE, "x: 9223372036854775807 is not a time in the years 1 to 9999"),
        (DATE, b"\xfe\xff\xff\xff\x0f", record.OUT_OF_RANGE, "x: 2147483647 is not a date in the years 1 to 9999"),
        (
            STRINGS,
            b"\x04\x02a\x08b",
            record.MALFORMED,
            "x[1]: the record ends too early: at byte 4 4 bytes should follow, 1 left",
        ),
        (
            STRINGS,
            b"\x02\x02a\x02\x02\xff\x00",
            record.MALFORMED,
            "x[1]: invalid UTF-8: byte 0xff at position 0 of the text",
        ),
        (
            NAMED,
            b"\x04\x02a\x02\xff\x00",
            record.MALFORMED,
            "x[1].x: invalid UTF-8: byte 0xff at position 0 of the text",
        ),
        (
            {"type": "map", "values": "int"},
            b"\x02\x02k\x80",
            record.MALFORMED,
            "x[0]: the record ends too early: at byte 3 a whole number should follow, 1 left",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(kind: Any, value: bytes, error_class: str | None, reason: str) -> None:
    decoded = decode(kind, value)
    expected = {} if error_class is None else {0: Failure(error_class, reason)}
    assert decoded.failures == expected


@pytest.mark.parametrize("count", [HUGE, LEAST + b"\x00", BILLIONS])
@pytest.mark.parametrize(
    "kind",
    [
        STRINGS,
        {"type": "map", "values": "long"},
        {"type": "array", "items": "double"},
        {"type": "array", "items": STRINGS},
    ],
)
@pytest.mark.parametrize("rows", [1, 200])
def test_a_claim_of_billions_of_items_or_bytes_costs_neither_time_nor_memory(
    kind: Any, count: bytes, rows: int
) -> None:
    tracemalloc.start()
    begun = time.process_time()
    decoded = decode(kind, *[count + b"\x02" * 50] * rows)
    assert time.process_time() - begun < 5
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    assert len(decoded.failures) == rows
    assert "items, but only" in decoded.failures[0].reason


def test_a_claim_about_items_without_bytes_in_a_field_nobody_reads_is_no_loop() -> None:
    writer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": {"type": "array", "items": "null"}}, {"name": "x", "type": "int"}],
    }
    decoded = AvroDecoder(text_of(of("int")), registry({1: writer}))(binaries([framed(1, HUGE + b"\x00\x06")]))
    assert decoded.failures == {}
    assert decoded.columns[0].to_pylist() == [3]


def test_a_dropped_field_that_contains_itself_is_skipped_and_refused_only_when_too_deep() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    writer = {**of("int"), "fields": [{"name": "list", "type": node}, {"name": "x", "type": "int"}]}
    decoder = AvroDecoder(text_of(of("int")), registry({1: writer}))
    decoded = decoder(binaries([framed(1, b"\x02" * depth + b"\x00\x06") for depth in (0, 1, 100, 100_000)] * 30))
    assert decoded.columns[0].to_pylist() == [3, 3, 3, None] * 30
    assert decoded.failures[3] == Failure(record.MALFORMED, "list.next: nested too deeply")


@pytest.mark.parametrize(
    ("value", "error_class", "reason"),
    [
        (None, record.NULL_VALUE, "the value is null"),
        (b"", record.EMPTY_VALUE, "the value is empty (0 bytes)"),
        (b"\x00\x00\x01", record.MALFORMED, "3 bytes are too short for a schema id"),
        (b"\x00", record.MALFORMED, "1 byte is too short for a schema id"),
        (b'{"x":1}', record.MALFORMED, "does not begin with the magic byte 0 but with 0x7b"),
        (framed(9, b"\x02"), record.UNKNOWN_SCHEMA, "the registry has no schema 9"),
        (framed(2**32 - 1, b"\x02"), record.UNKNOWN_SCHEMA, "the registry has no schema 4294967295"),
        (
            framed(2, b"\x02"),
            record.INCOMPATIBLE_SCHEMA,
            f"schema 2 {UNFIT} x: written as boolean, which cannot be read as int",
        ),
        (
            framed(3, b"\x02"),
            record.INCOMPATIBLE_SCHEMA,
            f"schema 3 {UNFIT} x: not written, and the reader schema has no default for it",
        ),
        (framed(4, b"\x02"), record.INCOMPATIBLE_SCHEMA, "schema 4 is PROTOBUF, not AVRO"),
        (
            framed(5, b"\x02"),
            record.INCOMPATIBLE_SCHEMA,
            "schema 5 is not an Avro schema: R.x: there is no type 'nonsense'",
        ),
        (framed(1, b""), record.MALFORMED, f"{CUT} 5 a whole number should follow, 0 left"),
    ],
)
def test_a_value_that_names_no_usable_schema_says_which(value: bytes | None, error_class: str, reason: str) -> None:
    lookup = registry(
        {1: of("int"), 2: of("boolean"), 3: {"type": "record", "name": "R", "fields": []}, 5: of("nonsense")}
    )

    def known(schema_id: int) -> RegisteredSchema | None:
        return RegisteredSchema(4, "PROTOBUF", "message R {}") if schema_id == 4 else lookup(schema_id)

    fine = framed(1, b"\x04")
    decoded = AvroDecoder(text_of(of("int")), known)(binaries([fine, value, fine]))
    assert decoded.failures == {1: Failure(error_class, reason)}
    assert decoded.columns[0].to_pylist() == [2, None, 2]
    assert decoded.schema_ids is not None
    named = value is not None and len(value) >= 5 and value[0] == 0 and value[1] < 0x80
    assert decoded.schema_ids.to_pylist()[1] == (struct.unpack(">i", value[1:5])[0] if named and value else None)


def test_a_registry_that_cannot_be_asked_stops_the_batch() -> None:
    def lookup(_: int) -> RegisteredSchema | None:
        raise RegistryUnreachable("connection refused")

    decoder = AvroDecoder(text_of(of("int")), lookup)
    assert decoder(binaries([None, b"x"])).failures.keys() == {0, 1}  # nobody had to be asked
    with pytest.raises(RegistryUnreachable):
        decoder(binaries([framed(1, b"\x02")]))


def test_an_id_is_asked_for_once_and_an_unknown_one_in_every_batch() -> None:
    asked: list[int] = []
    known = {1: of("int")}

    def lookup(schema_id: int) -> RegisteredSchema | None:
        asked.append(schema_id)
        return registry(known)(schema_id)

    decoder = AvroDecoder(text_of(of("int")), lookup)
    batch = binaries([framed(1, b"\x02"), framed(2, b"\x04"), framed(1, b"\x02"), framed(2, b"\x04")])
    assert decoder(batch).failures.keys() == {1, 3}
    known[2] = of("long")  # an id that is registered later, but does not fit an int
    assert {f.error_class for f in decoder(batch).failures.values()} == {record.INCOMPATIBLE_SCHEMA}
    decoder(batch)
    assert sorted(asked) == [1, 2, 2]
