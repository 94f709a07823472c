"""Whatever the bytes: no exception, one row per record, and what protobuf reads or a failure, nothing else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protobuf_strategies import damaged, schemas

from penstock import record
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.protobuf.decoder import ProtobufDecoder, reader_of
from penstock.record import REASON_LIMIT
from penstock.registry.client.registry import RegisteredSchema
from penstock.registry.protobuf.message import MessageSchema, from_text

patient = settings(max_examples=80, suppress_health_check=list(HealthCheck))

CLASSES = {
    record.NULL_VALUE,
    record.EMPTY_VALUE,
    record.MALFORMED,
    record.OUT_OF_RANGE,
    record.MISSING_FIELD,
    record.UNKNOWN_SCHEMA,
    record.INCOMPATIBLE_SCHEMA,
}
RICH = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
message Order {
  enum State { OPEN = 0; PAID = 1; }
  message Line { string sku = 1; sint32 count = 2; repeated double prices = 3; }
  string id = 1;
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
  map<string, Line> by_sku = 4;
  oneof paid { int64 cents = 5; Line goods = 6; string voucher = 7; }
  State state = 8;
  repeated fixed32 codes = 9;
  google.protobuf.Struct extra = 10;
  optional bool gift = 11;
}
"""


@pytest.fixture(scope="module")
def order() -> MessageSchema:
    return from_text(RICH, "shop.Order")


def decode(schema: MessageSchema, *values: bytes | None) -> Decoded:
    return ProtobufDecoder(schema)(pa.array(values, pa.binary()))


@patient
@given(st.data())
def test_any_bytes_are_read_as_protobuf_reads_them_or_fail_where_it_refuses_them(data: Any) -> None:
    schema = data.draw(schemas())
    batch = data.draw(st.lists(st.one_of(st.none(), st.binary(max_size=20), damaged(schema)), max_size=6))
    decoded = decode(schema.compiled, *batch)
    message_class = type(schema.new())
    for i, value in enumerate(batch):
        row = [column[i].as_py() for column in decoded.columns]
        if i in decoded.failures:
            failure = decoded.failures[i]
            assert failure.error_class in CLASSES
            assert 0 < len(failure.reason) <= REASON_LIMIT
            assert row == [None] * len(row)
        else:
            assert value is not None
            message_class.FromString(value)  # what protobuf refuses may not come through
        if failed_to_parse(message_class, value):
            assert decoded.failures[i].error_class in (record.MALFORMED, record.NULL_VALUE)
    for column in decoded.columns:
        column.validate(full=True)


def failed_to_parse(message_class: Any, value: bytes | None) -> bool:
    try:
        message_class.FromString(value or b"")
    except DecodeError:
        return True
    return value is None


@patient
@given(st.data())
def test_a_batch_and_its_records_one_by_one_agree_on_any_bytes(data: Any) -> None:
    schema = data.draw(schemas())
    batch = data.draw(st.lists(st.one_of(st.binary(max_size=12), damaged(schema)), min_size=1, max_size=6))
    decoded = decode(schema.compiled, *batch)
    each, failures = reader_of(schema.compiled).rows.read_each(batch)
    assert decoded.failures == failures
    for one, other in zip(each, decoded.columns, strict=True):
        assert repr(one.to_pylist()) == repr(other.to_pylist())  # as text: NaN is not equal to itself


@patient
@given(st.lists(st.one_of(st.none(), st.binary(max_size=16).map(lambda b: b"\0\0\0\0" + b), st.binary(max_size=16))))
def test_any_bytes_with_a_registry_end_as_a_row_or_a_failure(order: MessageSchema, batch: list[bytes | None]) -> None:
    registered = RegisteredSchema(1, "PROTOBUF", RICH)
    decoded = ProtobufDecoder(order, {1: registered}.get)(pa.array(batch, pa.binary()))
    assert decoded.schema_ids is not None and len(decoded.schema_ids) == len(batch)
    assert {len(column) for column in decoded.columns} == {len(batch)}
    for i, value in enumerate(batch):
        if i in decoded.failures:
            assert decoded.failures[i].error_class in CLASSES
        else:
            assert value is not None and value[:5] == b"\0\0\0\0\1"


def example(order: MessageSchema) -> bytes:
    message = GetMessageClass(order.descriptor())()
    message.id = "o-1"
    message.lines.add(sku="a", count=-3, prices=[1.5, 2.5])
    message.at.seconds = 1_700_000_000
    message.by_sku["x"].sku = "é"
    message.cents = 12_345_678
    message.state = 1
    message.codes.extend([1, 2])
    message.extra["k"] = [1, {"a": None}]
    message.gift = False
    return bytes(message.SerializeToString())


