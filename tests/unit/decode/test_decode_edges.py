"""Inputs that break decoders in production, one by one."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest

from penstock import record
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.json import JsonDecoder
from penstock.record import REASON_LIMIT, Failure
from penstock.spec.types import Member, Scalar, Struct, Type, parse

UTC = datetime.UTC


def decode(declared: str | Type, *documents: bytes) -> Decoded:
    found = parse(declared) if isinstance(declared, str) else declared
    return JsonDecoder(Struct((Member("a", found),)))(pa.array(documents, pa.binary()))


def one(declared: str | Type, value: bytes) -> Any:
    """What `{"a": value}` decodes to: a value, or a failure."""
    decoded = decode(declared, b'{"a":' + value + b"}")
    return decoded.failures.get(0) or decoded.columns[0][0].as_py()


def error_class(found: Any) -> str:
    assert isinstance(found, Failure), found
    return found.error_class


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("double", b"1E-999999999", 0.0),
        ("double", b"18446744073709551616", 2.0**64),
        ("float", b"3.4028235e38", 3.4028234663852886e38),  # Java's text of the largest float
        ("float", b"-3.4028235e38", -3.4028234663852886e38),
        ("bigint", b"9223372036854775807", 2**63 - 1),
        ("bigint", b"-9223372036854775808", -(2**63)),
        ("bigint", b"-0", 0),
        ("decimal(2,1)", b"0.1", Number("0.1")),
        ("decimal(2,1)", b"1e-1", Number("0.1")),
        ("decimal(2,1)", b"0.1000000000000000000000000000000000000000000000000", Number("0.1")),
        ("decimal(10,2)", b"0e-5000", Number(0)),
        ("decimal(10,2)", b"0E+5000", Number(0)),
        ("decimal(38,0)", b"9" * 38, Number("9" * 38)),
        ("decimal(38,38)", b"0." + b"9" * 38, Number("0." + "9" * 38)),
        ("decimal(38,38)", b"-1e-38", Number("-1e-38")),
        ("decimal(18,2)", b'"12.50"', Number("12.50")),
        ("string", b'"\\u0000x"', "\x00x"),
        ("string", b'"\\ud83d\\ude00"', "😀"),
        ("string", '"a\u2028b\u0085c"'.encode(), "a\u2028b\u0085c"),
        ("date", b'"0001-01-01"', datetime.date.min),
        ("date", b'"9999-12-31"', datetime.date.max),
        ("timestamp", b'"0001-01-01T00:00:00Z"', datetime.datetime.min.replace(tzinfo=UTC)),
        ("timestamp", b'"9999-12-31T23:59:59.999999Z"', datetime.datetime.max.replace(tzinfo=UTC)),
        ("timestamp_ntz", b'"9999-12-31T23:59:59.999999"', datetime.datetime.max),
        (Scalar("timestamp", "s"), b"253402300799", datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (Scalar("timestamp", "ms"), b"-62135596800000", datetime.datetime.min.replace(tzinfo=UTC)),
        (Scalar("timestamp_ntz", "us"), b"253402300799999999", datetime.datetime.max),
        ("binary", b'""', b""),
    ],
)
def test_value_at_the_edge_of_its_type_decodes_exactly(declared: str | Type, value: bytes, expected: Any) -> None:
    assert one(declared, value) == expected


@pytest.mark.parametrize("value", [b"1e400", b"-1e400", b"1E+999999999", b"9" * 400, b"9" * 100_000])
@pytest.mark.parametrize("declared", ["double", "float", "bigint", "tinyint", "decimal(38,0)", "decimal(10,2)"])
def test_number_too_large_for_its_type_is_out_of_range(declared: str, value: bytes) -> None:
    assert error_class(one(declared, value)) == record.OUT_OF_RANGE


@pytest.mark.parametrize("places", [3, 38, 39, 40, 41, 60, 77, 400, 5000, 999_999_999])
@pytest.mark.parametrize("declared", ["decimal(10,2)", "decimal(38,0)", "decimal(1,1)"])
def test_decimal_with_more_places_than_declared_is_refused_and_never_rounded_to_zero(
    declared: str, places: int
) -> None:
    """Arrow turns 1e-41 into 0.00 without an error, and 1e-999999999 into the death of the process."""
    assert error_class(one(declared, b"1e-%d" % places)) == record.OUT_OF_RANGE


@pytest.mark.parametrize(
    "text",
    ["NaN", "-sNaN", "Infinity", "-Infinity", "1_000", " 1 ", "1 ", "\\n1", "1\\u00a0", "١", "１", "+5", ".5", "5.",
     "007", "-", "", "1e", "0x10", "1,5", "1d", "--1", "1e1.5", "null", "true"],
)  # fmt: skip
def test_text_that_json_would_not_read_as_a_number_is_no_decimal(text: str) -> None:
    """Python's decimals take most of these."""
    assert error_class(one("decimal(10,2)", f'"{text}"'.encode())) == record.WRONG_TYPE


