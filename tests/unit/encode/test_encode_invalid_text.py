"""Spark's strings can hold bytes that are no text. Such a row fails, wherever the string is, and nothing raises."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from avro_strategies import text_of
from batches import checked

from penstock.encode.arrow.encoded import Encoder
from penstock.encode.avro.encoder import AvroEncoder
from penstock.encode.protobuf.encoder import ProtobufEncoder
from penstock.registry.protobuf.message import from_text
from penstock.spec.types import Member, Struct, parse

PROTO = """syntax = "proto3";
import "google/protobuf/struct.proto"; import "google/protobuf/wrappers.proto";
enum E { RED = 0; }
message M {
  string text = 1; E enum = 2; repeated string texts = 3; map<string, string> by_text = 4;
  map<int32, string> by_int = 5;
  google.protobuf.Value json = 6; google.protobuf.StringValue wrapped = 7;
}"""
BAD = "invalid UTF-8: byte 0xff at position 1 of the text"


def unchecked(values: list[bytes | None]) -> pa.Array:
    column = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers())


def avro(kind: Any, column: str) -> Encoder:
    schema = text_of({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})
    return AvroEncoder(schema, Struct((Member("x", parse(column)),)), None)


def reasons(encoder: Encoder, name: str, column: pa.Array) -> dict[int, str]:
    encoded = encoder(pa.RecordBatch.from_arrays([column], names=[name]))
    checked(encoded)
    return {i: failure.reason for i, failure in encoded.failures.items()}


def lists(good: bytes) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), unchecked([good, good, b"a\xff"]))


def maps(good: bytes, key: bytes, value: bytes) -> pa.Array:
    keys, values = unchecked([good, key]), unchecked([b"RED", value])
    return pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, values)


def test_avro_refuses_text_that_is_none() -> None:
    column = unchecked([b"a", b"a\xff", b"\xc3\xa9"])
    enum = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
    assert reasons(avro("string", "string"), "x", column) == {1: f"x: {BAD}"}
    assert reasons(avro(["null", "string"], "string"), "x", column) == {1: f"x: {BAD}"}
    assert reasons(avro(enum, "string"), "x", column) == {1: "x: 'a\\xff' is no E", 2: "x: 'é' is no E"}
    assert reasons(avro({"type": "string", "logicalType": "uuid"}, "string"), "x", column).keys() == {0, 1, 2}
    assert reasons(avro({"type": "array", "items": "string"}, "array<string>"), "x", lists(b"a")) == {1: f"x[1]: {BAD}"}
    strings = avro({"type": "map", "values": "string"}, "map<string,string>")
    assert reasons(strings, "x", maps(b"a", b"a\xff", b"b")) == {1: f"x[...]: {BAD}"}
    assert reasons(strings, "x", maps(b"a", b"b", b"a\xff")) == {1: f"x[...]: {BAD}"}


@pytest.mark.parametrize(
    ("name", "column", "values", "reason"),
    [
        ("text", "string", unchecked([b"a", b"a\xff"]), f"text: {BAD}"),
        ("wrapped", "string", unchecked([b"a", b"a\xff"]), f"wrapped: {BAD}"),
        ("enum", "string", unchecked([b"RED", b"a\xff"]), "enum: 'a\\xff' is no E"),
        ("json", "string", unchecked([b"1", b"a\xff"]), "json: expected JSON; the value is 'a\\xff'"),
        ("json", "string", unchecked([b"1", b'"a\xff"']), "json: expected JSON; the value is '\"a\\xff\"'"),
        ("json", "string", unchecked([b"1", b'{"a\xff":1}']), "json: expected JSON; the value is '{\"a\\xff\":1}'"),
        ("texts", "array<string>", lists(b"a"), f"texts[1]: {BAD}"),
        ("by_text", "map<string,string>", maps(b"a", b"a\xff", b"b"), f"by_text[...]: {BAD}"),
        ("by_text", "map<string,string>", maps(b"a", b"b", b"a\xff"), f"by_text[...]: {BAD}"),
        ("by_int", "map<string,string>", maps(b"1", b"a\xff", b"b"), "by_int[...]: the key 'a\\xff' is no int32"),
    ],
)
def test_protobuf_refuses_text_that_is_none(name: str, column: str, values: pa.Array, reason: str) -> None:
    encoder = ProtobufEncoder(from_text(PROTO), Struct((Member(name, parse(column)),)), None)
    assert reasons(encoder, name, values) == {1: reason}
