"""A row that does not fit the message says which field, which value, and why; its neighbours are written."""

from __future__ import annotations

import datetime
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest
from batches import batch_of, checked
from google.protobuf.message_factory import GetMessageClass

from penstock import record
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.encode.arrow.encoded import ColumnsMistake
from penstock.encode.protobuf.encoder import ProtobufEncoder
from penstock.encode.protobuf.header import indexes_of
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.protobuf.message import MessageSchema, from_registered, from_text
from penstock.spec.types import Member, Struct, parse

TEXT = """
syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
enum Color { option allow_alias = true; NONE = 0; RED = 1; CRIMSON = 1; }
message Inner { int32 x = 1; }
message M {
  int32 i32 = 1; uint32 u32 = 2; uint64 u64 = 3; fixed32 f32 = 4; double d = 5; string s = 6; Color color = 7;
  repeated int32 numbers = 8; repeated Inner inners = 9; map<sint32, string> by_number = 10;
  map<bool, Inner> by_bool = 11;
  google.protobuf.Timestamp at = 12; google.protobuf.Duration took = 13; google.protobuf.UInt32Value wrapped = 14;
  google.protobuf.Struct st = 15; google.protobuf.Value v = 16; google.protobuf.ListValue lv = 17;
  oneof choice { string text = 18; int32 number = 19; google.protobuf.Empty nothing = 20; }
  repeated google.protobuf.Empty empties = 21; optional string maybe = 22;
}
"""
PROTO2 = """
syntax = "proto2";
package t;
enum Color { RED = 1; BLUE = 2; }
message M { required int32 id = 1; optional Color color = 2; repeated int32 numbers = 3; optional Sub sub = 4;
  message Sub { required string need = 1; } }
"""


@pytest.fixture(scope="module")
def proto3() -> MessageSchema:
    return from_text(TEXT, "M")


@pytest.fixture(scope="module")
def proto2() -> MessageSchema:
    return from_text(PROTO2, "M")


def struct(**columns: str) -> Struct:
    return Struct(tuple(Member(name, parse(kind)) for name, kind in columns.items()))


def written(schema: MessageSchema, column: str, name: str, *values: Any) -> tuple[list[bytes | None], dict[int, Any]]:
    columns = struct(**{name: column})
    encoded = ProtobufEncoder(schema, columns, None)(batch_of(columns, [{name: value} for value in values]))
    return checked(encoded), encoded.failures


def back(schema: MessageSchema, *values: bytes | None) -> list[dict[str, Any]]:
    read = GetMessageClass(schema.descriptor())
    return [{f.name: v for f, v in read.FromString(value).ListFields()} for value in values]