@pytest.mark.parametrize("value", [b"true", b"[1]", b"{}", b"null"])
def test_what_is_no_number_is_no_decimal(value: bytes) -> None:
    required = Struct((Member("a", parse("decimal(10,2)"), required=True),))
    found = JsonDecoder(required)(pa.array([b'{"a":' + value + b"}"])).failures[0]
    expected = "a: required, but null" if value == b"null" else f"a: {value.decode()} is not a number"
    assert (found.reason, found.error_class == record.MISSING_FIELD) == (expected, value == b"null")
    assert one("array<decimal(10,2)>", b"[1,null]") == [Number("1.00"), None]


def test_decimals_that_arrow_cannot_read_stand_beside_those_it_can() -> None:
    written = [b'"1.50"', b"1.5e0", b'"\\u0031"', b"null", b"0." + b"0" * 60, b"-0", b"150e-2"]
    decoded = decode("decimal(4,2)", *(b'{"a":' + value + b"}" for value in written), b"{}")
    assert decoded.failures == {}
    assert decoded.columns[0].to_pylist() == [*map(Number, ("1.50", "1.50", "1")), None, 0, 0, Number("1.50"), None]


def test_decimal_with_too_many_digits_never_wraps_around() -> None:
    """Arrow reads 20 digits into decimal(38,30) without an error, as another number."""
    assert error_class(one("decimal(38,30)", b"12345678901234567890")) == record.OUT_OF_RANGE


