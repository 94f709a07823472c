"""The mapping of Protobuf's types to columns, one by one, and the values that no column can hold."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from penstock import record
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.protobuf.batch import suits
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.registry.protobuf.message import MessageSchema, SchemaMistake, from_text
from penstock.registry.protobuf.shape import MOST_FIELDS, RecursiveMessage, shape_of, struct_of

UTC = datetime.UTC
PROTO3 = """
syntax = "proto3";
package t;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { option allow_alias = true; NONE = 0; RED = 1; ROUGE = 1; }
message Inner { int32 x = 1; optional int32 y = 2; }
message M {
  int32 i32 = 1; sint32 s32 = 2; sfixed32 sf32 = 3; int64 i64 = 4; sint64 s64 = 5; sfixed64 sf64 = 6;
  uint32 u32 = 7; fixed32 f32 = 8; uint64 u64 = 9; fixed64 f64 = 10;
  float f = 11; double d = 12; bool b = 13; string s = 14; bytes by = 15;
  Color color = 16; Inner inner = 17; repeated Inner inners = 18; repeated Color colors = 19;
  map<string, Inner> by_name = 20; map<sint32, bytes> by_number = 21; map<bool, uint64> by_bool = 22;
  google.protobuf.Timestamp at = 23; repeated google.protobuf.Timestamp times = 24;
  google.protobuf.Duration took = 25; google.protobuf.StringValue sv = 26; google.protobuf.UInt64Value uv = 27;
  repeated google.protobuf.BoolValue bvs = 28; google.protobuf.Struct st = 29; google.protobuf.Value v = 30;
  google.protobuf.ListValue lv = 31; google.protobuf.Any any = 32; google.protobuf.Empty empty = 33;
  oneof choice { string text = 34; google.protobuf.Empty nothing = 35; int32 number = 36; }
  optional string maybe = 37; map<string, google.protobuf.Timestamp> seen = 38;
}
"""
PROTO2 = """
syntax = "proto2";
package t;
enum Color { RED = 1; BLUE = 2; }
message M {
  required int32 id = 1;
  optional Color color = 2 [default = BLUE];
  optional string name = 3 [default = "x"];
  repeated Color colors = 4;
  repeated group Line = 5 { required string sku = 1; optional int32 n = 2; }
  optional Sub sub = 6;
  message Sub { required string need = 1; }
}
message S { optional string text = 1; map<string, string> texts = 2; optional int32 n = 3; }
message C { optional Color color = 2; repeated Color colors = 4; }
"""


@pytest.fixture(scope="module")
def proto3() -> MessageSchema:
    return from_text(PROTO3, "M")


@pytest.fixture(scope="module")
def proto2() -> MessageSchema:
    return from_text(PROTO2, "M")


def new(schema: MessageSchema) -> Any:
    return GetMessageClass(schema.descriptor())()


def decode(schema: MessageSchema, *bodies: Any) -> Decoded:
    values = [b if isinstance(b, bytes) else b.SerializePartialToString() for b in bodies]
    return ProtobufDecoder(schema)(pa.array(values, pa.binary()))


def row(schema: MessageSchema, body: Any) -> dict[str, Any]:
    """Beside a record that is refused, so that both ways of putting columns together are seen to work."""
    decoded = decode(schema, body, b"\x00")
    assert list(decoded.failures) == [1]
    names = [field.name for field in schema.descriptor().fields]
    return dict(zip(names, [column[0].as_py() for column in decoded.columns], strict=True))


def test_every_type_has_its_column(proto3: MessageSchema) -> None:
    assert struct_of(proto3.descriptor()).columns().replace("`", "").split(", ") == [
        *("i32 int", "s32 int", "sf32 int", "i64 bigint", "s64 bigint", "sf64 bigint", "u32 bigint", "f32 bigint"),
        *("u64 decimal(20,0)", "f64 decimal(20,0)", "f float", "d double", "b boolean", "s string", "by binary"),
        *("color string", "inner struct<x:int,y:int>", "inners array<struct<x:int,y:int>>", "colors array<string>"),
        *("by_name map<string,struct<x:int,y:int>>", "by_number map<string,binary>"),
        *("by_bool map<string,decimal(20,0)>", "at timestamp", "times array<timestamp>", "took bigint", "sv string"),
        *("uv decimal(20,0)", "bvs array<boolean>", "st string", "v string", "lv string"),
        *("any struct<type_url:string,value:binary>", "empty boolean", "text string", "nothing boolean"),
        *("number int", "maybe string", "seen map<string,timestamp>"),
    ]


def test_empty_message_has_zeros_where_there_is_no_presence_and_nulls_where_there_is(proto3: MessageSchema) -> None:
    found = row(proto3, b"")
    zeros = {n: found[n] for n in ("i32", "u32", "u64", "f", "b", "s", "by", "color", "inners", "by_name")}
    assert zeros == {
        **{"i32": 0, "u32": 0, "u64": Decimal(0), "f": 0.0, "b": False, "s": "", "by": b"", "color": "NONE"},
        **{"inners": [], "by_name": []},
    }
    for name in ("inner", "at", "took", "sv", "st", "v", "any", "empty", "text", "nothing", "number", "maybe"):
        assert found[name] is None, name


def test_largest_unsigned_numbers_are_kept(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.u32 = m.f32 = 2**32 - 1
    m.u64 = m.f64 = m.by_bool[True] = m.uv.value = 2**64 - 1
    found = row(proto3, m)
    assert found["u32"] == found["f32"] == 2**32 - 1
    assert found["u64"] == found["f64"] == found["uv"] == Decimal(2**64 - 1)
    assert found["by_bool"] == [("true", Decimal(2**64 - 1))]


def test_not_a_number_and_infinity_are_numbers(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.f, m.d = math.inf, math.nan
    found = row(proto3, m)
    assert found["f"] == math.inf and math.isnan(found["d"])


def test_enum_is_its_first_name_or_its_number_where_it_has_none(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.color = 1
    m.colors.extend([0, 1, 5, -7])
    found = row(proto3, m)
    assert (found["color"], found["colors"]) == ("RED", ["NONE", "RED", "5", "-7"])


def test_maps_have_text_keys_in_the_order_of_the_keys_themselves(proto3: MessageSchema) -> None:
    m = new(proto3)
    for key in (10, 9, -1):
        m.by_number[key] = b"%d" % key
    m.by_bool[True] = m.by_bool[False] = 1
    found = row(proto3, m)
    assert found["by_number"] == [("-1", b"-1"), ("9", b"9"), ("10", b"10")]
    assert [key for key, _ in found["by_bool"]] == ["false", "true"]


def test_only_the_chosen_member_of_a_oneof_is_not_null(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.nothing.SetInParent()
    found = row(proto3, m)
    assert (found["text"], found["nothing"], found["number"]) == (None, True, None)
    m.number = 0
    found = row(proto3, m)
    assert (found["text"], found["nothing"], found["number"]) == (None, None, 0)


def test_optional_field_tells_zero_from_absent(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.maybe = ""
    m.inner.y = 0
    m.sv.SetInParent()
    found = row(proto3, m)
    assert (found["maybe"], found["inner"], found["sv"]) == ("", {"x": 0, "y": 0}, "")
    m.inner.ClearField("y")
    assert row(proto3, m)["inner"] == {"x": 0, "y": None}


def test_times_are_cut_to_microseconds(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.at.seconds, m.at.nanos = -1, 999_999_999
    m.took.seconds, m.took.nanos = -1, -999_999_999
    m.times.add(seconds=253_402_300_799, nanos=999_999_999)
    m.times.add(seconds=-62_135_596_800)
    found = row(proto3, m)
    assert found["at"] == datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    assert found["took"] == -1_999_999
    assert found["times"] == [datetime.datetime.max.replace(tzinfo=UTC), datetime.datetime.min.replace(tzinfo=UTC)]


@pytest.mark.parametrize(
    ("path", "seconds", "nanos", "kind"),
    [
        ("at", 253_402_300_800, 0, "time"),
        ("at", -62_135_596_801, 0, "time"),
        ("at", 2**63 - 1, 0, "time"),
        ("at", 0, 1_000_000_000, "time"),
        ("at", 0, -1, "time"),
        ("times[]", -(2**63), 2**31 - 1, "time"),
        ("seen[...]", 253_402_300_800, 0, "time"),
        ("took", 315_576_000_001, 0, "duration"),
        ("took", -315_576_000_001, 0, "duration"),
        ("took", 1, -1, "duration"),
        ("took", 0, -1_000_000_000, "duration"),
    ],
)
def test_time_outside_the_calendar_is_out_of_range_and_its_neighbours_are_not(
    proto3: MessageSchema, path: str, seconds: int, nanos: int, kind: str
) -> None:
    good = new(proto3)
    good.at.seconds = good.took.seconds = good.times.add().seconds = good.seen["k"].seconds = 1
    m = type(good).FromString(good.SerializeToString())
    name = path.partition("[")[0]
    bad = m.times.add() if name == "times" else m.seen["z"] if name == "seen" else getattr(m, name)
    bad.seconds, bad.nanos = seconds, nanos
    decoded = decode(proto3, good, m, good, b"\x00", m)
    assert sorted(decoded.failures) == [1, 3, 4]
    assert decoded.failures[1] == decoded.failures[4]
    assert decoded.failures[1].error_class == record.OUT_OF_RANGE
    assert decoded.failures[1].reason.startswith(f"{path}: {seconds} s and {nanos} ns is not a {kind}")
    alone = decode(proto3, good)
    for column, expected in zip(decoded.columns, alone.columns, strict=True):
        assert column[0] == column[2] == expected[0]
        assert column[1].as_py() is None


def test_dynamic_values_are_json(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.st.update({"b": [1, 2.5, None, True], "a": {"ü": 'q"'}})
    m.v.number_value = -0.0
    m.lv.extend([1e300, "x"])
    found = row(proto3, m)
    assert (found["st"], found["v"]) == ('{"a":{"ü":"q\\""},"b":[1,2.5,null,true]}', "-0.0")
    assert found["lv"] == '[1e+300,"x"]'
    m.v.Clear()
    m.v.SetInParent()
    assert row(proto3, m)["v"] == "null"


def test_number_that_json_does_not_have_is_out_of_range(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.lv.add_struct()["x"] = math.nan
    decoded = decode(proto3, m, b"")
    assert [f.error_class for f in decoded.failures.values()] == [record.OUT_OF_RANGE]
    assert decoded.failures[0].reason == "lv: a number that JSON does not have"


def test_any_is_its_type_and_its_bytes(proto3: MessageSchema) -> None:
    m = new(proto3)
    m.any.type_url, m.any.value = "x/y.Z", b"\x01"
    assert row(proto3, m)["any"] == {"type_url": "x/y.Z", "value": b"\x01"}


def test_proto2_absent_is_null_whatever_the_default(proto2: MessageSchema) -> None:
    m = new(proto2)
    m.id = 0
    expected = {"id": 0, "color": None, "name": None, "colors": [], "line": [], "sub": None}
    assert row(proto2, m) == expected
    assert [member.required for member in struct_of(proto2.descriptor()).members] == [True, *[False] * 5]


def test_proto2_groups_are_messages(proto2: MessageSchema) -> None:
    m = new(proto2)
    m.id = 1
    m.line.add(sku="a")
    m.line.add(sku="b", n=2)
    assert row(proto2, m)["line"] == [{"sku": "a", "n": None}, {"sku": "b", "n": 2}]


def test_required_field_that_is_missing_is_named(proto2: MessageSchema) -> None:
    nested = new(proto2)
    nested.id = 1
    nested.sub.SetInParent()
    nested.line.add()
    decoded = decode(proto2, b"", b"\x08\x01", nested)
    assert {i: (f.error_class, f.reason) for i, f in decoded.failures.items()} == {
        0: (record.MISSING_FIELD, "id: required, but absent"),
        2: (record.MISSING_FIELD, "line[0].sku, sub.need: required, but absent"),
    }
    assert decoded.columns[0].to_pylist() == [None, 1, None]


@pytest.mark.parametrize("message", ["M", "C"])  # read record by record because of the group, and at once
def test_closed_enum_of_an_unknown_number_is_absent_as_protobuf_defines_it(message: str) -> None:
    schema = from_text(PROTO2, message)
    assert suits(shape_of(schema.descriptor())) == (message == "C")
    found = row(schema, b"\x08\x01\x10\x09\x20\x01\x20\x09\x20\x02")
    assert (found["color"], found["colors"]) == (None, ["RED", "BLUE"])


def test_unknown_fields_inside_a_time_do_not_change_it(proto3: MessageSchema) -> None:
    inside = b"\x08\x01\x0a\x02\x08\x05\x18\x07\x0d\x01\x01\x01\x01"  # 1 s, then 1 as other wire types, and 3
    found = row(proto3, b"\xba\x01" + bytes([len(inside)]) + inside)
    assert found["at"] == datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("bad", [b"\x0a\x01\xff", b"\x12\x05\x0a\x01\xff\x12\x00", b"\x12\x05\x0a\x00\x12\x01\xff"])
def test_text_that_is_none_fails_where_proto2_lets_it_pass(bad: bytes) -> None:
    schema = from_text(PROTO2, "S")
    decoded = decode(schema, b"\x18\x07", bad, b"\x0a\x01a")
    assert [(i, f.error_class) for i, f in decoded.failures.items()] == [(1, record.MALFORMED)]
    assert decoded.failures[1].reason.endswith("invalid UTF-8")
    assert decoded.columns[0].to_pylist() == [None, None, "a"]
    assert decoded.columns[2].to_pylist() == [7, None, None]


def test_recursive_message_is_refused_with_the_path_of_the_circle() -> None:
    text = "message A { B b = 1; } message B { map<string, C> c = 1; } message C { A a = 1; }"
    schema = from_text(f'syntax="proto3"; {text}', "A")
    with pytest.raises(RecursiveMessage) as raised:
        struct_of(schema.descriptor())
    assert raised.value.path == "b.c.a"
    assert isinstance(raised.value, ValueError)


def test_a_message_used_twice_side_by_side_is_not_recursive() -> None:
    schema = from_text('syntax="proto3"; message A { B b = 1; B c = 2; } message B { int32 x = 1; }', "A")
    assert struct_of(schema.descriptor()).ddl() == "struct<`b`:struct<`x`:int>,`c`:struct<`x`:int>>"


DOUBLING = "".join(f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; }}" for i in range(20))
DEEP = "".join(f"message M{i} {{ M{i + 1} a = 1; }}" for i in range(60))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message M0 {}", "has no fields"),
        ("message M0 { int32 aB = 1; int32 ab = 2; }", "upper from lower case"),
        (DOUBLING + "message M20 { int32 x = 1; }", str(MOST_FIELDS)),
        (DEEP + "message M60 { int32 x = 1; }", "levels deep"),
    ],
)
def test_messages_that_cannot_be_columns_are_refused_with_the_reason(text: str, said: str) -> None:
    schema = from_text('syntax="proto3";' + text, "M0")
    with pytest.raises(SchemaMistake, match=said):
        struct_of(schema.descriptor())


def test_a_message_that_only_has_the_name_of_a_well_known_one_is_a_message() -> None:
    messages = "message Timestamp { string x = 1; } message A { Timestamp t = 1; }"
    schema = from_text(f'syntax="proto3"; package google.protobuf; {messages}', "A")
    assert struct_of(schema.descriptor()).ddl() == "struct<`t`:struct<`x`:string>>"


def test_editions_are_read_by_their_features() -> None:
    text = """edition = "2023";
    import "google/protobuf/timestamp.proto";
    message A {
      int32 tracked = 1;
      int32 plain = 2 [features.field_presence = IMPLICIT];
      int32 needed = 3 [features.field_presence = LEGACY_REQUIRED];
      google.protobuf.Timestamp at = 4 [features.message_encoding = DELIMITED];
    }"""
    schema = from_text(text)
    m = new(schema)
    m.needed, m.at.seconds = 5, 1
    expected = {"tracked": None, "plain": 0, "needed": 5, "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
    assert row(schema, m) == expected
    assert decode(schema, b"").failures[0].error_class == record.MISSING_FIELD
