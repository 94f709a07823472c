"""A schema that is derived from columns is one to its own tools, gives the columns back, and carries their rows."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal as Number
from typing import Any

import fastavro
import jsonschema
import pytest
from arrow_rows import rows
from batches import batch_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from struct_strategies import any_struct, flat_struct, rows_of

from penstock.decode.avro.decoder import AvroDecoder, struct_of
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.encode.avro.encoder import AvroEncoder
from penstock.encode.formats import record_name
from penstock.encode.protobuf.encoder import ProtobufEncoder
from penstock.registry.avro.derive import avro_schema
from penstock.registry.avro.model import AvroSchemaMistake
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.json_schema import json_schema, struct_of_json_schema
from penstock.registry.protobuf.derive import proto_text
from penstock.registry.protobuf.message import SchemaMistake, from_text
from penstock.registry.protobuf.shape import struct_of as protobuf_struct
from penstock.spec.types import Array, Decimal, Map, Member, Scalar, Struct, Type, parse

patient = settings(max_examples=60, suppress_health_check=list(HealthCheck))
quick = settings(patient, max_examples=30)  # protoc takes its time

Leaf = Callable[[Type], Type]
TEXT, BIGINT, DOUBLE = Scalar("string"), Scalar("bigint"), Scalar("double")


def mapped(column: Any, leaf: Leaf) -> Any:
    """The columns that a schema gives back."""
    match column:
        case Struct(members=members):
            return Struct(tuple(replace(m, type=mapped(m.type, leaf)) for m in members))
        case Array(item=item):
            return Array(mapped(item, leaf))
        case Map(value=value):
            return Map(mapped(value, leaf))
    return leaf(column)


def in_avro(column: Type) -> Type:
    return Scalar("int") if column in (Scalar("tinyint"), Scalar("smallint")) else column


def in_protobuf(column: Type) -> Type:
    as_text = isinstance(column, Decimal) or column in (Scalar("date"), Scalar("timestamp_ntz"))
    return TEXT if as_text else in_avro(column)


def in_json(column: Type) -> Type:
    if isinstance(column, Decimal):
        return DOUBLE
    known = {**dict.fromkeys(("tinyint", "smallint", "int"), BIGINT), "float": DOUBLE}
    return known.get(column.ddl(), TEXT if column.ddl() in ("binary", "timestamp_ntz") else column)


@patient
@given(st.data())
def test_avro_schema_of_random_columns_is_one_to_fastavro_and_carries_their_rows(data: Any) -> None:
    struct = data.draw(any_struct)
    text = avro_schema(struct, data.draw(st.sampled_from(["Payment", "com.example.Payment"])))
    fastavro.parse_schema(json.loads(text))
    assert struct_of(text) == mapped(struct, in_avro)
    expected = data.draw(st.lists(rows_of(struct), min_size=1, max_size=4))
    encoded = AvroEncoder(text, struct, None)(batch_of(struct, expected))
    assert encoded.failures == {}
    decoded = AvroDecoder(text)(encoded.values)
    assert decoded.failures == {}
    assert rows(struct, decoded) == expected


@quick
@given(st.data())
def test_proto_of_random_columns_is_one_to_protoc_and_carries_their_rows(data: Any) -> None:
    struct = data.draw(flat_struct)
    schema = from_text(proto_text(struct, data.draw(st.sampled_from(["Payment", "com.example.Payment"]))))
    assert protobuf_struct(schema.descriptor()).ddl() == mapped(struct, in_protobuf).ddl()  # proto3 requires nothing
    expected = data.draw(st.lists(rows_of(struct, null_items=False), min_size=1, max_size=4))
    encoded = ProtobufEncoder(schema, struct, None)(batch_of(struct, expected))
    assert encoded.failures == {}
    decoded = ProtobufDecoder(schema)(encoded.values)
    assert decoded.failures == {}
    assert [as_text(struct, row) for row in expected] == rows(mapped(struct, in_protobuf), decoded)


def as_text(column: Any, value: Any) -> Any:
    match column:
        case Array(item=item):
            return [as_text(item, v) for v in value or ()]  # Protobuf has no null lists
        case Map(value=inner):
            return dict(sorted((k, as_text(inner, v)) for k, v in (value or {}).items()))
        case Struct(members=members) if value is not None:
            return {m.name: as_text(m.type, value[m.name]) for m in members}
        case Decimal() if value is not None:
            return f"{value:f}"
        case Scalar(name="date" | "timestamp_ntz") if value is not None:
            spec = {"timespec": "microseconds"} if isinstance(value, datetime.datetime) else {}
            return value.isoformat(**spec)
    return value


@patient
@given(st.data())
def test_json_schema_of_random_columns_is_a_schema_that_accepts_their_rows(data: Any) -> None:
    struct = data.draw(any_struct)
    document = json.loads(json_schema(struct, "Payment"))
    jsonschema.Draft7Validator.check_schema(document)
    assert document["title"] == "Payment"
    assert struct_of_json_schema(json_schema(struct)) == mapped(struct, in_json)
    row = json.loads(json.dumps(data.draw(rows_of(struct)), default=as_json))
    validator = jsonschema.Draft7Validator(document, format_checker=jsonschema.FormatChecker())
    validator.validate(row)
    validator.validate({name: value for name, value in row.items() if value is not None})
    for member in struct.members:
        assert validator.is_valid({**row, member.name: None}) is not member.required
        assert validator.is_valid({n: v for n, v in row.items() if n != member.name}) is not member.required
    assert not validator.is_valid({**row, "surely not there": 1})


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return float(value) if isinstance(value, Number) else value.isoformat()


BEFORE = Struct(
    (
        Member("id", Scalar("bigint"), required=True),
        Member("merchant", parse("struct<name:string,fees:array<struct<amount:decimal(9,2)>>>")),
    )
)
AFTER = Struct((*BEFORE.members, Member("note", TEXT), Member("parts", parse("struct<name:string>"))))
OLD = {"id": 1, "merchant": {"name": "m", "fees": [{"amount": Number("1.50")}]}}
NEW = {**OLD, "note": "n", "parts": {"name": "p"}}


def test_a_column_that_is_added_leaves_avro_readable_both_ways() -> None:
    before, after = avro_schema(BEFORE, "a.P"), avro_schema(AFTER, "a.P")
    lookup = {1: RegisteredSchema(1, "AVRO", before), 2: RegisteredSchema(2, "AVRO", after)}.get
    old = AvroEncoder(before, BEFORE, 1)(batch_of(BEFORE, [OLD])).values
    new = AvroEncoder(after, AFTER, 2)(batch_of(AFTER, [NEW])).values
    assert rows(AFTER, AvroDecoder(after, lookup)(old)) == [{**OLD, "note": None, "parts": None}]
    assert rows(BEFORE, AvroDecoder(before, lookup)(new)) == [OLD]


def test_a_column_that_is_added_leaves_protobuf_readable_both_ways() -> None:
    before, after = from_text(proto_text(BEFORE, "a.P")), from_text(proto_text(AFTER, "a.P"))
    old = ProtobufEncoder(before, BEFORE, None)(batch_of(BEFORE, [OLD])).values
    new = ProtobufEncoder(after, AFTER, None)(batch_of(AFTER, [NEW])).values
    read_old, read_new = ProtobufDecoder(after)(old), ProtobufDecoder(before)(new)
    assert [column.to_pylist() for column in read_old.columns][2:] == [[None], [None]]
    assert read_old.columns[:2] == read_new.columns


def test_what_is_derived_reads_like_something_a_person_wrote() -> None:
    assert (
        proto_text(AFTER, "a.P")
        == """syntax = "proto3";