@pytest.mark.parametrize(
    ("name", "column", "good", "bad", "error_class", "reason"),
    [
        ("i32", "bigint", -(2**31), 2**31, record.OUT_OF_RANGE, "i32: 2147483648 does not fit int32"),
        ("u32", "bigint", 2**32 - 1, -1, record.OUT_OF_RANGE, "u32: -1 does not fit uint32"),
        ("f32", "bigint", 1, 2**32, record.OUT_OF_RANGE, "f32: 4294967296 does not fit fixed32"),
        (
            "u64",
            "decimal(20,0)",
            Number(2**64 - 1),
            Number(2**64),
            record.OUT_OF_RANGE,
            f"u64: {2**64} does not fit uint64",
        ),
        ("u64", "decimal(20,0)", Number(1), Number(-1), record.OUT_OF_RANGE, "u64: -1 does not fit uint64"),
        ("u64", "bigint", 1, -1, record.OUT_OF_RANGE, "u64: -1 does not fit uint64"),
        ("wrapped", "bigint", 0, -1, record.OUT_OF_RANGE, "wrapped: -1 does not fit uint32"),
        ("color", "string", "RED", "GREEN", record.OUT_OF_RANGE, "color: 'GREEN' is no t.Color"),
        ("color", "string", "-5", "2147483648", record.OUT_OF_RANGE, "color: '2147483648' is no t.Color"),
        ("numbers", "array<bigint>", [1], [1, 2**31], record.OUT_OF_RANGE, "numbers[1]: 2147483648 does not fit int32"),
        (
            "numbers",
            "array<int>",
            [1],
            [1, None, 2],
            record.MISSING_FIELD,
            "numbers[1]: null, which a repeated field or a map cannot hold",
        ),
        (
            "inners",
            "array<struct<x:bigint>>",
            [{"x": 1}],
            [{"x": 1}, {"x": 2**40}],
            record.OUT_OF_RANGE,
            f"inners[1].x: {2**40} does not fit int32",
        ),
        (
            "inners",
            "array<struct<x:int>>",
            [],
            [None],
            record.MISSING_FIELD,
            "inners[0]: null, which a repeated field or a map cannot hold",
        ),
        (
            "by_number",
            "map<string,string>",
            {"-1": "a"},
            {"01": "a"},
            record.WRONG_TYPE,
            "by_number[...]: the key '01' is no sint32",
        ),
        (
            "by_number",
            "map<string,string>",
            {"1": "a"},
            {str(2**31): "a"},
            record.WRONG_TYPE,
            "by_number[...]: the key '2147483648' is no sint32",
        ),
        (
            "by_number",
            "map<string,string>",
            {"1": "a"},
            {"2": None},
            record.MISSING_FIELD,
            "by_number[...]: null, which a repeated field or a map cannot hold",
        ),
        (
            "by_bool",
            "map<string,struct<x:int>>",
            {"true": {"x": 1}},
            {"True": {"x": 1}},
            record.WRONG_TYPE,
            "by_bool[...]: the key 'True' is no bool",
        ),
        (
            "took",
            "bigint",
            -1,
            2**62,
            record.OUT_OF_RANGE,
            f"took: {2**62} us is not a duration of at most 10,000 years",
        ),
        ("st", "string", "{}", "[]", record.WRONG_TYPE, "st: expected a JSON object; the value is '[]'"),
        ("lv", "string", "[null]", "{", record.WRONG_TYPE, "lv: expected a JSON array; the value is '{'"),
        ("v", "string", "null", "NaN", record.WRONG_TYPE, "v: expected JSON; the value is 'NaN'"),
        ("v", "string", "1e300", "1e999", record.WRONG_TYPE, "v: expected JSON; the value is '1e999'"),
        ("v", "string", str(2**53), str(2**53 + 1), record.WRONG_TYPE, f"v: expected JSON; the value is '{2**53 + 1}'"),
        (
            "empties",
            "array<boolean>",
            [True],
            [True, False],
            record.WRONG_TYPE,
            "empties[1]: false, but a message without fields can only be there",
        ),
    ],
)
def test_value_that_does_not_fit_fails_its_row_with_a_reason(
    proto3: MessageSchema, name: str, column: str, good: Any, bad: Any, error_class: str, reason: str
) -> None:
    values, failures = written(proto3, column, name, good, bad, good)
    assert {i: (f.error_class, f.reason) for i, f in failures.items()} == {1: (error_class, reason)}
    assert [values[0]] == [values[2]] == written(proto3, column, name, good)[0]


def test_time_outside_the_calendar_is_out_of_range(proto3: MessageSchema) -> None:
    for bad in (253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63)):
        column = pa.array([0, bad, 1], pa.int64()).cast(pa.timestamp("us", "UTC"))
        encoded = ProtobufEncoder(proto3, struct(at="timestamp"), None)(pa.record_batch({"at": column}))
        assert encoded.failures[1].reason == f"at: {bad} us is not a time in the years 1 to 9999"
        assert checked(encoded) == [b"\x62\x00", None, b"\x62\x03\x10\xe8\x07"]


