"""A reason names the field, the value and what was expected, in the words of the schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.decode.json import JsonDecoder
from penstock.record import REASON_LIMIT, shortened
from penstock.spec.types import Array, Decimal, Map, Member, Scalar, Struct

MERCHANT = Struct((Member("name", Scalar("string"), required=True), Member("fee", Decimal(4, 2))))
SCHEMA = Struct(
    (
        Member("id", Scalar("bigint"), required=True),
        Member("merchant", MERCHANT),
        Member("amounts", Array(Decimal(4, 2))),
        Member("tags", Array(Scalar("string"))),
        Member("limits", Map(Scalar("tinyint"))),
        Member("rates", Map(Decimal(4, 2))),
        Member("seen", Array(Struct((Member("at", Scalar("timestamp", "s")),)))),
        Member("paid", Scalar("boolean")),
    )
)


def reason(document: bytes | None) -> str:
    return JsonDecoder(SCHEMA)(pa.array([document], pa.binary())).failures[0].reason


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b"{}", "id: required, but absent"),
        (b'{"id":null}', "id: required, but null"),
        (b"null", "the record: required, but null"),
        (b"[1, 2]", "the record: expected object, got array; the value is [1,2]"),
        (b'{"id":1.0}', "id: expected int, got number; the value is 1.0"),
        (b'{"id":1e2}', "id: expected int, got number; the value is 1e2"),
        (b'{"id":1,"paid":"yes"}', 'paid: expected boolean, got string; the value is "yes"'),
        (b'{"id":1,"merchant":{}}', "merchant.name: required, but absent"),
        (b'{"id":1,"merchant":{"name":7}}', "merchant.name: expected string, got int; the value is 7"),
        (b'{"id":1,"merchant":{"name":"x","fee":1.005}}', "merchant.fee: 1.005 is not a value that fits decimal(4,2)"),
        (b'{"id":1,"amounts":[1,"2.50",123]}', "amounts[2]: 123 is not a value that fits decimal(4,2)"),
        (b'{"id":1,"tags":["a",null,{"x": 0.10}]}', 'tags[2]: expected string, got object; the value is {"x":0.10}'),
        (b'{"id":1,"limits":{"a":1,"b":128}}', "limits[...]: expected int <= 127"),
        (b'{"id":1,"rates":{"a":1,"b":100}}', "rates[...]: 100 is not a value that fits decimal(4,2)"),
        (b'{"id":1,"seen":[{},{"at":253402300800}]}', "seen[1].at: 253402300800 is not a time in the years 1 to 9999"),
        (b'{"id":1e400}', "id: number out of range; the value is 1e400"),
        (b'{"id":18446744073709551616}', "id: expected int <= 9223372036854775807; the value is 18446744073709551616"),
        (b'{"id":"\xff"}', "invalid UTF-8: byte 0xff at position 7"),
        (b'{"id":1,"amounts":[1," 2"]}', 'amounts[1]: " 2" is not a number'),
        (b'{"id":1,"tags":["\xff"]}', "invalid UTF-8: byte 0xff at position 17"),
        (b'{"id":1', "not JSON: Input data was truncated; begins with '{\"id\":1'"),
        (
            rb'{"id":1,"tags":["\ud800"]}',
            r"half of a surrogate pair is no character: \ud800; begins with "
            r"""'{"id":1,"tags":["\\ud800"]}'""",
        ),
        (b"\xff\x00{", "invalid UTF-8: byte 0xff at position 0"),
        (b"\\udcff\x1b", r"not JSON: JSON is malformed: invalid character (byte 0); begins with '\\udcff\x1b'"),
        (b"", "the value is empty (0 bytes)"),
        (b"  ", "the value is empty (2 bytes)"),
        (None, "the value is null"),
    ],
)
def test_refused_record_says_field_value_and_expectation(document: bytes | None, expected: str) -> None:
    assert reason(document) == expected


def test_field_written_twice_shows_no_value_because_it_cannot_be_told_which_was_refused() -> None:
    assert reason(b'{"id":"x","id":1}') == "id: expected int, got string"


def test_half_a_surrogate_pair_in_the_refused_value_stays_out_of_the_reason() -> None:
    assert reason(b'{"id":{"x":"\\ud800"}}') == "id: expected int, got object"


def test_value_of_a_reason_is_cut_to_what_a_person_reads() -> None:
    found = reason(b'{"id":"' + b"x" * 100_000 + b'"}')
    assert found.startswith('id: expected int, got string; the value is "xxx')
    assert found.endswith("x…")
    assert len(found) < 150


def test_reason_of_a_field_with_an_endless_name_is_bounded() -> None:
    struct = Struct((Member("n" * 10_000, Scalar("int"), required=True),))
    for document in (b"{}", b'{"' + b"n" * 10_000 + b'":"x"}'):
        found = JsonDecoder(struct)(pa.array([document], pa.binary())).failures[0].reason
        assert len(found) == REASON_LIMIT


def test_shortened_keeps_what_fits_and_marks_what_was_cut() -> None:
    assert shortened("x" * REASON_LIMIT) == "x" * REASON_LIMIT
    assert shortened("abcdef", 5) == "abcd…"


def test_first_misfit_of_a_record_is_the_one_that_is_told() -> None:
    assert reason(b'{"id":1,"amounts":[100,200],"rates":{"a":300}}').startswith("amounts[0]: 100 ")
