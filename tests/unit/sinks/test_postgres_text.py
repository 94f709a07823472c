"""Arrow columns as COPY reads them. What PostgreSQL makes of them is tested on a server."""

from __future__ import annotations

import csv as reader
import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.sinks.postgres.text import csv


def fields(column: pa.Array) -> list[str]:
    return csv({"a": column, "b": pa.array([1] * len(column))}).decode().replace(",1\n", "\n").split("\n")[:-1]


def test_null_is_an_empty_field_and_an_empty_text_is_a_quoted_one() -> None:
    assert fields(pa.array(["", None, "a"])) == ['""', "", '"a"']


def test_bytes_are_hex_and_a_slice_is_only_its_own_rows() -> None:
    column = pa.array([b"zz", b"\x00\xff", None, b""])
    assert fields(column) == ['"\\x7a7a"', '"\\x00ff"', "", '"\\x"']
    assert fields(column.slice(1, 2)) == ['"\\x00ff"', ""]


def test_arrays_are_literals_and_a_slice_is_only_its_own_rows() -> None:
    assert fields(pa.array([[1, None], None, []])) == ['"{1,NULL}"', "", '"{}"']
    assert fields(pa.array([[9], [1, None], None, []]).slice(1, 2)) == ['"{1,NULL}"', ""]
    assert fields(pa.array([["NULL", None]])) == ['"{""NULL"",NULL}"']
    assert fields(pa.array([[b"\x01"]])) == ['"{""\\\\x01""}"']


def test_moments_are_in_utc_without_a_zone() -> None:
    column = pa.array([dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)], pa.timestamp("us", tz="Europe/Berlin"))
    assert fields(column) == ["2024-07-01 12:00:00.000000"]


def test_numbers_are_exact() -> None:
    assert fields(pa.array([Decimal("12345678901234567890.10")], pa.decimal128(38, 2))) == ["12345678901234567890.10"]
    assert fields(pa.array([0.1, float("nan"), float("-inf")])) == ["0.1", "nan", "-inf"]


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")))))
def test_any_text_is_read_back_by_a_reader_of_csv(texts: list[str | None]) -> None:
    written = csv({"a": pa.array(texts, pa.string()), "b": pa.array(range(len(texts)))}).decode()
    read = list(reader.reader(io.StringIO(written, newline="")))
    assert [row[0] for row in read] == [text or "" for text in texts]
