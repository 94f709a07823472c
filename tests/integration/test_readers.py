"""Reader schemas that follow a subject: no column is lost, and nothing is written down that cannot be read with."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.decode.avro.decoder import AvroDecoder, struct_of
from penstock.decode.formats import unusable
from penstock.decode.readers import Readers
from penstock.local.registry import LocalRegistry
from penstock.registry.client.registry import Reference, RegistrySettings, SchemaRegistry
from penstock.registry.client.schema import Kind, RegisteredSchema
from penstock.registry.json_schema import struct_of_json_schema
from penstock.registry.protobuf.message import from_registered


class Subject:
    """One subject of a real registry, in which every version is taken."""

    def __init__(self, url: str) -> None:
        self.name = f"orders-{uuid.uuid4().hex[:12]}-value"
        self.registry = SchemaRegistry(RegistrySettings(url))
        self.versions = 0

    def newest(self, kind: Kind, document: Any, references: dict[str, Any] | None = None) -> None:
        self.versions += 1
        used = []
        for name, text in (references or {}).items():
            of = f"{self.name}-{name}-{self.versions}"
            self.registry.register(of, kind, json.dumps(text))
            used.append(Reference(name, of, 1))
        if kind == "JSON":
            document = {"$schema": "http://json-schema.org/draft-07/schema#", **document}
        text = document if isinstance(document, str) else json.dumps(document)
        self.registry.register(self.name, kind, text, used)
        if self.versions == 1:
            self.registry.set_mode("NONE", self.name)

    def readers(self, directory: Path, *, add: bool = True) -> Readers:
        """As after a start."""
        return Readers(lambda: self.registry, directory, add=add)


@pytest.fixture
def subject(registry: LocalRegistry) -> Iterator[Subject]:
    found = Subject(registry.url)
    yield found
    found.registry.close()


def of(*fields: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    said = [{"name": n, "type": t, **({"default": d[0]} if d else {})} for n, t, *d in fields]
    return {"type": "record", "name": "Order", "fields": said, **more}


def an(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    return {**of(*fields), "name": name}


def ddl(schema: RegisteredSchema) -> dict[str, str]:
    struct = struct_of_json_schema(schema.text) if schema.kind == "JSON" else struct_of(schema)
    return {member.name: member.type.ddl() for member in struct.members}


def read_by(reader: RegisteredSchema, writer: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """A record of a writer's schema, as the pipeline reads it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(writer, {}), row)
    decoder = AvroDecoder(reader, {9: RegisteredSchema(9, "AVRO", json.dumps(writer))}.get)
    decoded = decoder(pa.array([b"\0\0\0\0\x09" + out.getvalue()], pa.binary()))
    assert not decoded.failures, decoded.failures
    names = [member.name for member in struct_of(reader).members]
    return {name: column.to_pylist()[0] for name, column in zip(names, decoded.columns, strict=True)}


def followed(subject: Subject, directory: Path, *, add: bool = True) -> tuple[RegisteredSchema, list[str]]:
    """The reader of now, the same while running and after a restart; and what was told on the way."""
    readers = subject.readers(directory, add=add)
    found = readers.schema(subject.name, "latest", None)
    return found, readers.said


A = {"type": "object", "properties": {"x": {"type": "string"}}}


def test_json_property_that_is_dropped_with_its_definition_stays_a_column(subject: Subject, tmp_path: Path) -> None:
    n = {"type": "integer"}
    v1 = {"type": "object", "properties": {"n": n, "a": {"$ref": "#/definitions/A"}}, "definitions": {"A": A}}
    subject.newest("JSON", v1)
    readers = subject.readers(tmp_path)
    readers.schema(subject.name, "latest", None)
    subject.newest("JSON", {"type": "object", "properties": {"n": n, "b": {"type": "boolean"}}})
    assert readers.refresh()
    expected = {"n": "bigint", "b": "boolean", "a": "struct<`x`:string>"}
    assert ddl(readers.schema(subject.name, "latest", None)) == expected
    assert ddl(followed(subject, tmp_path)[0]) == expected  # after a restart