def test_negative_zero_of_a_double_keeps_its_sign_wherever_it_stands() -> None:
    inner = Struct((Member("x", Scalar("double"), required=True), Member("whole", Scalar("bigint"))))
    struct = Struct(
        (
            *(Member(name, parse(name)) for name in ("double", "float", "int", "binary", "string", "decimal(2,1)")),
            Member("list", parse("array<double>")),
            Member("map", parse("map<string,float>")),
            Member("struct", inner),
        )
    )
    document = (
        rb'{"double":-0,"float":-0 ,"int":-0,"binary":"null","string":"\" -0, null","decimal(2,1)":-0,"undeclared":-0,'
        rb'"list":[-0,0,null,1e-0],"map":{"-0,":-0},"struct":{"x":-0,"whole":9223372036854775807}}'
    )
    decoded = JsonDecoder(struct)(pa.array([b'{"double":0}', document, b'{"double":-0,"list":5}', None]))
    assert sorted(decoded.failures) == [2, 3]
    found = [column[1].as_py() for column in decoded.columns]
    assert repr(found[:6]) == repr([-0.0, -0.0, 0, b"\x9e\xe9e", '" -0, null', Number("0.0")])
    assert repr(found[6:]) == repr([[-0.0, 0.0, None, 1.0], [("-0,", -0.0)], {"x": -0.0, "whole": 2**63 - 1}])
    assert repr(decoded.columns[0][0].as_py()) == "0.0"


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("float", b"3.4028236e38", record.OUT_OF_RANGE),
        ("bigint", b"9223372036854775808", record.OUT_OF_RANGE),
        ("tinyint", b"128", record.OUT_OF_RANGE),
        ("int", b"1.0", record.WRONG_TYPE),
        ("int", b'"1"', record.WRONG_TYPE),
        ("int", b"true", record.WRONG_TYPE),
        ("boolean", b"1", record.WRONG_TYPE),
        ("double", b"NaN", record.MALFORMED),
        ("double", b"01", record.MALFORMED),
        ("date", b'"2023-02-29"', record.WRONG_TYPE),
        ("date", b'"0000-01-01"', record.WRONG_TYPE),
        ("timestamp", b'"0001-01-01T00:00:00+10:00"', record.OUT_OF_RANGE),
        ("timestamp", b'"9999-12-31T23:59:59-10:00"', record.OUT_OF_RANGE),
        ("timestamp", b'"2016-12-31T23:59:60Z"', record.WRONG_TYPE),
        ("timestamp_ntz", b'"2024-01-01T00:00:00Z"', record.WRONG_TYPE),
        (Scalar("timestamp", "s"), b"253402300800", record.OUT_OF_RANGE),
        (Scalar("timestamp", "s"), b"-9223372036854775808", record.OUT_OF_RANGE),
        (Scalar("timestamp", "us"), b"9223372036854775807", record.OUT_OF_RANGE),
        ("binary", b'"AAE"', record.WRONG_TYPE),
        ("string", b'"x\x00"', record.MALFORMED),
        ("string", b'"\\ud800"', record.MALFORMED),
        ("string", b'"\xed\xa0\x80"', record.MALFORMED),
        ("string", b'"\xff"', record.MALFORMED),
        ("string", b'"\xc0\x80"', record.MALFORMED),
    ],
)
def test_value_just_outside_its_type_is_refused_with_its_class(
    declared: str | Type, value: bytes, expected: str
) -> None:
    assert error_class(one(declared, value)) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"", record.EMPTY_VALUE),
        (b" \n\t", record.EMPTY_VALUE),
        (b"null", record.MISSING_FIELD),
        (b"[]", record.WRONG_TYPE),
        (b'\xef\xbb\xbf{"a":"x"}', record.MALFORMED),
        (b'{"a":"x"}\x00', record.MALFORMED),
        (b'{"a":"x"}{"a":"y"}', record.MALFORMED),
        ('{"a":"x"}'.encode("utf-16"), record.MALFORMED),
        (b'{"b":' + b"[" * 100_000 + b"]" * 100_000 + b"}", record.MALFORMED),
        (b'{"b":' + b'{"c":' * 100_000, record.MALFORMED),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", record.WRONG_TYPE),
    ],
)
def test_document_that_is_no_record_is_refused_with_its_class(document: bytes, expected: str) -> None:
    decoded = decode("string", document)
    assert error_class(decoded.failures[0]) == expected
    assert len(decoded.failures[0].reason) <= REASON_LIMIT


@pytest.mark.parametrize("undeclared", [b"1e400", b'{"a":5}', b"9" * 5000, b'"\\u0000"', b"[" * 500 + b"]" * 500])
def test_what_is_in_an_undeclared_field_does_not_touch_the_record(undeclared: bytes) -> None:
    decoded = decode("string", b'{"b":' + undeclared + b',"a":"x"}')
    assert decoded.failures == {}
    assert decoded.columns[0].to_pylist() == ["x"]


