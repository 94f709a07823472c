"""A decimal is written as the number it is, whatever digits the schema gives it, or its row fails."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pytest
from avro_strategies import read_by_fastavro, text_of
from batches import batch_of, checked
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import record
from penstock.encode.avro.encoder import AvroEncoder
from penstock.spec.types import Decimal as DecimalType
from penstock.spec.types import Member, Struct

EXACT = Context(prec=100)  # of Python's own, which rounds to 28 digits otherwise
precisions = st.one_of(st.integers(1, 38), st.integers(36, 38))
kinds = precisions.flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


def encoder(column: tuple[int, int], field: tuple[int, int], size: int | None) -> tuple[AvroEncoder, Struct, Any]:
    logical = {"logicalType": "decimal", "precision": field[0], "scale": field[1]}
    kind = {"type": "bytes", **logical} if size is None else {"type": "fixed", "name": "F", "size": size, **logical}
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    struct = Struct((Member("x", DecimalType(*column)),))
    return AvroEncoder(text_of(schema), struct, None), struct, schema


def numbers_of(column: tuple[int, int]) -> st.SearchStrategy[Decimal]:
    """Of any number of digits, with zeros behind them more often than by chance."""
    precision, scale = column
    most = 10**precision - 1
    some = st.integers(-most, most)
    round_ones = st.builds(lambda digits, zeros: digits * 10**zeros, st.integers(-20, 20), st.integers(0, precision))
    near_two = st.builds(lambda power, more: 2**power + more, st.integers(0, 127), st.integers(-1, 1))
    return (
        st.one_of(some, round_ones, near_two)
        .filter(lambda n: -most <= n <= most)
        .map(lambda n: Decimal(n).scaleb(-scale, EXACT))
    )


def fits(number: Decimal, precision: int, scale: int) -> bool:
    digits = number.scaleb(scale, EXACT)
    return digits == digits.to_integral_value(context=EXACT) and digits.copy_abs() < 10**precision


@settings(max_examples=200)
@given(kinds, kinds, st.booleans(), st.data())
def test_a_decimal_of_any_digits_is_written_exactly_or_refused(
    column: tuple[int, int], field: tuple[int, int], on_fixed: bool, data: Any
) -> None:
    numbers = data.draw(st.lists(numbers_of(column), min_size=1, max_size=8))
    encode, struct, schema = encoder(column, field, 16 if on_fixed else None)
    done = encode(batch_of(struct, [{"x": number} for number in numbers]))
    for i, (datum, number) in enumerate(zip(checked(done), numbers, strict=True)):
        if fits(number, *field):
            assert datum is not None, (number, done.failures)
            raw, _ = read_by_fastavro(_without_logical(schema), datum)
            written = Decimal(int.from_bytes(raw["x"], "big", signed=True)).scaleb(-field[1], EXACT)
            assert written == number
        else:
            assert datum is None
            assert done.failures[i].error_class == record.OUT_OF_RANGE
            assert f"{number} is not a value that fits decimal({field[0]},{field[1]})" in done.failures[i].reason


def _without_logical(schema: Any) -> Any:
    """fastavro rounds decimals to the digits of a context: the bytes are looked at instead."""
    (field,) = schema["fields"]
    bare = {key: value for key, value in field["type"].items() if key not in ("logicalType", "precision", "scale")}
    return {**schema, "fields": [{**field, "type": bare}]}


@pytest.mark.parametrize("number", [10**30, -(10**30), 10**20, 2**127 // 10**18 + 1, 10**38 - 1])
def test_a_number_that_would_leave_128_bits_when_it_gets_more_places_is_refused(number: int) -> None:
    encode, struct, _ = encoder((38, 0), (38, 18), None)
    done = encode(batch_of(struct, [{"x": Decimal(number)}, {"x": Decimal(7)}]))
    assert list(done.failures) == [0]
    assert f"{number} is not a value that fits decimal(38,18)" in done.failures[0].reason