def test_json_definition_that_means_something_else_now_does_not_change_a_dropped_property(
    subject: Subject, tmp_path: Path
) -> None:
    v1 = {"properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/A"}}}, "$defs": {"A": A}}
    subject.newest("JSON", {"type": "object", **v1})
    followed(subject, tmp_path)
    v2 = {"properties": {"b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}
    subject.newest("JSON", {"type": "object", **v2})
    assert ddl(followed(subject, tmp_path)[0]) == {"b": "bigint", "a": "array<struct<`x`:string>>"}


@pytest.mark.parametrize("add", [True, False])
def test_json_columns_of_a_document_that_only_refers_to_a_definition_stay(
    subject: Subject, tmp_path: Path, add: bool
) -> None:
    def version(**properties: str) -> dict[str, Any]:
        order = {"type": "object", "properties": {k: {"type": v} for k, v in properties.items()}}
        return {"$ref": "#/definitions/Order", "definitions": {"Order": {**order, "required": list(properties)}}}

    subject.newest("JSON", version(a="string", b="string"))
    followed(subject, tmp_path, add=add)
    subject.newest("JSON", version(b="string", c="string"))
    found, said = followed(subject, tmp_path, add=add)
    struct = struct_of_json_schema(found.text)
    assert {m.name: m.required for m in struct.members} == {"b": True, "a": False} | ({"c": False} if add else {})
    assert any("no longer has a" in text for text in said), said


def test_version_that_cannot_be_a_view_leaves_columns_as_they_are_and_is_told(subject: Subject, tmp_path: Path) -> None:
    subject.newest("JSON", {"type": "object", "properties": {"a": {"type": "string"}}})
    followed(subject, tmp_path)
    for broken in ({"type": ["string", "integer"]}, {"$ref": "#/definitions/none"}, {"$ref": "https://x/y"}):
        subject.newest("JSON", {"type": "object", "properties": {"a": {"type": "string"}, "b": broken}})
        found, said = followed(subject, tmp_path)
        assert ddl(found) == {"a": "string"}
        assert any("is not followed, the columns stay as they are" in text for text in said), said
    subject.newest("JSON", {"type": "object", "properties": {"b": {"type": "string"}}})
    assert ddl(followed(subject, tmp_path)[0]) == {"b": "string", "a": "string"}


def test_field_that_only_changes_its_case_leaves_columns_as_they_are(subject: Subject, tmp_path: Path) -> None:
    subject.newest("AVRO", of(("Amount", "int")))
    followed(subject, tmp_path)
    subject.newest("AVRO", of(("amount", "int")))
    found, said = followed(subject, tmp_path)
    assert ddl(found) == {"Amount": "int"}
    assert any("Order.amount: there twice" in text for text in said), said
    assert read_by(found, of(("amount", "int")), {"amount": 1}) == {"Amount": None}


@pytest.mark.parametrize("add", [True, False])
def test_first_version_that_cannot_be_a_view_is_not_written_down(subject: Subject, tmp_path: Path, add: bool) -> None:
    subject.newest("JSON", {"type": "object", "properties": {"a": {"type": ["string", "integer"]}}})
    found, _ = followed(subject, tmp_path, add=add)
    assert unusable(found, None)
    subject.newest("JSON", {"type": "object", "properties": {"a": {"type": "string"}}})
    assert ddl(followed(subject, tmp_path, add=add)[0]) == {"a": "string"}


ADDRESS = an("Address", ("city", "string"), ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}))
STRUCT = "struct<`city`:string,`kind`:string>"


def test_avro_field_whose_record_type_moved_to_another_field_stays_a_column(subject: Subject, tmp_path: Path) -> None:
    v1 = of(("id", "long"), ("home", ADDRESS), namespace="shop")
    v2 = of(("id", "long"), ("place", ADDRESS), namespace="shop")
    subject.newest("AVRO", v1)
    followed(subject, tmp_path)
    subject.newest("AVRO", v2)
    found, said = followed(subject, tmp_path)
    assert ddl(found) == {"id": "bigint", "place": STRUCT, "home": STRUCT}
    assert any("no longer has home" in text for text in said), said
    here = {"city": "Ulm", "kind": "B"}
    assert read_by(found, v2, {"id": 2, "place": here}) == {"id": 2, "place": here, "home": None}
    # A third version, back to the first field, and a fourth without both.
    subject.newest("AVRO", {**v1, "doc": "again"})
    assert ddl(followed(subject, tmp_path)[0]) == {"id": "bigint", "home": STRUCT, "place": STRUCT}
    subject.newest("AVRO", of(("id", "long")))
    assert ddl(followed(subject, tmp_path)[0]) == {"id": "bigint", "home": STRUCT, "place": STRUCT}


def test_avro_records_of_the_older_version_are_still_read_into_the_field_that_left(
    subject: Subject, tmp_path: Path
) -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    fixed = {"type": "fixed", "name": "Code", "size": 2}
    v1 = of(("id", "long"), ("home", ["null", ADDRESS, an("Box", ("code", fixed))]), ("work", ["null", "Address"]))
    other = an("Address", ("street", "int"), ("code", {**fixed, "size": 3}), ("kind", {**kind, "symbols": ["C"]}))
    subject.newest("AVRO", v1)
    followed(subject, tmp_path)
    subject.newest("AVRO", of(("id", "long"), ("place", other, {"street": 1, "code": "abc", "kind": "C"})))
    found, _ = followed(subject, tmp_path)
    here = {"city": "Ulm", "kind": "B"}
    row = read_by(found, v1, {"id": 1, "home": ("Box", {"code": b"xy"}), "work": here})
    assert row["home"] == {"member0": None, "member1": {"code": b"xy"}}
    assert row["work"] == here
    assert row["place"] == {"street": 1, "code": b"abc", "kind": "C"}


