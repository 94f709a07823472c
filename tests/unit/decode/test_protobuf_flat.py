"""Records that are read side by side by numpy: what protobuf reads of them, and the others are left to protobuf."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protobuf_strategies import damaged, records, schemas, written

from penstock.decode.arrow.decoded import Decoded
from penstock.decode.arrow.page import page_of
from penstock.decode.protobuf.decoder import ProtobufDecoder, reader_of
from penstock.decode.protobuf.flat import Flat, suits
from penstock.registry.protobuf.message import MessageSchema, from_text
from penstock.registry.protobuf.shape import shape_of

patient = settings(max_examples=150, suppress_health_check=list(HealthCheck))

PAYMENT = """
syntax = "proto3";
message Payment {
  message Place { string city = 1; sint32 floor = 2; }
  string id = 1; int32 count = 2; bool paid = 3; uint32 code = 4; Place place = 5; optional int64 at = 6;
  double sum = 7;
  oneof who { string name = 8; int64 number = 9; }
}
"""


@pytest.fixture(scope="module")
def payment() -> MessageSchema:
    return from_text(PAYMENT)


def decode(schema: MessageSchema, values: list[bytes]) -> Decoded:
    return ProtobufDecoder(schema)(pa.array(values, pa.binary()))


def odd_ones(schema: MessageSchema, values: list[bytes]) -> list[int]:
    page = page_of(pa.array(values, pa.binary()))
    _, odd = Flat(shape_of(schema.descriptor()))(page, page.starts, page.ends)
    return [int(i) for i in odd.nonzero()[0]]


@patient
@given(st.data())
def test_what_serializers_write_of_single_fields_is_read_side_by_side(data: Any) -> None:
    schema = data.draw(schemas(single=True))
    bodies = [written(schema, put) for put, _ in data.draw(st.lists(records(schema.fields, schema.syntax), max_size=5))]
    assert suits(shape_of(schema.compiled.descriptor()))
    assert odd_ones(schema.compiled, bodies) == []
    each, failures = reader_of(schema.compiled).rows.read_each(bodies)
    assert failures == {}
    assert all(one.equals(other) for one, other in zip(each, decode(schema.compiled, bodies).columns, strict=True))


@patient
@given(st.data())
def test_any_bytes_of_single_fields_are_read_as_record_by_record(data: Any) -> None:
    schema = data.draw(schemas(single=True))
    good = records(schema.fields, schema.syntax).map(lambda pair: written(schema, pair[0]))
    batch = data.draw(st.lists(st.one_of(good, st.binary(max_size=12), damaged(schema)), min_size=1, max_size=6))
    decoded = decode(schema.compiled, batch)
    each, failures = reader_of(schema.compiled).rows.read_each(batch)
    assert decoded.failures == failures
    for one, other in zip(each, decoded.columns, strict=True):
        assert repr(one.to_pylist()) == repr(other.to_pylist())  # as text: NaN is not equal to itself
        other.validate(full=True)


@pytest.mark.parametrize(
    ("body", "column", "expected"),
    [
        (b"\x10\x05\x0a\x01a", "id", "a"),  # not in the order of the numbers
        (b"\x0a\x01a\x0a\x01b", "id", "b"),  # twice
        (b"\x0a\x01a\x58\x01", "id", "a"),  # a field that the schema does not have
        (b"\x10\x85\x80\x00", "count", 5),  # zeros in front
        (b"\x90\x00\x05", "count", 5),  # of a tag
        (b"\x0a\x81\x00a", "id", "a"),  # of a length
        (b"\x10\x85\x80\x80\x80\x10", "count", 5),  # more than 32 bits: those on top are cut off
        (b"\x18\x02", "paid", True),
        (b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "code", 2**32 - 1),
        (b"\x2a\x02\x10\x01\x2a\x03\x0a\x01x", "place", {"city": "x", "floor": -1}),  # messages are merged
        (b"\x42\x01n\x48\x07", "name", None),  # of two members of a oneof the last one counts
        (b"\x42\x01n\x48\x07", "number", 7),
        (b"\x15\x01\x00\x00\x00", "count", 0),  # another wire type: unknown
    ],
)
def test_what_no_serializer_writes_is_left_to_protobuf(
    payment: MessageSchema, body: bytes, column: str, expected: object
) -> None:
    good = bytes(GetMessageClass(payment.descriptor())(id="g", at=0).SerializeToString())
    assert odd_ones(payment, [good, body, good]) == [1]
    decoded = decode(payment, [good, body, good])
    assert decoded.failures == {}
    names = [field.name for field in payment.descriptor().fields]
    found = decoded.columns[names.index(column)].to_pylist()
    assert found[1] == expected
    assert [row[names.index("id")] for row in zip(*decoded.columns, strict=True)][::2] == [pa.scalar("g")] * 2


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x05ab",
        b"\x0a\x01\xff",
        b"\x10",
        b"\x10" + b"\xff" * 10,
        b"\x0a\xf6\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x81\x80\x80\x80\x80\x80\x00a",
        b"\x39\x00\x00",
        b"\x2a\x03\x0a\x05a",
        b"\x2a\x02\x0a\x01",
    ],
)
def test_what_protobuf_refuses_fails_alone(payment: MessageSchema, body: bytes) -> None:
    good = bytes(GetMessageClass(payment.descriptor())(id="g", count=-1, sum=0.5).SerializeToString())
    decoded = decode(payment, [good, body, good])
    assert list(decoded.failures) == [1]
    assert decoded.columns[0].to_pylist() == ["g", None, "g"]
    assert decoded.columns[1].to_pylist() == [-1, None, -1]


def test_batches_that_are_nearly_all_odd_are_read_the_same_before_and_after_it_is_noticed(
    payment: MessageSchema,
) -> None:
    usual = bytes(GetMessageClass(payment.descriptor())(id="u", count=3).SerializeToString())
    batch = [usual + b"\x58\x01"] * 700 + [b"\xff"] + [usual] * 100
    found = [decode(payment, batch) for _ in range(3)]
    assert [list(one.failures) for one in found] == [[700]] * 3
    for one in found:
        assert one.columns[0].to_pylist() == ["u"] * 700 + [None] + ["u"] * 100
