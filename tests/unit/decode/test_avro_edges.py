"""Schemas that evolve, one rule at a time, and batches of odd shapes."""

from __future__ import annotations

import pickle
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_rows import rows
from avro_strategies import binaries, framed, registry, text_of, written

from penstock import record
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.avro import decoder as avro
from penstock.decode.avro.decoder import AvroDecoder, struct_of
from penstock.record import Failure
from penstock.registry.client.schema import RegisteredSchema


def of(*kinds: Any, name: str = "R", **more: Any) -> Any:
    return {"type": "record", "name": name, "fields": [field("xyz"[i], kind) for i, kind in enumerate(kinds)], **more}


def field(name: str, kind: Any, **more: Any) -> Any:
    return {"name": name, "type": kind, **more}


def record_of(*fields: Any, name: str = "R") -> Any:
    return {"type": "record", "name": name, "fields": list(fields)}


def read(writer: Any, reader: Any, *values: Any) -> Decoded:
    decoder = AvroDecoder(text_of(reader), registry({7: writer}))
    return decoder(binaries([framed(7, written(writer, value)) for value in values]))


def column(writer: Any, reader: Any, *values: Any) -> list[Any]:
    decoded = read(writer, reader, *values)
    assert decoded.failures == {}
    found: list[Any] = decoded.columns[0].to_pylist()
    return found