@pytest.mark.parametrize(
    "document",
    [
        '{"a":"x","größe":5}'.encode("latin-1"),
        '{"größe":5,"a":"x"}'.encode("latin-1"),
        '{"a":"x","b":"größe"}'.encode("latin-1"),
        '{"a":"x","b":{"c":["größe"]}}'.encode("latin-1"),
        '{"a":1,"b":"größe"}'.encode("latin-1"),
        b'{"a":"x","b":"\xed\xa0\x80"}',
        b'{"a":"x","b":"\xc0\x80"}',
    ],
)
def test_record_that_is_not_utf_8_anywhere_is_malformed(document: bytes) -> None:
    struct = Struct((Member("a", Scalar("string")), Member("größe", Scalar("int"))))
    good = '{"a":"x","größe":5}'.encode()
    decoded = JsonDecoder(struct)(pa.array([good, document, None, good], pa.binary()))
    assert decoded.columns[1].to_pylist() == [5, None, None, 5]
    assert decoded.failures[1].error_class == record.MALFORMED
    assert decoded.failures[1].reason.startswith("invalid UTF-8: byte 0x")
    assert decoded.failures[2].error_class == record.NULL_VALUE


def test_field_written_twice_counts_the_last_and_must_fit_both_times() -> None:
    decoded = decode("string", b'{"a":"x","a":"y"}', b'{"a":"x","a":null}', b'{"a":1,"a":"y"}', b'{"a":"x","a":1}')
    assert decoded.columns[0].to_pylist() == ["y", None, None, None]
    assert {i: f.error_class for i, f in decoded.failures.items()} == {2: record.WRONG_TYPE, 3: record.WRONG_TYPE}


def test_record_of_one_megabyte_decodes_and_its_bad_twin_has_a_short_reason() -> None:
    text = b"x" * 1_000_000
    decoded = decode("string", b'{"a":"' + text + b'"}', b'{"a":["' + text + b'"]}', b'{"a":' + text)
    assert decoded.columns[0][0].as_py() == text.decode()
    assert sorted(decoded.failures) == [1, 2]
    assert all(len(f.reason) <= REASON_LIMIT for f in decoded.failures.values())


def test_schema_of_a_thousand_columns_decodes_every_column_and_names_the_bad_one() -> None:
    kinds = [Scalar("int"), Scalar("string"), Scalar("double"), parse("array<bigint>")]
    struct = Struct(tuple(Member(f"c{i}", kinds[i % 4], required=i % 10 == 0) for i in range(1000)))
    good = {f"c{i}": [i, str(i), i / 2, [i]][i % 4] for i in range(1000)}
    bad = {**good, "c998": "no number"}
    decoded = JsonDecoder(struct)(pa.array([json.dumps(good).encode(), json.dumps(bad).encode()], pa.binary()))
    assert {m.name: c[0].as_py() for m, c in zip(struct.members, decoded.columns, strict=True)} == good
    assert decoded.failures[1].reason.startswith("c998: ")


@pytest.mark.parametrize(
    "name", ["a.b", "a b", "it's", "`", "a`b", "😀", "f0", "f1", "$", "a[0]", "key` - at `x", "\x7f"]
)
def test_field_of_any_name_decodes_and_is_named_with_its_value_when_it_fails(name: str) -> None:
    inner = Struct((Member(name, Scalar("int"), required=True),))
    struct = Struct((Member(name, Scalar("int"), required=True), Member("o", inner)))
    documents = [
        {name: 1, "o": {name: 2}},
        {name: "s"},
        {},
        {name: None},
        {name: 1, "o": {name: "s"}},
        {name: 1, "o": {}},
    ]
    decoded = JsonDecoder(struct)(pa.array([json.dumps(d).encode() for d in documents], pa.binary()))
    assert decoded.columns[0].to_pylist() == [1, None, None, None, None, None]
    assert decoded.columns[1][0].as_py() == {name: 2}
    assert {i: f.reason for i, f in decoded.failures.items()} == {
        1: f'{name}: expected int, got string; the value is "s"',
        2: f"{name}: required, but absent",
        3: f"{name}: required, but null",
        4: f'o.{name}: expected int, got string; the value is "s"',
        5: f"o.{name}: required, but absent",
    }