package a;

message P {
  int64 id = 1;
  Merchant merchant = 2;
  optional string note = 3;
  Parts parts = 4;
  message Merchant {
    optional string name = 1;
    repeated Fees fees = 2;
    message Fees {
      optional string amount = 1;
    }
  }
  message Parts {
    optional string name = 1;
  }
}
"""
    )
    assert json.loads(avro_schema(BEFORE, "a.P"))["fields"] == [
        {"name": "id", "type": "long"},
        {
            "name": "merchant",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "a.P.merchant",
                    "fields": [
                        {"name": "name", "type": ["null", "string"], "default": None},
                        {
                            "name": "fees",
                            "type": [
                                "null",
                                {
                                    "type": "array",
                                    "items": [
                                        "null",
                                        {
                                            "type": "record",
                                            "name": "a.P.merchant.fees",
                                            "fields": [
                                                {
                                                    "name": "amount",
                                                    "type": [
                                                        "null",
                                                        {
                                                            "type": "bytes",
                                                            "logicalType": "decimal",
                                                            "precision": 9,
                                                            "scale": 2,
                                                        },
                                                    ],
                                                    "default": None,
                                                }
                                            ],
                                        },
                                    ],
                                },
                            ],
                            "default": None,
                        },
                    ],
                },
            ],
            "default": None,
        },
    ]


@pytest.mark.parametrize("name", ["a b", "1a", "é", "a-b", "a.b", ""])
def test_name_that_a_format_does_not_allow_is_a_mistake_with_the_name(name: str) -> None:
    inside = Struct((Member("x", Struct((Member(name, TEXT),))),))
    with pytest.raises(AvroSchemaMistake, match=f"x.{name}: '{name}' is not a name"):
        avro_schema(inside, "P")
    with pytest.raises(SchemaMistake, match=f"x.{name}: '{name}' is not a name"):
        proto_text(inside, "P")
    good = Struct((Member("x", TEXT),))
    if name != "a.b":
        with pytest.raises(AvroSchemaMistake, match="is not a name"):
            avro_schema(good, name)
        with pytest.raises(SchemaMistake, match="is not a name"):
            proto_text(good, name)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("struct<x:array<array<int>>>", "x: a list or map directly in another"),
        ("struct<x:map<string,array<int>>>", "x: a list or map directly in another"),
        ("struct<a_b:int,aB:int>", "aB: Protobuf's JSON does not tell 'aB' from 'a_b'"),
        ("struct<FooEntry:int,foo:map<string,int>>", "foo: a map of this name makes a message 'FooEntry'"),
        ("struct<a_b:map<string,int>,AB:map<string,int>>", "AB: a map of this name makes a message 'ABEntry'"),
    ],
)
def test_columns_that_protobuf_has_no_schema_for_are_a_mistake(columns: str, said: str) -> None:
    struct = parse(columns)
    assert isinstance(struct, Struct)
    with pytest.raises(SchemaMistake, match=said):
        proto_text(struct, "P")


def test_names_that_protoc_makes_up_do_not_clash_with_those_of_the_columns() -> None:
    columns = "struct<Item:struct<Item:struct<x:int>>,_1:struct<x:int>,foo:map<string,int>,foo_entry:struct<x:int>>"
    struct = parse(columns)
    assert isinstance(struct, Struct)
    schema = from_text(proto_text(struct, "Item"), "Item")
    assert protobuf_struct(schema.descriptor()).ddl() == struct.ddl()


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("orders.eur-value", "OrdersEurValue"),
        ("2026-orders-value", "Record2026OrdersValue"),
        ("_x-value", "_xValue"),
        ("shop/orders value", "ShopOrdersValue"),
        ("-", "Record"),
    ],
)
def test_any_subject_gives_a_name_that_a_record_and_a_message_can_have(subject: str, name: str) -> None:
    assert record_name(subject) == name
    struct = Struct((Member("a", Scalar("int")),))
    assert struct_of(avro_schema(struct, name)) == struct
    assert from_text(proto_text(struct, name)).message == name
