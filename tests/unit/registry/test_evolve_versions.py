"""A reader schema that followed a subject reads the records of every version: none is lost, none is read as another."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from versions import (
    DEFAULTS,
    Version,
    avro,
    avro_record,
    first_versions,
    json_schema,
    next_version,
    protobuf,
    protobuf_record,
    values_of,
)

from penstock.decode.arrow.decoded import Decoded
from penstock.decode.avro.decoder import AvroDecoder
from penstock.decode.avro.decoder import struct_of as avro_struct
from penstock.decode.json import JsonDecoder
from penstock.decode.protobuf.decoder import ProtobufDecoder
from penstock.record import INCOMPATIBLE_SCHEMA
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.evolution import gained, merged
from penstock.registry.json_schema import struct_of_json_schema
from penstock.registry.protobuf.message import from_registered
from penstock.registry.protobuf.shape import struct_of as protobuf_struct
from penstock.spec.types import Struct

patient = settings(max_examples=60, suppress_health_check=list(HealthCheck))
ABSENT = (None, 0, "", False, [], *DEFAULTS.values())


def row_of(struct: Struct, decoded: Decoded) -> dict[str, Any]:
    assert decoded.failures == {}
    return {m.name: column[0].as_py() for m, column in zip(struct.members, decoded.columns, strict=True)}


def check(found: Any, row: dict[str, Any], version: Version, kind: str, *, whole: bool) -> None:
    """That a row has what was written; `whole`: all of it. A field that was renamed may have a name of before, but in
    JSON. Of Protobuf messages leave a view, and zero and absent are one where one version does not tell them apart."""
    seen: set[str] = set()
    for field in version:
        names = [field.name] if kind == "JSON" else [field.name, *field.before]
        name = next((name for name in names if name in found), None)
        assert name is not None or not whole or (field.is_record and kind == "PROTOBUF"), (field.name, found)
        if name is None:
            continue
        seen.add(name)
        value, written = found[name], row[field.name]
        if isinstance(field.kind, str):
            nothing = written is None or (kind == "PROTOBUF" and not written)
            assert value == written or (nothing and value in ABSENT)
        elif written is None:
            assert value is None
        else:
            pairs = zip(value, written, strict=True) if field.listed else [(value, written)]
            for one, other in pairs:
                check(one, other, field.kind, kind, whole=whole)
    assert all(value in ABSENT or isinstance(value, dict) for name, value in found.items() if name not in seen)


@st.composite
def histories(draw: Any, *, widen: bool) -> tuple[list[Version], list[list[str]]]:
    versions, gains = [draw(first_versions)], []
    for number in (20, 30):
        version, new = draw(next_version(versions[-1], number, widen=widen))
        versions.append(version)
        gains.append(new)
    return versions, gains


def reader_of(schemas: list[RegisteredSchema], *, add: bool) -> RegisteredSchema:
    reader = schemas[0]
    for schema in schemas[1:]:
        reader = merged(reader, schema, add=add, message=None)
        assert reader.id == schema.id
        assert merged(reader, schema, add=add, message=None) == reader  # asked again, as after a restart
    return reader


@patient
@given(st.booleans(), st.data())
def test_avro_records_of_all_versions_are_read(add: bool, data: Any) -> None:
    versions, gains = data.draw(histories(widen=add))
    schemas = [avro(version, i + 1) for i, version in enumerate(versions)]
    assert [gained(one, other, None) for one, other in pairwise(schemas)] == gains
    reader = reader_of(schemas, add=add)
    decoder = AvroDecoder(reader, {schema.id: schema for schema in schemas}.get)
    for version, schema in zip(versions, schemas, strict=True):
        row = data.draw(values_of(version))
        found = row_of(avro_struct(reader), decoder(pa.array([avro_record(schema, row)], pa.binary())))
        check(found, row, version, "AVRO", whole=add or version is versions[0])


@patient
@given(st.booleans(), st.data())
def test_json_records_of_all_versions_are_read(add: bool, data: Any) -> None:
    versions, _ = data.draw(histories(widen=add))
    schemas = [json_schema(version, i + 1) for i, version in enumerate(versions)]
    reader = reader_of(schemas, add=add)
    struct = struct_of_json_schema(reader.text)
    for version in versions:
        row = data.draw(values_of(version))
        found = row_of(struct, JsonDecoder(struct)(pa.array([json.dumps(row).encode()], pa.binary())))
        check(found, row, version, "JSON", whole=add or version is versions[0])


@patient
@given(st.booleans(), st.data())
def test_protobuf_records_of_all_versions_are_read(add: bool, data: Any) -> None:
    versions, gains = data.draw(histories(widen=add))
    schemas = [protobuf(version, i + 1) for i, version in enumerate(versions)]
    told = [gained(one, other, None) for one, other in pairwise(schemas)]
    assert told == [[path.replace("[]", "") for path in new] for new in gains]
    reader = from_registered(reader_of(schemas, add=add))
    decoder = ProtobufDecoder(reader, {schema.id: schema for schema in schemas}.get)
    for version, schema in zip(versions, schemas, strict=True):
        row = data.draw(values_of(version))
        found = row_of(
            protobuf_struct(reader.descriptor()), decoder(pa.array([protobuf_record(schema, row)], pa.binary()))
        )
        check(found, row, version, "PROTOBUF", whole=add or version is versions[0])


def test_protobuf_field_that_came_back_with_another_number_is_not_read_as_absent() -> None:
    texts = ["int32 a = 1; int32 b = 2;", "int32 a = 1; string b = 3;"]
    schemas = [
        RegisteredSchema(i + 1, "PROTOBUF", f'syntax="proto3"; message M {{ {text} }}') for i, text in enumerate(texts)
    ]
    reader = from_registered(reader_of(schemas, add=True))
    decoder = ProtobufDecoder(reader, {schema.id: schema for schema in schemas}.get)
    old, new = protobuf_record(schemas[0], {"a": 1, "b": 5}), protobuf_record(schemas[1], {"a": 2, "b": "x"})
    decoded = decoder(pa.array([old, new], pa.binary()))
    assert decoded.failures[0].error_class == INCOMPATIBLE_SCHEMA
    assert "b: written as number 2, read as number 3" in decoded.failures[0].reason
    assert [column[1].as_py() for column in decoded.columns] == [2, "x"]
