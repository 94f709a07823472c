"""How each kind of value is written as JSON, and which rows cannot be."""

from __future__ import annotations

import datetime
import json
import pickle
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest
from batches import batch_of, checked

from penstock.decode.arrow.columns import arrow_type
from penstock.encode.json import JsonEncoder
from penstock.spec.types import Member, Scalar, Struct, parse

NAN, INFINITY = float("nan"), float("inf")
UTC = datetime.UTC


def written(declared: str, *values: Any) -> list[str]:
    """What stands for each value under the name x."""
    struct = Struct((Member("x", parse(declared)),))
    found = checked(JsonEncoder(struct)(batch_of(struct, [{"x": value} for value in values])))
    return [value[5:-1].decode() for value in found if value is not None]


def reasons(declared: str, column: pa.Array) -> dict[int, str]:
    encoded = JsonEncoder(Struct((Member("x", parse(declared)),)))(pa.RecordBatch.from_arrays([column], names=["x"]))
    checked(encoded)
    return {i: failure.reason for i, failure in encoded.failures.items()}


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("tinyint", -128, "-128"),
        ("bigint", -(2**63), "-9223372036854775808"),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("decimal(5,2)", Number("1.50"), "1.50"),
        ("decimal(10,0)", Number("-12345"), "-12345"),
        ("decimal(38,20)", Number("0E-20"), "0E-20"),
        ("decimal(38,38)", Number("1E-38"), "1E-38"),
        ("date", datetime.date(1, 1, 1), '"0001-01-01"'),
        ("date", datetime.date(9999, 12, 31), '"9999-12-31"'),
        ("timestamp", datetime.datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00.000000Z"'),
        ("timestamp", datetime.datetime.max.replace(tzinfo=UTC), '"9999-12-31T23:59:59.999999Z"'),
        ("timestamp_ntz", datetime.datetime(1969, 12, 31, 23, 59, 59, 1), '"1969-12-31T23:59:59.000001"'),
        ("binary", b"", '""'),
        ("binary", b"\x00", '"AA=="'),
        ("binary", b"\x00\xff", '"AP8="'),
        ("binary", b"\x00\xff\x10", '"AP8Q"'),
        ("string", "", '""'),
        ("string", '/"\\\b\t\n\f\r\0\x1f\x7f', '"/\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u001F\x7f"'),
        ("string", "é\u2028\U0001f600", '"é\u2028\U0001f600"'),
        ("array<int>", [], "[]"),
        ("array<int>", [None, 1, None], "[null,1,null]"),
        ("array<array<int>>", [None, [], [None]], "[null,[],[null]]"),
        ("map<string,int>", {}, "{}"),
        ("map<string,int>", {'a"\n': None, "": 2}, '{"a\\"\\n":null,"":2}'),
        ("struct<a:int,b:int>", {"a": None, "b": None}, "{}"),
        ("struct<a:int,b:int>", {"a": None, "b": 1}, '{"b":1}'),
        ("array<struct<a:int>>", [{"a": None}, None, {"a": 1}], '[{},null,{"a":1}]'),
    ],
)
def test_a_value_is_written_as_spark_writes_it(declared: str, value: Any, text: str) -> None:
    assert written(declared, value) == [text]


def test_floats_are_the_same_number_and_look_like_one() -> None:
    values = [1.0, -0.0, 0.1, -2.5, 1e9, 123456789012345680.0, 1e22, 1e-7, 5e-324, 1.7976931348623157e308]
    texts = written("double", *values)
    assert [float(text) for text in texts] == values
    assert texts[:4] == ["1.0", "-0.0", "0.1", "-2.5"]
    assert all(isinstance(json.loads(text), float) for text in texts)
    assert written("float", 0.1, 3.4028234663852886e38, 16777216.0)[0] == "0.1"


def test_what_is_no_number_is_text_between_numbers() -> None:
    expected = ['"NaN"', "1.0", '"Infinity"', "0.5", '"-Infinity"']
    for declared in ("float", "double"):
        assert written(declared, NAN, 1.0, INFINITY, 0.5, -INFINITY) == expected


def test_only_the_values_that_need_it_are_escaped() -> None:
    every = [chr(byte) for byte in range(0x20)]
    texts = ["plain", 'a "quoted" word', "", "a\\b", *every, "plain again", "\\\\", '\\"', "\\u0041"]
    for text, found in zip(texts, written("string", *texts), strict=True):
        assert json.loads(found) == text
    assert written("string", *texts)[0] == '"plain"'


def test_names_are_escaped_and_keep_their_order() -> None:
    names = ["z", 'a"\\\n\x01 b', "é", "", "a"]
    struct = Struct(tuple(Member(name, Scalar("int")) for name in names))
    (value,) = checked(JsonEncoder(struct)(batch_of(struct, [dict.fromkeys(names, 1)])))
    assert value == '{"z":1,"a\\"\\\\\\n\\u0001 b":1,"é":1,"":1,"a":1}'.encode()


