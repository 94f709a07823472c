"""A row that does not fit the Avro schema says which field, which value, and why; its neighbours are written."""

from __future__ import annotations

import datetime
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest
from avro_strategies import read_by_fastavro, text_of
from batches import batch_of, checked

from penstock import record
from penstock.encode.arrow.encoded import ColumnsMistake
from penstock.encode.avro.encoder import AvroEncoder
from penstock.record import REASON_LIMIT
from penstock.registry.avro.model import AvroSchemaMistake
from penstock.registry.client.schema import RegisteredSchema
from penstock.spec.types import Member, Struct, parse

COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
SMALL = {"type": "fixed", "name": "Small", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}
DATE = {"type": "int", "logicalType": "date"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
UUID = {"type": "string", "logicalType": "uuid"}
EITHER = ["null", "string", "long"]
AT_MS, AT_US = (datetime.datetime(1969, 12, 31, 23, 59, 59, us, datetime.UTC) for us in (999_000, 999_999))
GOOD_UUID = "123e4567-e89b-12d3-a456-426614174000"


def of(kind: Any, **more: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind, **more}]}


def struct(**columns: str) -> Struct:
    return Struct(tuple(Member(name, parse(kind)) for name, kind in columns.items()))


def encoder(kind: Any, column: str) -> AvroEncoder:
    return AvroEncoder(text_of(of(kind)), struct(x=column), None)


def raw(column: str, values: list[Any], arrow: pa.DataType) -> pa.RecordBatch:
    """Values that Python's own types could not hold."""
    return pa.RecordBatch.from_arrays([pa.array(values).cast(arrow)], names=[column])


@pytest.mark.parametrize(
    ("kind", "column", "good", "bad", "error_class", "reason"),
    [
        ("string", "string", "a", None, record.MISSING_FIELD, "x: required, but null"),
        ("int", "bigint", 2**31 - 1, 2**31, record.OUT_OF_RANGE, "x: 2147483648 does not fit an int"),
        ("int", "bigint", -(2**31), -(2**31) - 1, record.OUT_OF_RANGE, "x: -2147483649 does not fit an int"),
        (COLOUR, "string", "BLUE", "GREEN", record.OUT_OF_RANGE, "x: 'GREEN' is no Colour"),
        (["null", COLOUR], "string", None, "red", record.OUT_OF_RANGE, "x: 'red' is no Colour"),
        (UUID, "string", GOOD_UUID, GOOD_UUID + "\n", record.WRONG_TYPE, f"x: {GOOD_UUID + chr(10)!r} is no uuid"),
        (UUID, "string", GOOD_UUID.upper(), "", record.WRONG_TYPE, "x: '' is no uuid"),
        ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab", b"abc", record.OUT_OF_RANGE, "x: 3 bytes, not 2"),
        (MILLIS, "timestamp", AT_MS, AT_US, record.OUT_OF_RANGE, "x: -1 us is not a whole number of ms"),
        (
            MONEY,
            "decimal(5,2)",
            "99.99",
            "100.00",
            record.OUT_OF_RANGE,
            "x: 100.00 is not a value that fits decimal(4,2)",
        ),
        (
            SMALL,
            "decimal(5,2)",
            "-99.99",
            "-100.00",
            record.OUT_OF_RANGE,
            "x: -100.00 is not a value that fits decimal(4,2)",
        ),
        (
            MONEY,
            "decimal(5,3)",
            "1.500",
            "1.005",
            record.OUT_OF_RANGE,
            "x: 1.005 is not a value that fits decimal(4,2)",
        ),
        (MONEY, "decimal(5,0)", "99", "100", record.OUT_OF_RANGE, "x: 100 is not a value that fits decimal(4,2)"),
        (
            {"type": "array", "items": "int"},
            "array<bigint>",
            [1],
            [1, 2, 2**40],
            record.OUT_OF_RANGE,
            f"x[2]: {2**40} does not fit an int",
        ),
        (
            {"type": "array", "items": "string"},
            "array<string>",
            [],
            ["a", None],
            record.MISSING_FIELD,
            "x[1]: required, but null",
        ),
        (
            {"type": "map", "values": COLOUR},
            "map<string,string>",
            {"a": "RED"},
            {"b": "a"},
            record.OUT_OF_RANGE,
            "x[...]: 'a' is no Colour",
        ),
        (
            {"type": "array", "items": {**of("int"), "name": "I"}},
            "array<struct<x:bigint>>",
            [{"x": 1}],
            [{"x": 1}, {"x": None}],
            record.MISSING_FIELD,
            "x[1].x: required, but null",
        ),
        ({**of("int"), "name": "I"}, "struct<x:int>", {"x": 1}, None, record.MISSING_FIELD, "x: required, but null"),
        (
            ["string", "long"],
            "struct<member0:string,member1:bigint>",
            {"member0": "a", "member1": None},
            {"member0": None, "member1": None},
            record.MISSING_FIELD,
            "x: one of member0, member1 is required, but all are null",
        ),
        (
            EITHER,
            "struct<member0:string,member1:bigint>",
            {"member0": None, "member1": 1},
            {"member0": "a", "member1": 1},
            record.WRONG_TYPE,
            "x: member0 and member1 are set, not one",
        ),
    ],
)
def test_value_that_does_not_fit_fails_its_row_with_a_reason(
    kind: Any, column: str, good: Any, bad: Any, error_class: str, reason: str
) -> None:
    if column.startswith("decimal"):
        good, bad = Number(good), Number(bad)
    encoded = encoder(kind, column)(batch_of(struct(x=column), [{"x": v} for v in (good, bad, good)]))
    assert {i: (f.error_class, f.reason) for i, f in encoded.failures.items()} == {1: (error_class, reason)}
    first, _, last = checked(encoded)
    alone = checked(encoder(kind, column)(batch_of(struct(x=column), [{"x": good}])))
    assert [first] == [last] == alone


