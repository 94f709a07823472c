"""Records with the registry's header: who wrote them, whether that can be read here, and what it is read as."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from penstock import record
from penstock.decode.arrow.decoded import Decoded
from penstock.decode.protobuf.decoder import ProtobufDecoder, names_at
from penstock.decode.protobuf.header import Header, parse
from penstock.registry.client.registry import RegisteredSchema, RegistryUnreachable
from penstock.registry.protobuf.message import MessageSchema, from_registered, from_text

V1 = """syntax="proto3"; package pay;
message Payment { string id = 1; int32 amount = 2; string note = 3; }
message Refund {
  string id = 1;
  message Line { int64 cents = 1; }
  map<string, Line> lines = 2;
  message Tax { int32 t = 1; }
}
"""
V2 = """syntax="proto3"; package pay;
message Audit { string who = 1; }
message Payment { string name = 1; int32 amount = 2; optional string currency = 4; repeated Audit audits = 5; }
"""
SCHEMAS = {
    1: RegisteredSchema(1, "PROTOBUF", V1),
    2: RegisteredSchema(2, "PROTOBUF", V2),
    3: RegisteredSchema(3, "AVRO", '"string"'),
    4: RegisteredSchema(4, "PROTOBUF", "message {"),
}


def zigzag(numbers: Iterable[int]) -> bytes:
    out = bytearray()
    for number in numbers:
        rest = (number << 1) ^ (number >> 63)
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
    return bytes(out)


def framed(schema_id: int, indexes: list[int], body: bytes) -> bytes:
    listed = b"\0" if indexes == [0] else zigzag([len(indexes), *indexes])
    return b"\0" + struct.pack(">I", schema_id) + listed + body


def written(text: str, message: str, **fields: Any) -> bytes:
    return bytes(GetMessageClass(from_text(text, message).descriptor())(**fields).SerializeToString())


def decode(schema: MessageSchema, *values: bytes | None, lookup: Any = SCHEMAS.get) -> Decoded:
    return ProtobufDecoder(schema, lookup)(pa.array(values, pa.binary()))


@pytest.fixture(scope="module")
def payment() -> MessageSchema:
    return from_text(V1, "Payment")


def test_records_of_two_versions_mix_in_one_batch_and_keep_their_order(payment: MessageSchema) -> None:
    old = [framed(1, [0], written(V1, "Payment", id=f"o{i}", amount=i, note="n")) for i in range(3)]
    new = [framed(2, [1], written(V2, "Payment", name=f"n{i}", currency="EUR", audits=[{}])) for i in range(3)]
    batch = [new[0], old[0], None, old[1], new[1], b"junk", new[2], old[2]]
    decoded = decode(payment, *batch)
    assert decoded.columns[0].to_pylist() == ["n0", "o0", None, "o1", "n1", None, "n2", "o2"]
    assert decoded.columns[1].to_pylist() == [0, 0, None, 1, 0, None, 0, 2]
    assert decoded.columns[2].to_pylist() == ["", "n", None, "n", "", None, "", "n"]
    assert decoded.schema_ids is not None
    assert decoded.schema_ids.equals(pa.array([2, 1, None, 1, 2, None, 2, 1], pa.int32()))
    assert sorted(decoded.failures) == [2, 5]
    good = decode(payment, *new, *old)
    assert good.failures == {}
    assert good.columns[0].to_pylist() == ["n0", "n1", "n2", "o0", "o1", "o2"]


def test_headers_of_different_length_without_a_failure_keep_their_order(payment: MessageSchema) -> None:
    body = [written(V1, "Payment", amount=i) for i in range(4)]
    decoded = decode(payment, framed(2, [1], body[0]), framed(1, [0], body[1]), framed(2, [1], body[2]))
    assert decoded.failures == {}
    assert decoded.columns[1].to_pylist() == [0, 1, 2]


def test_newer_reader_finds_the_fields_of_an_older_writer_absent() -> None:
    decoded = decode(from_text(V2, "Payment"), framed(1, [0], written(V1, "Payment", id="x", amount=3, note="n")))
    assert [column.to_pylist() for column in decoded.columns] == [["x"], [3], [None], [[]]]


@pytest.mark.parametrize(
    ("message", "indexes"), [("Payment", [0]), ("Refund", [1]), ("Refund.Line", [1, 0]), ("Refund.Tax", [1, 1])]
)
def test_message_indexes_lead_to_second_and_to_nested_messages(message: str, indexes: list[int]) -> None:
    schema = from_text(V1, message)
    decoded = decode(schema, framed(1, indexes, b""), framed(1, [0] if indexes != [0] else [1], b""))
    assert list(decoded.failures) == [1]
    assert decoded.failures[1].error_class == record.INCOMPATIBLE_SCHEMA
    assert f"not a pay.{message}" in decoded.failures[1].reason


def test_message_after_a_map_is_found_by_pythons_count_and_by_javas() -> None:
    schema = from_text(V1, "Refund.Tax")
    file = FileDescriptorProto.FromString(schema.files[-1])
    assert [m.name for m in file.message_type[1].nested_type] == ["Line", "LinesEntry", "Tax"]
    assert names_at(file, (1, 1)) == ["pay.Refund.Tax"]
    assert names_at(file, (1, 2)) == ["pay.Refund.Tax"]
    assert decode(schema, framed(1, [1, 1], b""), framed(1, [1, 2], b"")).failures == {}


def test_bytes_that_confluents_serializer_wrote_are_read() -> None:
    """Recorded from confluent-kafka 2's ProtobufSerializer: the second nested message, counted after the map's."""
    money = RegisteredSchema(1, "PROTOBUF", 'syntax="proto3"; package c; message Money { int64 units = 1; }')
    nested = "message N { google.protobuf.Timestamp t = 1; c.Money money = 2; } message O { int32 y = 1; }"
    text = f"""syntax="proto3"; package c; import "google/protobuf/timestamp.proto"; import "m.proto";
    message A {{ string x = 1; }}
    message B {{ map<string, A> as = 1; {nested} }}"""
    schema = RegisteredSchema(2, "PROTOBUF", text, (("m.proto", money),))
    value = b"\x00\x00\x00\x00\x02\x04\x02\x02\n\x02\x08\x05\x12\x02\x08\x07"
    decoded = decode(from_registered(schema, "B.N"), value, lookup={2: schema}.get)
    assert decoded.failures == {}
    assert decoded.columns[1].to_pylist() == [{"units": 7}]


def test_list_of_one_zero_may_also_be_written_in_full(payment: MessageSchema) -> None:
    body = written(V1, "Payment", id="x")
    decoded = decode(payment, b"\0\0\0\0\1\2\0" + body)
    assert decoded.columns[0].to_pylist() == ["x"]


@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (None, record.NULL_VALUE, "the value is null"),
        (b"", record.EMPTY_VALUE, "the value is empty (0 bytes)"),
        (b"\0", record.MALFORMED, "no registry header: only 1 byte"),
        (b"\0\0\0\0", record.MALFORMED, "no registry header: only 4 bytes"),
        (b"\1\0\0\0\1\0", record.MALFORMED, "no registry header: it begins with 0x01, not 0x00"),
        (b"{", record.MALFORMED, "no registry header: it begins with 0x7b, not 0x00"),
        (b"\0\0\0\0\1", record.MALFORMED, "no registry header: the record ends in the message indexes"),
        (b"\0\0\0\0\1\4\0", record.MALFORMED, "no registry header: the record ends in the message indexes"),
        (b"\0\0\0\0\1\x80", record.MALFORMED, "no registry header: the record ends in the message indexes"),
        (b"\0\0\0\0\1\1\0", record.MALFORMED, "no registry header: the count of the message indexes is not one"),
        (b"\0\0\0\0\1\2\1", record.MALFORMED, "no registry header: an index of the message indexes is not one"),
        (framed(1, [2**30], b""), record.MALFORMED, "schema 1: no message at the indexes 1073741824"),
        (b"\0\0\0\0\1\xfe\xff\xff\xff\x0f", record.MALFORMED, "no registry header: the count of the message indexes"),
        (b"\0\0\0\0\1" + b"\xff" * 11, record.MALFORMED, "no registry header: the count of the message indexes"),
        (framed(1, [0, 0], b""), record.MALFORMED, "schema 1: no message at the indexes 0, 0"),
        (framed(9, [0], b""), record.UNKNOWN_SCHEMA, "the registry has no schema 9"),
        (framed(2**32 - 1, [0], b""), record.UNKNOWN_SCHEMA, "the registry has no schema -1"),
        (framed(3, [0], b""), record.INCOMPATIBLE_SCHEMA, "schema 3: the schema is AVRO, not PROTOBUF"),
        (
            framed(4, [0], b""),
            record.INCOMPATIBLE_SCHEMA,
            "schema 4: protoc: line 1:9: Expected",
        ),
        (framed(2, [0], b""), record.INCOMPATIBLE_SCHEMA, "schema 2: the record is a pay.Audit, not a pay.Payment"),
        (framed(1, [0], b"\x0a"), record.MALFORMED, "not a pay.Payment: id, byte 1: the record ends in the middle"),
    ],
)
def test_record_that_cannot_be_placed_says_why_and_its_neighbours_are_read(
    payment: MessageSchema, value: bytes | None, kind: str, reason: str
) -> None:
    good = framed(1, [0], written(V1, "Payment", id="x"))
    decoded = decode(payment, good, value, good)
    assert list(decoded.failures) == [1]
    assert decoded.failures[1].error_class == kind
    assert decoded.failures[1].reason.startswith(reason)
    assert decoded.columns[0].to_pylist() == ["x", None, "x"]


def test_empty_message_is_a_message_after_a_header_and_without_one(payment: MessageSchema) -> None:
    for decoded in (decode(payment, framed(1, [0], b"")), ProtobufDecoder(payment)(pa.array([b""], pa.binary()))):
        assert decoded.failures == {}
        assert decoded.columns[0].to_pylist() == [""]


def test_each_schema_is_looked_up_once_per_batch_and_unknown_ones_again_in_the_next(payment: MessageSchema) -> None:
    asked: list[int] = []
    held = dict(SCHEMAS)

    def lookup(schema_id: int) -> RegisteredSchema | None:
        asked.append(schema_id)
        return held.get(schema_id)

    decoder = ProtobufDecoder(payment, lookup)
    ids = (1, 7, 1, 7, 2**32 - 1)  # the last is no id a registry could give: it is not asked for
    batch = pa.array([framed(i, [0], b"") for i in ids] + [framed(1, [1], b"")], pa.binary())
    assert decoder(batch).failures[1].error_class == record.UNKNOWN_SCHEMA
    assert sorted(asked) == [1, 7]
    held[7] = SCHEMAS[1]
    assert sorted(decoder(batch).failures) == [4, 5]


def test_registry_that_cannot_be_asked_is_no_fault_of_the_record(payment: MessageSchema) -> None:
    def lookup(schema_id: int) -> RegisteredSchema | None:
        raise RegistryUnreachable("down")

    with pytest.raises(RegistryUnreachable):
        decode(payment, framed(1, [0], b""), lookup=lookup)
    assert list(decode(payment, b"", None, lookup=lookup).failures) == [1, 0]


def test_schema_registered_as_base64_is_read(payment: MessageSchema) -> None:
    text = base64.b64encode(payment.files[-1]).decode()
    decoded = decode(
        payment, framed(1, [0], written(V1, "Payment", id="x")), lookup=lambda i: RegisteredSchema(i, "PROTOBUF", text)
    )
    assert decoded.columns[0].to_pylist() == ["x"]


HEAD = 'syntax="proto3"; '
BOTH = "int32 a = 1; int32 b = 2;"


@pytest.mark.parametrize(
    ("writer", "reader", "refused"),
    [
        ("message M { int32 a = 1; }", "message M { int64 a = 1; }", None),
        ("message M { uint32 a = 1; }", "message M { int64 a = 1; }", None),
        ("message M { bool a = 1; }", "message M { uint32 a = 1; }", None),
        ("message M { int64 a = 1; }", "message M { int32 a = 1; }", "a: written as int64, cannot be read as int32"),
        ("message M { int32 a = 1; }", "message M { uint32 a = 1; }", "a: written as int32"),
        ("message M { int32 a = 1; }", "message M { sint32 a = 1; }", "a: written as int32"),
        ("message M { int32 a = 1; }", "message M { string a = 1; }", "a: written as int32"),
        ("message M { double a = 1; }", "message M { fixed64 a = 1; }", "a: written as double"),
        ("message M { string a = 1; }", "message M { bytes a = 1; }", None),
        ("message M { bytes a = 1; }", "message M { string a = 1; }", None),
        ("message M { N a = 1; } message N { int32 x = 1; }", "message M { bytes a = 1; }", None),
        ("message M { int32 a = 1; }", "message M { repeated int32 b = 1; }", None),
        ("message M { repeated int32 a = 1; }", "message M { int32 a = 1; }", "a: repeated where it was written"),
        ("message M { repeated int32 a = 1 [packed = false]; }", "message M { repeated int32 a = 1; }", None),
        ("message M { int32 a = 2; }", "message M { string a = 1; }", "a: written as number 2, read as number 1"),
        ("message M { int32 a = 1; }", "message M { int32 b = 1; }", None),
        (f"message M {{ {BOTH} }}", "message M { int32 b = 1; }", "b: written as number 2, read as number 1"),
        (
            "message M { map<string, N> m = 1; } message N { int64 x = 1; }",
            "message M { map<string, N> m = 1; } message N { int32 x = 1; }",
            "m.value.x: written as int64",
        ),
        (
            "message M { int32 a = 1; int32 b = 2; }",
            "message M { oneof c { int32 a = 1; int32 b = 2; } }",
            "'c' is a oneof",
        ),
        ("message M { oneof c { int32 a = 1; int32 b = 2; } }", "message M { int32 a = 1; int32 b = 2; }", None),
        (
            "message M { oneof d { int32 a = 1; int32 b = 2; } }",
            "message M { oneof c { int32 a = 1; int32 b = 2; } }",
            None,
        ),
        ("message M { E a = 1; } enum E { A = 0; B = 1; }", "message M { E a = 1; } enum E { A = 0; }", None),
        ("message M { E a = 1; } enum E { A = 0; }", "message M { int32 a = 1; }", None),
        (
            "message M { E a = 1; } enum E { A = 0; B = 1; C = 2; }",
            "message M { E a = 1; } enum E { A = 0; C = 1; B = 2; }",
            "a: 1 was written as B, and would be read as C",
        ),
        (
            "message M { E a = 1; } enum E { A = 0; B = 1; }",
            "message M { E a = 1; } enum E { A = 0; C = 1; }",
            "a: 1 was written as B, and would be read as C",
        ),
        (
            "message M { E a = 1; } enum E { A = 0; B = 1; }",
            "message M { E a = 1; } enum E { option allow_alias = true; A = 0; C = 1; B = 1; }",
            None,
        ),
        (
            "message M { repeated Entry m = 1; } message Entry { string key = 1; int32 value = 2; }",
            "message M { map<string, int32> m = 1; }",
            "m: written as repeated Entry, of which a map keeps one for each key",
        ),
        (
            "message M { map<string, int32> m = 1; }",
            "message M { repeated Entry m = 1; } message Entry { string key = 1; int32 value = 2; }",
            None,
        ),
    ],
)
def test_change_of_a_schema_is_read_unless_a_value_could_come_out_as_another(
    writer: str, reader: str, refused: str | None
) -> None:
    schema = RegisteredSchema(5, "PROTOBUF", HEAD + writer)
    decoded = decode(from_text(HEAD + reader, "M"), framed(5, [0], b""), lookup={5: schema}.get)
    if refused is None:
        assert decoded.failures == {}
    else:
        assert decoded.failures[0].error_class == record.INCOMPATIBLE_SCHEMA
        assert refused in decoded.failures[0].reason


def test_closed_enum_that_lacks_a_writers_name_is_refused_because_it_would_read_as_absent() -> None:
    enum = 'syntax="proto2"; message M {{ optional E e = 1; }} enum E {{ A = 0; {} }}'
    schema = RegisteredSchema(5, "PROTOBUF", enum.format("B = 1;"))
    decoded = decode(from_text(enum.format(""), "M"), framed(5, [0], b""), lookup={5: schema}.get)
    assert decoded.failures[0].reason == "schema 5: e: the reader's enum is closed and lacks B"


def test_values_of_changed_types_come_out_as_they_were_written() -> None:
    old = (
        HEAD + "message M { int32 a = 1; bool b = 2; string c = 3; sint32 d = 4; N e = 5; } message N { int32 x = 1; }"
    )
    new = HEAD + "message M { int64 a = 1; int32 b = 2; bytes c = 3; sint64 d = 4; bytes e = 5; }"
    body = written(old, "M", a=-(2**31), b=True, c="é", d=-5, e={"x": 1})
    schema = RegisteredSchema(5, "PROTOBUF", old)
    decoded = decode(from_text(new, "M"), framed(5, [0], body), lookup={5: schema}.get)
    assert [column[0].as_py() for column in decoded.columns] == [-(2**31), 1, "é".encode(), -5, b"\x08\x01"]


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary(max_size=3))
def test_any_header_is_parsed_back_to_what_it_was_made_from(schema_id: int, indexes: list[int], body: bytes) -> None:
    value = framed(schema_id, indexes, body)
    header = parse(value, whole=True)
    assert header == Header(schema_id, tuple(indexes), len(value) - len(body))
    for end in range(len(value) - len(body)):
        cut = parse(value[:end], whole=True)
        assert isinstance(cut, Header) and cut.failure is not None
