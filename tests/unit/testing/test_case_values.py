"""When a value of the engine is the one that a case expects, and how values are shown."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.testing.case.values import rows_of, same, shown


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, Decimal("1.00")),
        (Decimal("12.50"), Decimal("12.5")),
        ("12345678901234567890.12", Decimal("12345678901234567890.12")),
        (1, 1.0),
        (Decimal("0.3"), 0.1 + 0.2),
        (float("nan"), float("nan")),
        ("2026-11-01T10:00:00Z", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T12:00:00+02:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01 10:00:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T10:00:00", datetime(2026, 11, 1, 10)),
        ("2026-11-01", date(2026, 11, 1)),
        ("text", b"text"),
        ({"hex": "00ff"}, b"\x00\xff"),
        ({"base64": "AP8="}, b"\x00\xff"),
        (None, None),
        (True, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
        ([1, {"a": 2}], [Decimal(1), {"a": 2, "b": 3}]),
    ],
)
def test_same_value_in_another_form(expected: object, got: object) -> None:
    assert same(expected, got)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("1", 1),
        (1, "1"),
        (1, True),
        (True, 1),
        (0, None),
        (None, 0),
        ("", None),
        (Decimal("12.51"), Decimal("12.5")),
        (Decimal("0.31"), 0.3),
        ("12.5x", Decimal("12.5")),
        ("2026-11-01T10:00:01Z", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T10:00:00Z", datetime(2026, 11, 1, 10)),  # a local time is no moment
        ("no time", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T00:00:00Z", date(2026, 11, 1)),
        ({"hex": "zz"}, b"\x00"),
        ([1, 2], [2, 1]),
        ([1], [1, 2]),
        ({"a": 1}, {"b": 1}),
        (10**400, 1.0),
    ],
)
def test_another_value(expected: object, got: object) -> None:
    assert not same(expected, got)


def test_exact_mapping_has_no_field_that_is_not_named_but_null_ones() -> None:
    assert not same({"a": 1}, {"a": 1, "b": 2}, exact=True)
    assert same({"a": 1}, {"a": 1, "b": None}, exact=True)


def test_float_has_the_digits_it_was_made_of_and_maps_are_mappings() -> None:
    types = {
        "f": pa.float32(),
        "m": pa.map_(pa.string(), pa.float32()),
        "s": pa.struct([("f", pa.list_(pa.float32()))]),
        "t": pa.timestamp("us", tz="Europe/Berlin"),
    }
    row = {"f": 0.1, "m": [("a", 0.1)], "s": {"f": [0.1, None]}, "t": datetime(2026, 7, 1, 10, tzinfo=UTC)}
    table = pa.table({name: pa.array([row[name]], type_) for name, type_ in types.items()})
    (found,) = rows_of(table)
    assert found == {"f": 0.1, "m": {"a": 0.1}, "s": {"f": [0.1, None]}, "t": datetime(2026, 7, 1, 10, tzinfo=UTC)}
    assert shown(found["t"]) == "2026-07-01T10:00:00Z"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain text", "plain text"),
        ("5", '"5"'),
        ("1e5", '"1e5"'),
        ("null", '"null"'),
        ("", '""'),
        (" a", '" a"'),
        ("a\nb", '"a\\nb"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("a: b", '"a: b"'),
        (None, "null"),
        (False, "false"),
        (Decimal("1E+2"), "100"),
        (b"\xff", "{hex: ff}"),
        ({"a": [1, "x, y"]}, '{a: [1, "x, y"]}'),
    ],
)
def test_value_is_shown_as_it_would_be_written(value: object, text: str) -> None:
    assert shown(value) == text