@pytest.mark.parametrize(
    ("kind", "column", "bad", "reason"),
    [
        (DATE, "date", 2_932_897, "2932897 is not a date in the years 1 to 9999"),
        (DATE, "date", -719_163, "-719163 is not a date in the years 1 to 9999"),
        (MICROS, "timestamp", 253_402_300_800_000_000, "253402300800000000 us is not a time in the years 1 to 9999"),
        (MILLIS, "timestamp", -(2**63), "-9223372036854775808 us is not a time in the years 1 to 9999"),
        (LOCAL, "timestamp_ntz", 2**63 - 1, "9223372036854775807 us is not a time in the years 1 to 9999"),
        (NANOS, "timestamp", 2**63 // 1000 + 1, "9223372036854776 us does not fit nanoseconds"),
    ],
)
def test_time_outside_the_calendar_is_out_of_range(kind: Any, column: str, bad: int, reason: str) -> None:
    arrow = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}[column]
    values = pa.array([0, bad, 1000], pa.int32() if column == "date" else pa.int64()).cast(arrow)
    encoded = encoder(kind, column)(pa.RecordBatch.from_arrays([values], names=["x"]))
    assert {i: (f.error_class, f.reason) for i, f in encoded.failures.items()} == {
        1: (record.OUT_OF_RANGE, f"x: {reason}")
    }
    assert checked(encoded)[0] == b"\0"


def test_first_thing_wrong_with_a_row_is_told_and_reasons_are_short() -> None:
    schema = text_of({**of(COLOUR), "fields": [{"name": n, "type": t} for n, t in (("a", "int"), ("b", COLOUR))]})
    columns = struct(a="bigint", b="string")
    rows = [{"a": 2**40, "b": "x"}, {"a": 1, "b": "x" * 10_000}, {"a": 1, "b": "RED"}]
    failures = AvroEncoder(schema, columns, None)(batch_of(columns, rows)).failures
    assert sorted(failures) == [0, 1]
    assert failures[0].reason.startswith("a: ")
    assert len(failures[1].reason) < 150 < REASON_LIMIT


@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        ("int", "string", "x: a column of string cannot be written as int"),
        ("string", "int", "x: a column of int cannot be written as string"),
        ("float", "double", "x: a column of double cannot be written as float"),
        ("double", "bigint", "x: a column of bigint cannot be written as double"),
        ("long", "timestamp", "x: a column of timestamp cannot be written as long"),
        (MICROS, "timestamp_ntz", "x: a column of timestamp_ntz cannot be written as timestamp-micros"),
        (MONEY, "double", r"x: a column of double cannot be written as decimal\(4,2\)"),
        (MONEY, "binary", r"x: a column of binary cannot be written as decimal\(4,2\)"),
        ("bytes", "decimal(4,2)", r"x: a column of decimal\(4,2\) cannot be written as bytes"),
        ("null", "string", "x: a column of string cannot be written as null"),
        (["null"], "string", "x: a column of string cannot be written as null"),
        (EITHER, "boolean", "x: a column of boolean cannot be written as null or string or long"),
        ({"type": "array", "items": "int"}, "array<string>", r"x\[\]: a column of string cannot be written as int"),
        (
            {**of("int"), "name": "I"},
            "struct<y:int>",
            "x.y: the schema has no such field; x.x: there is no such column",
        ),
        ({**MONEY, "precision": 40}, "decimal(4,2)", r"x: decimal\(40,2\) has more than 38 digits"),
    ],
)
def test_column_that_can_never_be_written_is_a_mistake_when_the_encoder_is_made(
    kind: Any, column: str, said: str
) -> None:
    with pytest.raises(ColumnsMistake, match=said):
        encoder(kind, column)


def test_all_mistakes_are_told_at_once_with_the_name_that_was_meant() -> None:
    schema = text_of({**of("int"), "fields": [{"name": n, "type": "int"} for n in ("amount", "day", "id")]})
    with pytest.raises(ColumnsMistake) as raised:
        AvroEncoder(schema, struct(amuont="int", day="string", id="int"), None)
    assert raised.value.reasons == (
        "amuont: the schema has no such field; did you mean 'amount'?",
        "amount: there is no such column, and the schema has no default for it",
        "day: a column of string cannot be written as int",
    )


