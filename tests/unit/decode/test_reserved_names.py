"""Fields that are called as a column of Penstock's own are refused, wherever the schema comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from penstock.decode.formats import Place, prepare
from penstock.errors import SpecInvalid
from penstock.registry.client.schema import RegisteredSchema
from penstock.spec.cross import field_mistakes
from penstock.spec.fields import Schema
from penstock.spec.formats import AnyFormat

OWN = ["_kafka", "_key", "_deleted", "_error", "_rule", "_KAFKA", "_kafka_key", "_kafka_schema_id", "_kafka_timestamp",
       "_kafka_raw", "_kafka_", "_Kafka_offset"]  # fmt: skip


def schemas(name: str, base: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """A format each, and what the registry has for it."""
    record = json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": "long"}]})
    message = f'syntax = "proto3"; message R {{ int64 {name} = 1; }}'
    (base / "r.avsc").write_text(record)
    (base / "r.proto").write_text(message)
    fields = {"fields": {"a": "int", name: "int"}}
    return {
        "json": ({"format": "json", "schema": fields}, ""),
        "csv": ({"format": "csv", "schema": fields}, ""),
        "JSON": ({"format": "json"}, json.dumps({"type": "object", "properties": {name: {"type": "integer"}}})),
        "AVRO": ({"format": "avro"}, record),
        "PROTOBUF": ({"format": "protobuf", "message": "R"}, message),
        "avro file": ({"format": "avro", "wire": "raw", "schema": "r.avsc"}, ""),
        "protobuf file": ({"format": "protobuf", "wire": "raw", "schema": "r.proto", "message": "R"}, ""),
    }


def prepared(name: str, source: str, base: Path) -> list[str]:
    how, registered = schemas(name, base)[source]

    def schema(*_: Any) -> RegisteredSchema:
        return RegisteredSchema(1, source, registered)  # type: ignore[arg-type]

    at = Place(base, "orders-value", schema, lambda: {}.get)
    return [member.name for member in prepare(TypeAdapter(AnyFormat).validate_python(how), at).struct.members]


@pytest.mark.parametrize("source", ["json", "csv", "JSON", "AVRO", "avro file", "PROTOBUF", "protobuf file"])
@pytest.mark.parametrize("name", ["_kafka_key", "_KAFKA_timestamp"])
def test_field_with_a_name_of_ours_is_refused_in_every_format(name: str, source: str, tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid) as refused:
        prepared(name, source, tmp_path)
    said = f"{refused.value} {refused.value.cause}"
    assert f"'{name}' begins with '_kafka_', as only Penstock's own columns do" in said
    assert "rename the field, or read with a schema that does not have it" in said


@pytest.mark.parametrize("name", OWN)
def test_check_names_the_field(name: str, tmp_path: Path) -> None:
    [(field, text)] = field_mistakes(Schema.model_validate({"fields": {"a": "int", name: "int"}}), flat=False)
    assert field == name
    assert text.startswith(f"'{name}' ")
    assert "rename the field" in text
    with pytest.raises(SpecInvalid):
        prepared(name, "AVRO", tmp_path)


@pytest.mark.parametrize("name", ["kafka_key", "_kafkaesque", "_keys", "_kafk", "key", "offset"])
def test_other_names_are_the_users(name: str, tmp_path: Path) -> None:
    assert not list(field_mistakes(Schema.model_validate({"fields": {name: "int"}}), flat=False))
    assert name in prepared(name, "AVRO", tmp_path)
