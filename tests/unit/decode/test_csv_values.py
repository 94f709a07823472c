"""A field of a CSV line is read as its type or refused with a reason: never as something else, never as null."""

from __future__ import annotations

import base64
import datetime
import json
import math
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import record
from penstock.decode.csv import CsvDecoder
from penstock.decode.json import JsonDecoder
from penstock.record import Failure
from penstock.spec.types import Decimal, Member, Scalar, Struct, Type, parse

UTC = datetime.UTC
TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(6,2)", "date", "timestamp",
         "timestamp_ntz", "binary")  # fmt: skip


def read(declared: Type, field: str, *, required: bool = False) -> Any:
    """What the second of two fields is read as, or why it is not."""
    struct = Struct((Member("id", Scalar("int")), Member("x", declared, required)))
    decoded = CsvDecoder(struct, ",")(pa.array([f"1,{field}".encode()], pa.binary()))
    return decoded.failures.get(0) or decoded.columns[1].to_pylist()[0]


def test_line_of_another_number_of_fields_is_malformed() -> None:
    decoder = CsvDecoder(Struct((Member("id", Scalar("int")), Member("x", Scalar("int")))), ",")
    failures = decoder(pa.array([b"1;2", b"1,2,3"], pa.binary())).failures
    assert [failures[i].reason for i in range(2)] == ["1 field, the schema has 2", "3 fields, the schema has 2"]


@pytest.mark.parametrize(
    ("declared", "field", "expected"),
    [
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("int", "0", 0),
        ("int", "-12", -12),
        ("int", '"12"', 12),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("double", "1", 1.0),
        ("double", "-1.5e-07", -1.5e-07),
        ("decimal(6,2)", "12.50", Number("12.50")),
        ("decimal(6,2)", "1e3", Number("1000.00")),
        ("date", "2024-01-01", datetime.date(2024, 1, 1)),
        ("timestamp", "2024-01-01T10:00:00Z", datetime.datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("timestamp", "2024-01-01T10:00:00+02:00", datetime.datetime(2024, 1, 1, 8, tzinfo=UTC)),
        ("timestamp_ntz", "2024-01-01T10:00:00", datetime.datetime(2024, 1, 1, 10)),
        ("binary", "AAE=", b"\0\1"),
        ("string", "NULL", "NULL"),
        ("string", "nan", "nan"),
        ("string", "1.0", "1.0"),
        ("string", '"a,""b"""', 'a,"b"'),
    ],
)
def test_a_field_is_read_as_its_type(declared: str, field: str, expected: object) -> None:
    assert read(parse(declared), field) == expected


@pytest.mark.parametrize("declared", [t for t in TYPES if t != "binary"])  # four letters are base64
@pytest.mark.parametrize(
    "field", ["NULL", "null", "None", "nil", "N/A", "nan", "NaN", "inf", "Infinity", "yes", "TRUE", "True", " true",
              "1_000", "١", "0x10", "--1", "-", ".", "{}", "[]", '"1,2"', "1 2", "2024-01-01T25:00:00Z",
              "2024-02-30", "01.02.2024"],
)  # fmt: skip
def test_what_is_no_value_of_the_type_is_a_failure_that_names_the_field(declared: str, field: str) -> None:
    found = read(parse(declared), field)
    assert isinstance(found, Failure), found
    assert found.error_class == record.WRONG_TYPE
    assert found.reason.startswith("x: ")


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ("boolean", "1"),
        ("boolean", "0"),
        *[(whole, field) for whole in ("tinyint", "int", "bigint") for field in ("1.0", "1e3", "+5", "007")],
        *[(one, field) for one in ("float", "double", "decimal(6,2)") for field in (".5", "5.", "+5", "007.5", "1e")],
        ("date", "20240101"),
        ("date", "2024-01-01T00:00:00Z"),
        *[(time, field) for time in ("timestamp", "timestamp_ntz") for field in ("20240101", "86400", "1.5", "-1")],
        ("timestamp_ntz", "2024-01-01T10:00:00Z"),
        ("binary", "AAE"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_value_of_the_type_is_a_failure(declared: str, field: str) -> None:
    found = read(parse(declared), field)
    assert isinstance(found, Failure), found
    assert found.error_class == record.WRONG_TYPE


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ("tinyint", "128"),
        ("int", "2147483648"),
        ("bigint", "9223372036854775808"),
        ("bigint", "9" * 5000),
        ("float", "1e39"),
        ("double", "1e999"),
        ("decimal(6,2)", "12.505"),
        ("decimal(6,2)", "12345.00"),
    ],
)
def test_a_number_that_does_not_fit_is_out_of_range(declared: str, field: str) -> None:
    found = read(parse(declared), field)
    assert isinstance(found, Failure), found
    assert found.error_class == record.OUT_OF_RANGE


