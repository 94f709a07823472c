"""Rules over decimals of any size that a column can have."""

from __future__ import annotations

from decimal import Decimal as Number

import pyarrow as pa
import pytest

from penstock.contract.native import condition
from penstock.spec.types import Decimal, Member, Struct


def holds(rule: str, value: str, precision: int = 38, scale: int = 10) -> bool | None:
    found = condition(rule, Struct((Member("amount", Decimal(precision, scale)),)))
    assert found is not None, "not native"
    column = pa.array([Number(value)], pa.decimal128(precision, scale))
    answer: bool | None = found({"amount": column}).to_pylist()[0]
    return answer


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ("amount < 99999999999999999999999999", "1", True),
        ("amount < 99999999999999999999999999", "99999999999999999999999999", False),
        ("amount = 9999999999999999999999999999.0123456789", "9999999999999999999999999999.0123456789", True),
        ("amount > -9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", False),
        ("amount >= -9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999", True),
        ("amount in (1, 9999999999999999999999999999)", "9999999999999999999999999999", True),
        ("amount between 0 and 9999999999999999999999999999", "12.5", True),
    ],
)
def test_decimal_of_more_digits_than_python_rounds_by_itself(rule: str, value: str, expected: bool) -> None:
    assert holds(rule, value) is expected


@pytest.mark.parametrize("number", [f"1{'0' * 28}", "0.12345678901", "1" * 400, f"{'1' * 90}.{'1' * 90}"])
def test_number_that_the_column_cannot_hold_is_left_to_the_engine(number: str) -> None:
    assert condition(f"amount < {number}", Struct((Member("amount", Decimal(38, 10)),))) is None


def test_number_of_38_digits_without_places() -> None:
    assert holds(f"amount <= {'9' * 38}", "9" * 38, 38, 0) is True
    assert condition(f"amount <= {'9' * 39}", Struct((Member("amount", Decimal(38, 0)),))) is None
    assert holds(f"amount = 0.{'9' * 38}", f"0.{'9' * 38}", 38, 38) is True