def test_what_is_no_schema_or_no_record_is_a_mistake() -> None:
    with pytest.raises(AvroSchemaMistake):
        AvroEncoder("{", struct(x="int"), None)
    with pytest.raises(ColumnsMistake, match="must be a record"):
        AvroEncoder('"string"', struct(x="string"), None)
    with pytest.raises(AvroSchemaMistake, match="default"):
        AvroEncoder(text_of(of("int", default="a")), struct(), None)


def test_extra_columns_are_left_out_when_that_is_asked_for() -> None:
    inner = {"type": "array", "items": {**of("int"), "name": "I"}}
    columns = struct(x="array<struct<x:int,y:int>>", z="string")
    encoded = AvroEncoder(text_of(of(inner)), columns, None, ignore_extra=True)(
        batch_of(columns, [{"x": [{"x": 5, "y": 6}], "z": "z"}])
    )
    assert checked(encoded) == [b"\x02\x0a\x00"]


def test_field_without_a_column_is_its_default_or_null() -> None:
    fields = [
        {"name": "a", "type": "string", "default": "é"},
        {"name": "b", "type": ["null", "int"], "default": None},
        {"name": "c", "type": ["int", "null"]},
        {"name": "d", "type": "null"},
        {"name": "e", "type": {**of("int", default=7), "name": "I"}, "default": {}},
        {"name": "x", "type": "int"},
    ]
    schema = {**of("int"), "fields": fields}
    encoded = AvroEncoder(text_of(schema), struct(x="int"), None)(batch_of(struct(x="int"), [{"x": 1}, {"x": 2}]))
    expected = {"a": "é", "b": None, "c": None, "d": None, "e": {"x": 7}}
    assert [read_by_fastavro(schema, v)[0] for v in checked(encoded) if v] == [{**expected, "x": x} for x in (1, 2)]


def test_a_record_that_contains_itself_is_written_as_deep_as_the_columns_go() -> None:
    schema = of(["null", "R"])
    schema["fields"].append({"name": "v", "type": "int"})
    columns = struct(x="struct<v:int>", v="int")
    encoded = AvroEncoder(text_of(schema), columns, None)(
        batch_of(columns, [{"x": {"v": 1}, "v": 2}, {"x": None, "v": 3}])
    )
    read = [read_by_fastavro(schema, v)[0] for v in checked(encoded) if v]
    assert read == [{"x": {"x": None, "v": 1}, "v": 2}, {"x": None, "v": 3}]


def test_types_of_a_referred_schema_are_known() -> None:
    referred = RegisteredSchema(1, "AVRO", text_of({**COLOUR, "name": "a.Colour"}))
    schema = RegisteredSchema(2, "AVRO", text_of(of(["null", "a.Colour"])), (("colour", referred),))
    encoded = AvroEncoder(schema, struct(x="string"), None)(batch_of(struct(x="string"), [{"x": "BLUE"}]))
    assert checked(encoded) == [b"\x02\x02"]


@pytest.mark.parametrize(
    ("kind", "column", "value", "written"),
    [
        (["int", "null", "long"], "bigint", -1, b"\x04\x01"),  # as decode reads it: one column, the wider branch
        (["int", "null", "long"], "bigint", None, b"\x02"),
        (["float", "double"], "double", 1.0, b"\x02\0\0\0\0\0\0\xf0\x3f"),
        (["null", "long", "string"], "string", "a", b"\x04\x02a"),  # a column of one type: the branch that takes it
        (["null", "long", "string"], "string", None, b"\0"),
        (EITHER, "struct<member0:string,member1:bigint>", {"member0": None, "member1": None}, b"\0"),
        (EITHER, "struct<member1:bigint>", {"member1": 1}, b"\x04\x02"),
        ("double", "int", 1, b"\0\0\0\0\0\0\xf0\x3f"),
        ("float", "smallint", 1, b"\0\0\x80\x3f"),
        ("long", "tinyint", -1, b"\x01"),
        ("boolean", "boolean", True, b"\x01"),
        (MONEY, "decimal(10,4)", Number("1.2800"), b"\x04\x00\x80"),
        (MONEY, "decimal(2,0)", Number("-1"), b"\x02\x9c"),
        (MILLIS, "timestamp", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC), b"\x01"),
        (NANOS, "timestamp", datetime.datetime(1970, 1, 1, 0, 0, 0, 1, datetime.UTC), b"\xd0\x0f"),
        (NANOS, "bigint", 1000, b"\xd0\x0f"),
    ],
)
def test_what_is_written_byte_by_byte(kind: Any, column: str, value: Any, written: bytes) -> None:
    assert checked(encoder(kind, column)(batch_of(struct(x=column), [{"x": value}]))) == [written]