def test_a_comma_stands_between_members_whichever_are_there() -> None:
    struct = Struct(tuple(Member(name, Scalar("int")) for name in "abcd"))
    rows = [{name: i if i >> bit & 1 else None for bit, name in enumerate("abcd")} for i in range(16)]
    for always in (None, "a", "c", "d"):
        here = [row for row in rows if always is None or row[always] is not None]
        found = checked(JsonEncoder(struct)(batch_of(struct, here)))
        assert [json.loads(v or b"") for v in found] == [{k: v for k, v in r.items() if v is not None} for r in here]


def test_columns_are_found_by_name_and_others_are_not_written() -> None:
    batch = pa.RecordBatch.from_pydict({"other": [0], "b": pa.array([2], pa.int32()), "a": pa.array([1], pa.int32())})
    struct = Struct((Member("a", Scalar("int")), Member("b", Scalar("int"))))
    assert checked(JsonEncoder(struct)(batch)) == [b'{"a":1,"b":2}']


def test_a_struct_without_members_is_an_empty_object() -> None:
    batch = pa.RecordBatch.from_pydict({"other": [0, 1]})
    assert checked(JsonEncoder(Struct(()), b"\0")(batch)) == [b"\0{}", b"\0{}"]
    inner = pa.RecordBatch.from_arrays([pa.array([{}, None], pa.struct([]))], names=["x"])
    assert checked(JsonEncoder(Struct((Member("x", Struct(())),)))(inner)) == [b'{"x":{}}', b"{}"]


def test_bytes_that_lie_below_a_null_are_not_written() -> None:
    column = pa.array(["a", "hidden", "b"])
    valid = pa.py_buffer(bytes([0b101]))
    column = pa.Array.from_buffers(pa.string(), 3, [valid, *column.buffers()[1:]])
    struct = Struct((Member("x", Scalar("string")),))
    found = checked(JsonEncoder(struct)(pa.RecordBatch.from_arrays([column], names=["x"])))
    assert found == [b'{"x":"a"}', b"{}", b'{"x":"b"}']


def test_columns_with_wide_offsets_are_written_too() -> None:
    columns = [pa.array(['a"'], pa.large_string()), pa.array([b"a"], pa.large_binary())]
    columns.append(pa.array([["b"]], pa.large_list(pa.large_string())))
    struct = Struct(tuple(Member(n, parse(t)) for n, t in (("s", "string"), ("b", "binary"), ("l", "array<string>"))))
    found = checked(JsonEncoder(struct)(pa.RecordBatch.from_arrays(columns, names=["s", "b", "l"])))
    assert found == [b'{"s":"a\\"","b":"YQ==","l":["b"]}']


def test_times_outside_the_calendar_fail_their_row_and_no_other() -> None:
    days = pa.array([-719_163, 0, 2_932_897, None], pa.int32()).view(pa.date32())
    assert reasons("date", days) == {
        0: "x: -719163 is not a date in the years 1 to 9999",
        2: "x: 2932897 is not a date in the years 1 to 9999",
    }
    late = 253_402_300_800_000_000
    times = pa.array([0, late, None, -(2**63)], pa.int64())
    for declared in ("timestamp", "timestamp_ntz"):
        found = reasons(declared, times.view(arrow_type(parse(declared))))
        assert found.keys() == {1, 3}
        assert found[1] == f"x: {late} us is not a time in the years 1 to 9999"


def test_text_that_is_not_utf_8_fails_its_row_wherever_it_is() -> None:
    bad = "invalid UTF-8: byte 0xff at position 1 of the text"
    raw = pa.array([b"a", b'"', b"a\xff"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    offsets = pa.array([0, 1, 3], pa.int32())
    good = pa.array(["k", "l", "m"])
    assert reasons("string", texts) == {2: f"x: {bad}"}
    assert reasons("array<string>", pa.ListArray.from_arrays(offsets, texts)) == {1: f"x[1]: {bad}"}
    assert reasons("map<string,string>", pa.MapArray.from_arrays(offsets, good, texts)) == {1: f"x[...]: {bad}"}
    assert reasons("map<string,string>", pa.MapArray.from_arrays(offsets, texts, good)) == {1: f"x[...]: {bad}"}
    inner = pa.StructArray.from_arrays([good, texts], ["a", "b"])
    assert reasons("struct<a:string,b:string>", inner) == {2: f"x.b: {bad}"}


def test_an_encoder_that_travelled_writes_the_same() -> None:
    struct = Struct((Member("a", Scalar("int")), Member("at", Scalar("timestamp", epoch="ms"))))
    batch = batch_of(struct, [{"a": 1, "at": datetime.datetime(2024, 2, 29, tzinfo=UTC)}, {"a": None, "at": None}])
    encoder = JsonEncoder(struct, b"\0\0\0\0\x07")
    values = checked(pickle.loads(pickle.dumps(encoder))(batch))
    assert values == checked(encoder(batch))
    assert values == [b'\0\0\0\0\x07{"a":1,"at":"2024-02-29T00:00:00.000000Z"}', b"\0\0\0\0\x07{}"]