def test_two_members_of_a_oneof_fail_and_false_is_not_set(proto3: MessageSchema) -> None:
    columns = struct(text="string", number="int", nothing="boolean")
    rows = [("a", 0, None), (None, 0, False), (None, None, True), ("", None, None), (None, None, None), ("a", 1, True)]
    batch = batch_of(columns, [dict(zip(("text", "number", "nothing"), row, strict=True)) for row in rows])
    encoded = ProtobufEncoder(proto3, columns, None)(batch)
    assert {i: (f.error_class, f.reason) for i, f in encoded.failures.items()} == {
        0: (record.WRONG_TYPE, "the record: text and number are set, but are members of one oneof"),
        5: (record.WRONG_TYPE, "the record: text and number and nothing are set, but are members of one oneof"),
    }
    values = [value for value in checked(encoded) if value is not None]
    assert [list(found) for found in back(proto3, *values)] == [["number"], ["nothing"], ["text"], []]


def test_null_is_an_absent_field_and_zero_is_not_where_that_can_be_told(proto3: MessageSchema) -> None:
    assert written(proto3, "int", "i32", None, 0, 1) == ([b"", b"", b"\x08\x01"], {})
    assert written(proto3, "string", "maybe", None, "", "a") == ([b"", b"\xb2\x01\x00", b"\xb2\x01\x01a"], {})
    assert written(proto3, "array<int>", "numbers", None, [], [0, 1]) == ([b"", b"", b"\x42\x02\x00\x01"], {})
    assert written(proto3, "map<string,string>", "by_number", None, {}, {"0": ""}) == (
        [b"", b"", b"\x52\x04\x08\x00\x12\x00"],
        {},
    )


def test_null_in_a_required_column_of_a_field_without_presence_does_not_become_a_zero(proto3: MessageSchema) -> None:
    columns = Struct((Member("i32", parse("int"), required=True),))
    encoded = ProtobufEncoder(proto3, columns, None)(batch_of(columns, [{"i32": 1}, {"i32": None}]))
    assert [f.reason for f in encoded.failures.values()] == ["i32: required, but null"]


def test_a_null_list_writes_nothing_whatever_lies_under_it(proto3: MessageSchema) -> None:
    """Arrow lets a null list have items."""
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3]), pa.array([1, 2, 3], pa.int32()), mask=pa.array([False, True]))
    encoded = ProtobufEncoder(proto3, struct(numbers="array<int>"), None)(pa.record_batch({"numbers": lists}))
    assert checked(encoded) == [b"\x42\x01\x01", b""]


def test_every_name_of_an_enum_is_taken_and_numbers_where_it_is_open(
    proto3: MessageSchema, proto2: MessageSchema
) -> None:
    assert written(proto3, "string", "color", "RED", "CRIMSON", "NONE", "7") == (
        [b"\x38\x01", b"\x38\x01", b"", b"\x38\x07"],
        {},
    )
    columns = struct(id="int", color="string")
    encoded = ProtobufEncoder(proto2, columns, None)(batch_of(columns, [{"id": 1, "color": c} for c in ("BLUE", "7")]))
    assert {i: f.reason for i, f in encoded.failures.items()} == {1: "color: '7' is no t.Color"}


def test_what_protobuf_has_no_type_for_is_text_that_sql_casts_back(proto3: MessageSchema) -> None:
    small = Number("0.00000000000000000000000000000000000001")
    assert back(proto3, *written(proto3, "decimal(38,38)", "s", small, -small)[0]) == [
        {"s": f"{small:f}"},
        {"s": f"{-small:f}"},
    ]
    assert back(proto3, *written(proto3, "decimal(5,2)", "s", Number("-1.50"))[0]) == [{"s": "-1.50"}]
    assert back(proto3, *written(proto3, "date", "s", datetime.date(1, 2, 3))[0]) == [{"s": "0001-02-03"}]
    time = datetime.datetime(2026, 2, 3, 4, 5, 6, 7)
    assert back(proto3, *written(proto3, "timestamp_ntz", "s", time)[0]) == [{"s": "2026-02-03T04:05:06.000007"}]