def test_message_cut_at_any_byte_is_what_protobuf_reads_of_it_or_a_failure(order: MessageSchema) -> None:
    whole = example(order)
    message_class = GetMessageClass(order.descriptor())
    cuts = [whole[:end] for end in range(len(whole) + 1)]
    decoded = decode(order, *cuts)
    expected = {i for i, cut in enumerate(cuts) if failed_to_parse(message_class, cut)}
    assert set(decoded.failures) == expected
    assert len(expected) > len(whole) / 2
    alone = [decode(order, cut) for cut in cuts]
    for i, one in enumerate(alone):
        assert one.failures.get(0) == decoded.failures.get(i)
        assert [c[0] for c in one.columns] == [c[i] for c in decoded.columns]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x0a\x05ab", "id, byte 2: 5 bytes long, but only 2 left"),
        (b"\x0a\x01\xff", "id, byte 2: invalid UTF-8"),
        (b"\x0a\xf6\xff\xff\xff\xff\xff\xff\xff\xff\x01", "id, byte 11: 18446744073709551606 bytes long, but only 0"),
        (b"\x12\x03\x0a\x01\xff", "lines.sku, byte 4: invalid UTF-8"),
        (b"\x12\x02\x10\x80", "lines.count, byte 4: the record ends in the middle of it"),
        (b"\x22\x07\x12\x05\x0a\x7fabc", "by_sku.value.sku, byte 6: 127 bytes long, but only 3 left"),
        (b"\x28", "cents, byte 1: the record ends in the middle of it"),
        (b"\x28" + b"\xff" * 10, "cents, byte 1: a number of more than 64 bits"),
        (b"\x2e", "cents, byte 1: there is no wire type 6"),
        (b"\x00", "byte 0: 0 is not a field number"),
        (b"\x90\x80\x80\x80\x80\x01\x05", "byte 0: 4294967298 is not a field number"),
        (b"\xfa\x01\x05a", "31, byte 3: 5 bytes long, but only 1 left"),
        (b"\x0c", "byte 0: a group ends that did not begin"),
        (b"\xa3\x06\x08\x01", "100, byte 4: the group does not end"),
        (b"\xa3\x06\xac\x06", "100, byte 2: a group ends that did not begin"),
        (b"\xa5\x06\x01\x02", "100, byte 2: the record ends in the middle of it"),
        (b"\xa3\x06" * 200, "nested too deeply"),
        (b"\x4a\x03abc", "Wire format was corrupt"),
    ],
)
def test_malformed_message_says_field_byte_and_fault(order: MessageSchema, body: bytes, reason: str) -> None:
    failure = decode(order, body).failures[0]
    assert failure.error_class == record.MALFORMED
    assert failure.reason.startswith("not a shop.Order: ")
    assert reason in failure.reason


@pytest.mark.parametrize(
    ("body", "column", "expected"),
    [
        (b"\x28\x05\x3a\x01v", "cents", None),  # of two members of a oneof the last one counts
        (b"\x28\x05\x3a\x01v", "voucher", "v"),
        (b"\x32\x03\x0a\x01a\x32\x02\x10\x02", "goods", {"sku": "a", "count": 1, "prices": []}),  # messages are merged
        (b"\x22\x05\x0a\x01k\x12\x00\x22\x08\x0a\x01k\x12\x03\x0a\x01z", "by_sku", [("k", ("z", 0, []))]),
        (b"\x22\x00", "by_sku", [("", ("", 0, []))]),  # an entry without key and value
        (b"\x45\x01\x02\x03\x04", "state", "OPEN"),  # a number as four bytes is not the enum: unknown, skipped
        (b"\x40\x09", "state", "9"),  # an open enum keeps its number
        (b"\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "state", "-1"),
        (b"\x4d\x01\x00\x00\x00\x4a\x04\x02\x00\x00\x00", "codes", [1, 2]),  # packed and not packed
        (b"\xa3\x06\x08\x01\xa4\x06\x0a\x01i", "id", "i"),  # an unknown group is skipped
        (b"\x08\x01", "id", ""),
        (b"", "id", ""),
        (b"\x1a\x00", "at", "1970-01-01 00:00:00+00:00"),
        (b"\x1a\x03\x08\xe8\x07\x1a\x03\x10\xe8\x07", "at", "1970-01-01 00:16:40.000001+00:00"),
    ],
)
def test_bytes_no_serializer_writes_are_read_as_protobuf_reads_them(
    order: MessageSchema, body: bytes, column: str, expected: object
) -> None:
    decoded = decode(order, example(order), body)
    assert decoded.failures == {}
    names = [field.name for field in order.descriptor().fields]
    found = decoded.columns[names.index(column)][1].as_py()
    if column == "by_sku":
        found = [(key, tuple(line.values())) for key, line in found]
    assert (str(found) if column == "at" else found) == expected