def enum(*symbols: str, name: str = "E", **more: Any) -> Any:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def decimal(precision: int, scale: int) -> Any:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
DATE = {"type": "int", "logicalType": "date"}
SECOND = {"member0": None, "member1": {"x": 1}}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", -5, -5),
        ("int", "float", 2**24 + 1, float(np.float32(2**24 + 1))),
        ("long", "double", 2**53 + 1, float(2**53)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "né", "né".encode()),
        ("bytes", "string", b"n\xc3\xa9", "né"),
        (decimal(9, 2), decimal(4, 2), Decimal("10.25"), Decimal("10.25")),
        ({"type": "string", "logicalType": "uuid"}, "string", "a-b", "a-b"),
        ("long", NANOS, 5, 5),  # a view has the number itself
        (NANOS, "long", 5, 5),
        ("long", ["null", "int", "double"], 3, {"member0": None, "member1": 3.0}),
        ("int", ["double", "int"], 3, {"member0": None, "member1": 3}),  # its own type before a wider one
        ("int", ["float", "string"], 3, {"member0": 3.0, "member1": None}),
        (["int", "long"], ["int", "long"], ("int", 3), 3),
        (["string", "int"], "double", ("int", 3), 3.0),
        (["null", "int"], ["int", "null"], ("null", None), None),
        (enum("A", "B"), enum("B", "A"), "A", "A"),
        (enum("A", "B"), enum("C", "B", default="C"), "A", "C"),
        (enum("A", name="old.E"), enum("A", name="new.E"), "A", "A"),
        (enum("A", name="Old"), enum("A", name="New", aliases=["Old"]), "A", "A"),
        (of("int", name="Old"), of("long", name="New"), {"x": 1}, {"x": 1}),
        (of("int", name="A"), [of("int", name="B"), of("int", name="A")], {"x": 1}, SECOND),
        (of("int", name="A"), [of("string", name="B"), of("int", name="C")], {"x": 1}, SECOND),
        (of("int", name="A"), [of("int", name="B"), of("int", name="C", aliases=["A"])], {"x": 1}, SECOND),
    ],
)
def test_what_was_written_as_one_type_is_read_as_another(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    assert column(of(writer), of(reader), {"x": value}) == [expected]


@pytest.mark.parametrize(
    ("writer", "reader", "told"),
    [
        ("long", "int", "x: written as long, which cannot be read as int"),
        ("string", "int", "x: written as string, which cannot be read as int"),
        ("string", ["null", "int"], "x: written as string, which cannot be read as int"),
        (["string", "boolean"], "int", "x: written as string or boolean, which cannot be read as int"),
        ("null", "int", "x: written as null, which cannot be read as int"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, "x[]: written as string"),
        ({"type": "array", "items": "null"}, {"type": "array", "items": ["null", "int"]}, "x: an array whose items"),
        ({"type": "map", "values": "string"}, {"type": "array", "items": "string"}, "x: written as map"),
        (enum("A"), enum("A", name="F"), "x: written as enum E, which cannot be read as enum F"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "fixed F of 2 bytes"),
        (decimal(9, 2), decimal(9, 3), "x: written as decimal(9,2), which would be misread as decimal(9,3)"),
        ("string", decimal(9, 2), "x: written as string, which would be misread as decimal(9,2)"),
        ("bytes", decimal(9, 2), "x: written as bytes, which would be misread as decimal(9,2)"),
        (decimal(9, 2), "bytes", "x: written as decimal(9,2), which would be misread as bytes"),
        (decimal(9, 2), "string", "x: written as decimal(9,2), which would be misread as string"),
        (decimal(9, 2), ["null", "string"], "x: written as decimal(9,2), which would be misread as string"),
        ("long", MILLIS, "x: written as long, which would be misread as timestamp-millis"),
        (MILLIS, "long", "x: written as timestamp-millis, which would be misread as long"),
        (MILLIS, "double", "x: written as timestamp-millis, which would be misread as double"),
        ("int", MILLIS, "x: written as int, which would be misread as timestamp-millis"),
        ("int", DATE, "x: written as int, which would be misread as date"),
        (DATE, "long", "x: written as date, which would be misread as long"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            "x: written as timestamp-millis, which would be misread as timestamp-micros",
        ),
        (of("int", name="I"), of("int", "int", name="I"), "x.y: not written, and the reader schema has no default"),
    ],
)
def test_schemas_that_do_not_fit_fail_every_record_of_that_id_with_the_field(
    writer: Any, reader: Any, told: str
) -> None:
    decoder = AvroDecoder(text_of(of(reader)), registry({7: of(writer)}))
    decoded = decoder(binaries([framed(7, b"\x00"), framed(7, b"")]))
    assert {f.error_class for f in decoded.failures.values()} == {record.INCOMPATIBLE_SCHEMA}
    assert decoded.failures.keys() == {0, 1}
    assert told in decoded.failures[0].reason


def test_a_branch_or_symbol_the_reader_lacks_fails_only_the_records_that_use_it() -> None:
    decoded = read(of(["null", "int", "string"]), of("long"), *({"x": v} for v in (1, None, "a", 2)))
    assert decoded.columns[0].to_pylist() == [1, None, None, 2]
    assert decoded.failures == {
        1: Failure(record.MISSING_FIELD, "x: required, but null"),
        2: Failure(record.WRONG_TYPE, "x: written as string, which cannot be read as long"),
    }
    decoded = read(of(enum("A", "B", name="s.E")), of(enum("A", name="s.E")), {"x": "A"}, {"x": "B"})
    assert decoded.failures == {1: Failure(record.OUT_OF_RANGE, "x: 'B' is no s.E")}


def test_fields_are_dropped_added_renamed_and_reordered() -> None:
    writer = record_of(
        field("gone", {"type": "array", "items": {"type": "map", "values": ["null", "string"]}}),
        field("old", "int"),
        field("same", "string"),
        field("gone_too", {"type": "fixed", "name": "F", "size": 3}),
        field("union", ["null", "string", enum("A")]),
    )
    inner = of("int", ["null", "string"], name="Inner")
    reader = record_of(
        field("same", "string"),
        field("new", "long", aliases=["older", "old"]),
        field("day", {"type": "int", "logicalType": "date"}, default=1),
        field("money", decimal(4, 2), default="\u0001\u00ff"),
        field("inner", inner, default={"x": 5, "y": None}),
        field("map", {"type": "map", "values": "int"}, default={"a": 1}),
        field("late", ["null", "string"], default="any branch"),
    )
    value = {"gone": [{"a": None}, {"b": "x" * 200}], "old": 9, "same": "s", "gone_too": b"abc", "union": "text"}
    other = {"gone": [], "old": -9, "same": "", "gone_too": b"abc", "union": None}
    for copies in (1, 100):
        decoded = read(writer, reader, *[value, other] * copies)
        assert decoded.failures == {}
        first, second = rows(struct_of(text_of(reader)), decoded)[-2:]
        assert (first.pop("same"), first.pop("new")) == ("s", 9)
        assert (second.pop("same"), second.pop("new")) == ("", -9)
        assert first == second
        assert str(first.pop("day")) == "1970-01-02"
        assert first == {
            "money": Decimal("5.11"),
            "inner": {"x": 5, "y": None},
            "map": {"a": 1},
            "late": "any branch",
        }


def test_types_of_referenced_schemas_are_known_by_their_names() -> None:
    money = RegisteredSchema(1, "AVRO", text_of({**of("long"), "namespace": "shop", "name": "Money"}))
    line = RegisteredSchema(
        2, "AVRO", text_of({**of("shop.Money"), "namespace": "shop", "name": "Line"}), (("shop.Money", money),)
    )
    order = {**of("Line", "Money"), "namespace": "shop"}
    top = RegisteredSchema(3, "AVRO", text_of(order), (("shop.Line", line), ("shop.Money", money)))
    reader = of(of(of("long", name="M"), name="L"), of("long", name="N"))
    decoded = AvroDecoder(text_of(reader), lambda _: top)(binaries([framed(3, b"\x02\x04")]))
    assert decoded.failures == {}
    assert rows(struct_of(text_of(reader)), decoded) == [{"x": {"x": {"x": 1}}, "y": {"x": 2}}]
    decoded = AvroDecoder(pickle.loads(pickle.dumps(top)))(binaries([b"\x02\x04"]))  # such a schema can also read
    assert rows(struct_of(top), decoded) == [{"x": {"x": {"x": 1}}, "y": {"x": 2}}]


def test_ids_that_only_differ_in_comments_are_read_together_and_keep_their_numbers() -> None:
    schema = record_of(field("x", "int"))
    commented = record_of({**field("x", "int"), "doc": "the x", "default": 4})
    decoded = AvroDecoder(text_of(schema), registry({1: schema, 2: commented}))(
        binaries([framed(1, b"\x02"), framed(2, b"\x04"), framed(1, b"\x06")])
    )
    assert decoded.columns[0].to_pylist() == [1, 2, 3]
    assert decoded.schema_ids is not None
    assert decoded.schema_ids.to_pylist() == [1, 2, 1]


def test_blocks_with_a_size_and_several_blocks_are_one_array_and_the_last_of_two_keys_counts() -> None:
    array = of({"type": "array", "items": "int"})
    mapping = of({"type": "map", "values": "int"})
    blocks = b"\x01\x02\x06" + b"\x04\x08\x0a" + b"\x03\x7e\x0c\x0e" + b"\x00"  # the second size is a lie nobody uses
    twice = b"\x04\x02k\x02\x02l\x04" + b"\x02\x02k\x06" + b"\x00"
    for copies in (1, 100):
        decoded = AvroDecoder(text_of(array))(binaries([blocks] * copies))
        assert decoded.columns[0].to_pylist() == [[3, 4, 5, 6, 7]] * copies
        decoded = AvroDecoder(text_of(mapping))(binaries([twice, b"\x00"] * copies))
        assert [dict(pairs) for pairs in decoded.columns[0].to_pylist()] == [{"k": 3, "l": 2}, {}] * copies
        assert [len(pairs) for pairs in decoded.columns[0].to_pylist()] == [2, 0] * copies


@pytest.mark.parametrize(
    "number", [0, 1, -1, 63, 64, -65, 2**27, -(2**27) - 1, 2**55, -(2**56), 2**62, 2**63 - 1, -(2**63)]
)
def test_numbers_of_every_length_are_read_beside_each_other(number: int) -> None:
    assert column(of("long"), of("long"), {"x": number}, {"x": 0}, {"x": -(2**63)}) == [number, 0, -(2**63)]


@pytest.mark.parametrize("digits", [1, 18, 19, 20, 38])
def test_decimals_are_exact_to_the_last_digit_and_refused_beyond(digits: int) -> None:
    schema = of({"type": "fixed", "name": "F", "size": 24, "logicalType": "decimal", "precision": digits, "scale": 0})
    most = 10**digits - 1
    numbers = [most, -most, most + 1, -most - 1, 0, -1, 2**130, -(2**130)]
    plain = of({"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 0})
    for kind, raw in (
        (schema, [n.to_bytes(24, "big", signed=True) for n in numbers]),
        (
            plain,
            [written(of("bytes"), {"x": n.to_bytes(n.bit_length() // 8 + 1, "big", signed=True)}) for n in numbers],
        ),
    ):
        decoded = AvroDecoder(text_of(kind))(binaries(raw))
        assert decoded.columns[0].to_pylist() == [most, -most, None, None, 0, -1, None, None]
        assert {f.error_class for f in decoded.failures.values()} == {record.OUT_OF_RANGE}
        assert sorted(decoded.failures) == [2, 3, 6, 7]


def test_batches_of_odd_shapes() -> None:
    schema = of("string", ["null", "int"])
    decoder = AvroDecoder(text_of(schema), registry({1: schema}))
    values = [framed(1, written(schema, {"x": "é" * i, "y": i or None})) for i in range(5)]
    expected = [["", "é", "éé", "ééé", "éééé"], [None, 1, 2, 3, 4]]
    for raw in (
        binaries(values),
        pa.array(values, pa.large_binary()),
        binaries([b"junk", *values, b"junk"]).slice(1, 5),
    ):
        assert [c.to_pylist() for c in decoder(raw).columns] == expected
    assert [len(c) for c in decoder(binaries([])).columns] == [0, 0]
    assert [c.to_pylist() for c in decoder(binaries([None, None])).columns] == [[None, None]] * 2
    offsets = pa.py_buffer(struct.pack("3i", 0, 4, 4 + len(values[1])))
    only_second = pa.py_buffer(b"\x02")
    null_over_bytes = pa.Array.from_buffers(pa.binary(), 2, [only_second, offsets, pa.py_buffer(b"junk" + values[1])])
    decoded = decoder(null_over_bytes)
    assert decoded.columns[0].to_pylist() == [None, "é"]
    assert decoded.failures == {0: Failure(record.NULL_VALUE, "the value is null")}


def test_a_batch_too_large_for_one_page_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MOST_BYTES", 100)
    schema = of("string", {"type": "array", "items": "int"})
    values: list[bytes | None] = [written(schema, {"x": "x" * (i % 7), "y": [i, -i]}) for i in range(50)]
    values[33] = b"\xff"
    decoded = AvroDecoder(text_of(schema))(binaries(values))
    assert decoded.failures.keys() == {33}
    assert decoded.schema_ids is None
    assert decoded.columns[1].to_pylist() == [None if i == 33 else [i, -i] for i in range(50)]
    framed_values = binaries([framed(i % 3, value or b"") for i, value in enumerate(values)])
    decoded = AvroDecoder(text_of(schema), registry({1: schema}))(framed_values)
    assert decoded.schema_ids is not None
    assert decoded.schema_ids.to_pylist() == [i % 3 for i in range(50)]
    assert [i for i in range(50) if i not in decoded.failures] == [i for i in range(50) if i % 3 == 1]


def test_long_and_short_arrays_side_by_side() -> None:
    schema = of(
        {"type": "array", "items": ["null", "string", of("long", {"type": "array", "items": "double"}, name="I")]}
    )
    values = [{"x": [None, "s" * i, *([{"x": i, "y": [0.5] * (i % 3)}] * (i if i % 50 else 5000))]} for i in range(120)]
    expected = [
        [
            None
            if v is None
            else {"member0": v, "member1": None}
            if isinstance(v, str)
            else {"member0": None, "member1": v}
            for v in value["x"]
        ]
        for value in values
    ]
    assert column(schema, schema, *values) == expected


def test_the_schemas_of_a_mistake_can_cross_to_a_worker() -> None:
    with pytest.raises(avro.AvroSchemaMistake) as mistake:
        AvroDecoder("{")
    assert str(pickle.loads(pickle.dumps(mistake.value))) == str(mistake.value)


def test_a_null_stays_null_beside_a_record_that_failed() -> None:
    schema = of(["null", "int"], ["null", {"type": "array", "items": "int"}])
    decoded = AvroDecoder(text_of(schema))(binaries([b"\x00\x00", b"\x02\x06\x02\x00", b"\x09", b"\x00\x02\x00"]))
    assert [c.to_pylist() for c in decoded.columns] == [[None, 3, None, None], [None, [], None, []]]
    assert decoded.failures.keys() == {2}


@pytest.mark.parametrize("copies", [1, 100])
@pytest.mark.parametrize(
    ("dropped", "raw", "told"),
    [
        ("long", b"\xff" * 9 + b"\x02", "y: at byte 5 a number has more than 64 bits: ffffffffffffffffff02"),
        ("string", b"\x01", "y: the length -1 before byte 6 is negative"),
        (["null", "string"], b"\x04", "y: branch 2 of a union that has 2"),
        ({"type": "array", "items": "string"}, b"\x04\x00\x7e", "y[1]: the record ends too early: at byte 8 63 bytes"),
        (
            {"type": "map", "values": "double"},
            b"\x02\x00\x00\x00",
            "y[0]: the record ends too early: at byte 7 8 bytes",
        ),
        ({"type": "fixed", "name": "F", "size": 100}, b"\x00", "y: the record ends too early: at byte 5 100 bytes"),
        (of("int", of("string", name="B"), name="A"), b"\x00\x04\x00", "y.y.x: the record ends too early: at byte 7 2"),
    ],
)
def test_a_broken_field_that_nobody_reads_fails_its_record_in_the_same_words_for_few_and_for_many(
    dropped: Any, raw: bytes, told: str, copies: int
) -> None:
    decoder = AvroDecoder(text_of(of("int")), registry({1: record_of(field("y", dropped), field("x", "int"))}))
    decoded = decoder(binaries([framed(1, raw)] * copies))
    assert decoded.failures.keys() == set(range(copies))
    assert {f.error_class for f in decoded.failures.values()} == {record.MALFORMED}
    assert {f.reason[: len(told)] for f in decoded.failures.values()} == {told}