@pytest.mark.parametrize("declared", ["string", *TYPES])
def test_only_an_empty_field_without_quotes_is_null(declared: str) -> None:
    assert read(parse(declared), "") is None
    assert read(parse(declared), "", required=True).error_class == record.MISSING_FIELD
    quoted = read(parse(declared), '""', required=True)
    if declared in ("string", "binary"):
        assert quoted == ("" if declared == "string" else b"")
    else:
        assert quoted.error_class == record.WRONG_TYPE


def test_negative_zero_keeps_its_sign_where_there_is_one() -> None:
    found = [read(parse(declared), "-0") for declared in ("double", "float", "int", "decimal(6,2)")]
    assert repr(found) == repr([-0.0, -0.0, 0, Number("0.00")])


def test_a_number_since_the_epoch_is_a_time_only_where_the_schema_says_so() -> None:
    assert read(Scalar("timestamp", "s"), "86400") == datetime.datetime(1970, 1, 2, tzinfo=UTC)
    assert read(Scalar("timestamp", "s"), "86400.5").error_class == record.WRONG_TYPE
    assert read(Scalar("timestamp", "s"), "2024-01-01T10:00:00Z").error_class == record.WRONG_TYPE


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "]", "^", "-", "\\", " "])
def test_quoted_and_empty_fields_are_told_apart_in_any_place(delimiter: str) -> None:
    struct = Struct(tuple(Member(name, Scalar("string")) for name in "abcde"))

    def row(fields: list[str], end: str = "") -> list[Any]:
        decoded = CsvDecoder(struct, delimiter)(pa.array([(delimiter.join(fields) + end).encode()], pa.binary()))
        assert not decoded.failures
        return [column.to_pylist()[0] for column in decoded.columns]

    assert row(['""', "", "x", "", '""']) == ["", None, "x", None, ""]
    assert row(["", '""', "x", '""', ""]) == [None, "", "x", "", None]
    assert row(["", '"a""b"', '""""', 'x""y', '""'], "\r\n") == [None, 'a"b', '"', 'x""y', ""]
    assert row(['"two\nlines"', "", '""', f'"{delimiter}"', ""], "\n") == ["two\nlines", None, "", delimiter, None]


def test_a_reason_says_field_value_and_what_was_expected() -> None:
    assert read(Scalar("int"), "NULL").reason == 'x: "NULL" is not a whole number'
    assert read(Decimal(6, 2), "1_0").reason == 'x: "1_0" is not a number'
    assert read(Scalar("boolean"), "1").reason == 'x: "1" is not true or false'
    expected = 'x: invalid RFC3339 encoded datetime; the value is "20240101"'
    assert read(Scalar("timestamp"), "20240101").reason == expected
    assert read(Scalar("tinyint"), "128").reason == "x: expected int <= 127; the value is 128"


TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters='",\r\n'), min_size=1, max_size=12)
NUMERIC = st.one_of(st.integers().map(str), st.floats().map(str), st.decimals().map(str), st.from_regex(r"[-+0-9.eE]+"))


@given(st.sampled_from([t for t in TYPES if t != "decimal(6,2)"]), TEXT | NUMERIC.filter(lambda t: "\n" not in t))
def test_a_field_is_what_json_would_read_with_quotes_or_without(declared: str, field: str) -> None:
    """Bare where the type is a number or a boolean, as a string elsewhere: the same value, or both refuse it."""
    bare = declared in TYPES[:7]
    document = field if bare else json.dumps(field)
    decoded = JsonDecoder(Struct((Member("x", parse(declared)),)))(pa.array([f'{{"x":{document}}}'.encode()]))
    expected = decoded.failures.get(0) or decoded.columns[0].to_pylist()[0]
    if bare and (field != field.strip() or field == "null"):
        expected = Failure(record.WRONG_TYPE, "")
    found = read(parse(declared), field)
    if isinstance(expected, Failure):
        assert isinstance(found, Failure)
    else:
        assert found == expected
        assert not isinstance(found, float) or math.copysign(1, found) == math.copysign(1, expected)


@given(st.binary(max_size=9))
def test_bytes_are_base64_text(value: bytes) -> None:
    text = base64.b64encode(value).decode()
    assert read(Scalar("binary"), text or '""') == value