def test_proto2_required_fields_and_unpacked_numbers(proto2: MessageSchema) -> None:
    columns = struct(id="int", numbers="array<int>", sub="struct<need:string>")
    rows = [
        {"id": 0, "numbers": [1, 2], "sub": None},
        {"id": None, "numbers": None, "sub": None},
        {"id": 1, "numbers": None, "sub": {"need": None}},
    ]
    encoded = ProtobufEncoder(proto2, columns, None)(batch_of(columns, rows))
    assert {i: (f.error_class, f.reason) for i, f in encoded.failures.items()} == {
        1: (record.MISSING_FIELD, "id: required, but null"),
        2: (record.MISSING_FIELD, "sub.need: required, but null"),
    }
    assert checked(encoded)[0] == b"\x08\x00\x18\x01\x18\x02"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"i32": "string"}, "i32: a column of string cannot be written as int32"),
        ({"d": "bigint"}, "d: a column of bigint cannot be written as double"),
        ({"s": "int"}, "s: a column of int cannot be written as string"),
        ({"u64": "decimal(20,2)"}, r"u64: a column of decimal\(20,2\) cannot be written as uint64"),
        ({"at": "timestamp_ntz"}, r"at: a column of timestamp_ntz cannot be written as timestamp \(timestamp\)"),
        ({"numbers": "int"}, "numbers: a column of int cannot be written as repeated int32"),
        ({"inners": "array<string>"}, r"inners\[\]: a column of string cannot be written as message"),
        ({"by_bool": "array<string>"}, "by_bool: a column of array<string> cannot be written as map"),
        ({"i32": "int", "i23": "int"}, "i23: the message has no such field; did you mean 'i32'?"),
        ({"inners": "array<struct<y:int>>"}, r"inners\[\].y: the message has no such field"),
    ],
)
def test_column_that_can_never_be_written_is_a_mistake_when_the_encoder_is_made(
    proto3: MessageSchema, columns: dict[str, str], said: str
) -> None:
    with pytest.raises(ColumnsMistake, match=said):
        ProtobufEncoder(proto3, struct(**columns), None)


def test_required_field_without_a_column_is_a_mistake_and_an_extra_column_can_be_ignored(
    proto2: MessageSchema,
) -> None:
    with pytest.raises(ColumnsMistake, match="id: there is no such column, and the schema requires the field"):
        ProtobufEncoder(proto2, struct(color="string"), None)
    columns = struct(id="int", more="int")
    encoded = ProtobufEncoder(proto2, columns, None, ignore_extra=True)(batch_of(columns, [{"id": 1, "more": 2}]))
    assert checked(encoded) == [b"\x08\x01"]


NESTED = """syntax = "proto3"; package t;
message First { int32 x = 1; }
message Second { map<string, int32> m = 1; message A { int32 x = 1; } message B { message C { int32 x = 1; } } }
"""


@pytest.mark.parametrize(
    ("message", "indexes", "header"),
    [
        ("First", [0], b"\0\0\0\0\x05\0"),
        ("Second.A", [1, 0], b"\0\0\0\0\x05\x04\x02\x00"),  # the message that the map makes is not counted
        ("Second.B.C", [1, 1, 0], b"\0\0\0\0\x05\x06\x02\x02\x00"),
    ],
)
def test_header_leads_to_the_message_and_is_read_by_our_decoder(
    message: str, indexes: list[int], header: bytes
) -> None:
    registered = RegisteredSchema(5, "PROTOBUF", NESTED)
    schema = from_registered(registered, message)
    assert indexes_of(schema) == indexes
    encoded = ProtobufEncoder(schema, struct(x="int"), 5)(batch_of(struct(x="int"), [{"x": 1}, {"x": 0}]))
    assert checked(encoded) == [header + b"\x08\x01", header]
    decoded = ProtobufDecoder(schema, {5: registered}.get)(encoded.values)
    assert decoded.failures == {}
    assert decoded.columns[0].to_pylist() == [1, 0]


def test_number_in_json_text_is_the_double_it_says_or_a_failure(proto3: MessageSchema) -> None:
    """The last has more digits than a double, and fewer than Python refuses to read."""
    found, failures = written(proto3, "string", "v", "-0", "-0.0", "7", "9007199254740993", "9" * 400)
    assert [repr(each["v"].number_value) for each in back(proto3, *found[:3])] == ["-0.0", "-0.0", "7.0"]
    assert {i: failure.error_class for i, failure in failures.items()} == {3: record.WRONG_TYPE, 4: record.WRONG_TYPE}
