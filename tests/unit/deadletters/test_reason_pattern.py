"""Dead letters are grouped by what is wrong, not by the record it is wrong with."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.deadletters.reason import pattern
from penstock.decode.json import JsonDecoder
from penstock.spec.types import Array, Decimal, Member, Scalar, Struct

SCHEMA = Struct(
    (
        Member("id", Scalar("bigint"), required=True),
        Member("amounts", Array(Decimal(4, 2))),
        Member("tags", Array(Scalar("string"))),
    )
)


def patterns(*documents: bytes | None) -> list[str]:
    failures = JsonDecoder(SCHEMA)(pa.array(documents, pa.binary())).failures
    return [pattern(failures[i].reason) for i in range(len(documents))]


@pytest.mark.parametrize(
    ("one", "other", "group"),
    [
        (b'{"id":"x"}', b'{"id":"y; begins with\\n is not a "}', "id: expected int, got string"),
        (b'{"id":1,"tags":[1]}', b'{"id":1,"tags":["a",22]}', "tags[…]: expected string, got int"),
        (
            b'{"id":1,"amounts":[123]}',
            b'{"id":1,"amounts":[1,456.5]}',
            "amounts[…]: … is not a value that fits decimal(4,2)",
        ),
        (b'{"id":x}', b'{"id":    yy', "not JSON: JSON is malformed: invalid character (byte …)"),
        (b'{"id"', b'{"id":1,', "not JSON: Input data was truncated"),
        (b'{"id":1,"tags":["\xff"]}', b'{"id":12,"tags":["\xfe"]}', "invalid UTF-8: byte … at position …"),
        (b"", b"   ", "the value is empty (… bytes)"),
    ],
)
def test_records_with_the_same_mistake_fall_into_one_group(one: bytes, other: bytes, group: str) -> None:
    assert patterns(one, other) == [group, group]


def test_different_mistakes_stay_in_different_groups() -> None:
    documents = [b'{"id":"x"}', b'{"id":1.5}', b"{}", b'{"id":null}', b'{"id":1,"tags":[1]}', b"[]", b"{", b"", None]
    assert len(set(patterns(*documents))) == len(documents)


def test_broken_rule_is_grouped_by_rule_whatever_the_values_were() -> None:
    group = "positive: not true: amount > 0 (by amount)"
    assert pattern("positive: not true: amount > 0; amount = -5.00") == group
    assert pattern("positive: not true: amount > 0; amount = \n; x = 1; currency = EUR") == group
    assert pattern("known: not true: amount > 0; amount = -5.00") != group


def test_rule_that_names_no_field_is_left_as_it_is() -> None:
    assert pattern("never: not true: 1 > 2") == "never: not true: 1 > 2"