def test_avro_field_of_a_type_that_was_renamed_or_lay_in_another_document_stays(
    subject: Subject, tmp_path: Path
) -> None:
    v1 = of(("id", "long"), ("home", "shop.Address"), ("old", an("Old", ("x", "int"))), ("older", "Old"))
    subject.newest("AVRO", v1, {"address": {**ADDRESS, "namespace": "shop"}})
    followed(subject, tmp_path)
    subject.newest("AVRO", of(("id", "long"), ("old", an("New", ("x", "int")))))
    found, _ = followed(subject, tmp_path)
    assert ddl(found) == {"id": "bigint", "old": "struct<`x`:int>", "home": STRUCT, "older": "struct<`x`:int>"}


@pytest.mark.parametrize("add", [True, False])
def test_avro_field_that_is_dropped_is_its_default_or_null(subject: Subject, tmp_path: Path, add: bool) -> None:
    subject.newest("AVRO", of(("id", "long"), ("with", "string", "x"), ("without", "string")))
    followed(subject, tmp_path, add=add)
    v2 = of(("id", "long"))
    subject.newest("AVRO", v2)
    found, _ = followed(subject, tmp_path, add=add)
    assert read_by(found, v2, {"id": 1}) == {"id": 1, "with": "x", "without": None}


@pytest.mark.parametrize("add", [True, False])
def test_field_that_comes_and_goes_inside_a_record_is_told(subject: Subject, tmp_path: Path, add: bool) -> None:
    v1 = of(("home", an("Address", ("city", "string"), ("floor", "int"))))
    v2 = of(("home", an("Address", ("city", "string"), ("zip", "string"))))
    subject.newest("AVRO", v1)
    followed(subject, tmp_path, add=add)
    subject.newest("AVRO", v2)
    found, said = followed(subject, tmp_path, add=add)
    assert any("has gained home.zip: " + ("added to the view" if add else "ignored") in text for text in said), said
    assert any("no longer has home.floor" in text for text in said), said
    more = {"zip": "89073"} if add else {}
    assert read_by(found, v2, {"home": {"city": "Ulm", "zip": "89073"}}) == {
        "home": {"city": "Ulm", "floor": None, **more}
    }
    none = {"zip": None} if add else {}
    assert read_by(found, v1, {"home": {"city": "Ulm", "floor": 2}}) == {"home": {"city": "Ulm", "floor": 2, **none}}


def test_two_messages_of_one_subject_each_have_their_columns(subject: Subject, tmp_path: Path) -> None:
    text = 'syntax = "proto3"; message A {{ int32 a = 1; {} }} message B {{ int32 b = 1; {} }}'

    def columns(readers: Readers) -> list[list[str]]:
        found = [(readers.schema(subject.name, "latest", message), message) for message in "AB"]
        return [[f.name for f in from_registered(schema, message).descriptor().fields] for schema, message in found]

    subject.newest("PROTOBUF", text.format("int32 gone = 2;", "string left = 2;"))
    readers = subject.readers(tmp_path)
    assert columns(readers) == [["a", "gone"], ["b", "left"]]
    subject.newest("PROTOBUF", text.format("int32 more = 3;", "int32 other = 3;"))
    assert readers.refresh()
    expected = [["a", "more", "gone"], ["b", "other", "left"]]
    assert columns(readers) == expected
    assert columns(subject.readers(tmp_path)) == expected  # after a restart


def test_newer_version_of_what_a_schema_refers_to_is_a_change(subject: Subject, tmp_path: Path) -> None:
    subject.newest("AVRO", json.dumps(of(("home", "Address"))), {"address": an("Address", ("city", "string"))})
    readers = subject.readers(tmp_path)
    readers.schema(subject.name, "latest", None)
    grown = an("Address", ("city", "string"), ("zip", "string", ""))
    subject.newest("AVRO", json.dumps(of(("home", "Address"))), {"address": grown})
    assert readers.refresh()
    assert ddl(readers.schema(subject.name, "latest", None)) == {"home": "struct<`city`:string,`zip`:string>"}


def test_stream_and_backfill_write_schemas_down_at_the_same_time(subject: Subject, tmp_path: Path) -> None:
    versions = range(1, 13)
    for version in versions:
        subject.newest("AVRO", {**of(("a", "int")), "doc": str(version)})

    def run(readers: Readers) -> None:
        for version in versions:
            readers.schema(subject.name, version, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, [subject.readers(tmp_path) for _ in range(4)]))
    assert [file.name for file in tmp_path.iterdir()] == ["readers.json"]
    assert len(json.loads((tmp_path / "readers.json").read_text())) == len(versions)


def test_what_a_json_schema_says_of_values_beyond_their_types_is_told_once(subject: Subject, tmp_path: Path) -> None:
    status = {"type": "string", "enum": ["a", "b"]}
    tags = {"type": "array", "items": {"type": "string", "minLength": 2}}
    subject.newest("JSON", {"type": "object", "properties": {"s": status, "t": tags}, "additionalProperties": False})
    readers = subject.readers(tmp_path)
    for _ in range(2):
        readers.schema(subject.name, "latest", None)
    assert readers.said == [
        f"'{subject.name}' says more of values than their types ($: additionalProperties, $.s: enum, $.t: minLength): "
        "not checked; what matters of it can be a rule in `contract`"
    ]
