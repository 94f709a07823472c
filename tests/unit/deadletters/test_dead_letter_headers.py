"""A dead letter as a Kafka record: whatever the record was, it comes back byte for byte."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.deadletters.dead_letter import DeadLetter, Headers, from_headers, from_row, to_headers
from penstock.record import Batch

LETTER = DeadLetter(
    key=b"k",
    value=b"{",
    headers=[("trace", b"1"), ("trace", None)],
    topic="payments",
    partition=3,
    offset=41,
    timestamp_ms=1_700_000_000_000,
    timestamp_type=0,
    stage="decode",
    error_class="malformed",
    reason="not JSON",
    pipeline="payments",
    query="5f1c",
    batch=7,
    schema_id=9,
    sinks="lake",
)
OURS = [name for name, _ in to_headers(replace(LETTER, headers=[]))]
OPTIONAL = {"penstock.schema_id", "penstock.sinks"}
REQUIRED = [name for name in OURS if name not in OPTIONAL]

some_bytes = st.none() | st.binary(max_size=20)
text = st.text(max_size=10)  # hypothesis leaves out lone surrogates, as UTF-8 does
number = st.integers(-(2**63), 2**63 - 1)
# Headers of the record itself: any, and many that look like ours, with values that read as ours too.
own_headers: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.sampled_from([*OURS, "penstock.", "penstock.x"]) | text, some_bytes | number.map(lambda n: b"%d" % n)),
    max_size=15,
)
letters = st.builds(
    DeadLetter,
    key=some_bytes,
    value=some_bytes,
    headers=own_headers,
    topic=text,
    partition=number,
    offset=number,
    timestamp_ms=number,
    timestamp_type=number,
    stage=text,
    error_class=text,
    reason=text,
    pipeline=text,
    query=text,
    batch=number,
    schema_id=st.none() | number,
    sinks=st.none() | text,
)
patient = settings(max_examples=200)


def read(letter: DeadLetter) -> DeadLetter | None:
    return from_headers(letter.key, letter.value, to_headers(letter))


@patient
@given(letters)
@example(replace(LETTER, schema_id=None, headers=[("penstock.schema_id", b"5")]))
@example(replace(LETTER, schema_id=None, headers=to_headers(LETTER)[:-1]))
@example(replace(LETTER, headers=[("penstock.pipeline", b"payments")] * 2))
def test_any_record_comes_back_from_its_dead_letter_with_its_own_headers_first(letter: DeadLetter) -> None:
    assert to_headers(letter)[: len(letter.headers)] == letter.headers
    assert read(letter) == letter


@patient
@given(letters, letters)
def test_dead_letter_of_a_dead_letter_comes_back_with_the_first_one_inside(
    inner: DeadLetter, outer: DeadLetter
) -> None:
    outer = replace(outer, key=inner.key, value=inner.value, headers=to_headers(inner))
    found = read(outer)
    assert found == outer
    assert from_headers(found.key, found.value, found.headers) == inner


def test_every_field_beside_the_record_itself_travels_as_a_header() -> None:
    named = {f"penstock.{f.name}" for f in fields(DeadLetter)} - {f"penstock.{n}" for n in ("key", "value", "headers")}
    assert set(OURS) == named
    assert len(OURS) == len(named)


@patient
@given(own_headers)
def test_record_without_the_whole_of_our_headers_is_not_ours(headers: Headers) -> None:
    missing = [(name, value) for name, value in headers if name != "penstock.error_class"]
    assert from_headers(b"k", b"v", missing) is None


@pytest.mark.parametrize("name", REQUIRED)
def test_record_with_one_of_our_headers_absent_null_or_without_its_prefix_is_not_ours(name: str) -> None:
    whole = to_headers(LETTER)
    assert from_headers(b"k", b"v", [h for h in whole if h[0] != name]) is None
    assert from_headers(b"k", b"v", [(n, None if n == name else v) for n, v in whole]) is None
    assert from_headers(b"k", b"v", [(n.removeprefix("penstock.") if n == name else n, v) for n, v in whole]) is None


@pytest.mark.parametrize("name", OURS[1:])
def test_record_with_one_of_our_headers_written_twice_is_not_ours(name: str) -> None:
    twice = [h for header in to_headers(LETTER) for h in [header] * (2 if header[0] == name else 1)]
    assert from_headers(b"k", b"v", twice) is None


@pytest.mark.parametrize("name", ["batch", "partition", "offset", "timestamp_ms", "timestamp_type", "schema_id"])
@pytest.mark.parametrize("said", [b"", b"seven", b"1.5", b"\xff"])
def test_record_with_a_number_of_ours_that_is_no_number_is_not_ours(name: str, said: bytes) -> None:
    headers = [(n, said if n == f"penstock.{name}" else v) for n, v in to_headers(LETTER)]
    assert from_headers(b"k", b"v", headers) is None


def test_record_that_passed_through_another_program_which_added_a_header_is_not_ours() -> None:
    assert from_headers(b"k", b"v", [*to_headers(LETTER), ("added", b"1")]) is None


def test_row_of_the_engine_becomes_a_letter_of_plain_bytes_and_no_headers_become_an_empty_list() -> None:
    row = {f.name: getattr(LETTER, f.name) for f in fields(DeadLetter)}
    headers = [{"key": "trace", "value": bytearray(b"1")}, {"key": "trace", "value": None}]
    made = from_row({**row, "key": bytearray(b"k"), "headers": headers}, Batch("payments", "5f1c", 7))
    assert made == LETTER
    assert {type(made.key), type(made.headers[0][1])} == {bytes}
    assert from_row({**row, "key": None, "headers": None}, Batch("p", "q", 0)) == replace(
        LETTER, key=None, headers=[], pipeline="p", query="q", batch=0
    )
