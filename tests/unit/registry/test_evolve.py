"""What becomes of a reader schema when a newer version is registered, one rule at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.decode.formats import unusable
from penstock.registry.avro.model import AvroSchemaMistake
from penstock.registry.avro.parse import parse
from penstock.registry.avro.view import view_of
from penstock.registry.client.schema import Kind, RegisteredSchema
from penstock.registry.evolution import gained, merged
from penstock.registry.json_schema import JsonSchemaMistake, struct_of_json_schema
from penstock.registry.protobuf.message import from_registered
from penstock.registry.protobuf.shape import struct_of as protobuf_struct
from penstock.spec.types import Array, Map, Struct, Type


def registered(kind: Kind, document: Any, number: int = 1) -> RegisteredSchema:
    return RegisteredSchema(number, kind, document if isinstance(document, str) else json.dumps(document))


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def obj(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def columns(schema: RegisteredSchema) -> dict[str, str]:
    """By path: the type, with `!` where a value is required."""
    match schema.kind:
        case "AVRO":
            struct = view_of(parse(schema))
        case "JSON":
            struct = struct_of_json_schema(schema.text)
        case "PROTOBUF":
            struct = protobuf_struct(from_registered(schema).descriptor())
    return _paths(struct, "")


def _paths(struct: Struct, path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for member in struct.members:
        inner: Type = member.type
        below = f"{path}{member.name}"
        while isinstance(inner, Array | Map):
            inner, below = inner.item if isinstance(inner, Array) else inner.value, f"{below}[]"
        told = "!" if member.required else ""
        found |= (
            {below: f"struct{told}"} | _paths(inner, f"{below}.")
            if isinstance(inner, Struct)
            else {below: f"{inner.ddl()}{told}"}
        )
    return found


INT, TEXT = {"type": "integer"}, {"type": "string"}
INNER = record(field("x", "int"), field("y", "string"), name="I")
CASES: list[Any] = [
    (
        "avro field added without a default",
        *("AVRO", record(field("a", "int")), record(field("a", "int"), field("b", "string"))),
        *({"a": "int!", "b": "string"}, {"a": "int!"}, ["b"]),
    ),
    (
        "avro field renamed by an alias keeps its column",
        *("AVRO", record(field("a", "int")), record(field("b", "int", aliases=["a"]))),
        *({"a": "int!"}, {"a": "int!"}, []),
    ),
    (
        "avro field dropped inside a record",
        *("AVRO", record(field("i", INNER)), record(field("i", record(field("x", "int"), name="I")))),
        *({"i": "struct!", "i.x": "int!", "i.y": "string"}, {"i": "struct!", "i.x": "int!", "i.y": "string"}, []),
    ),
    (
        "avro field added inside a list and a map",
        "AVRO",
        record(field("l", {"type": "map", "values": {"type": "array", "items": record(field("x", "int"), name="I")}})),
        record(field("l", {"type": "map", "values": {"type": "array", "items": INNER}})),
        {"l[][]": "struct!", "l[][].x": "int!", "l[][].y": "string"},
        {"l[][]": "struct!", "l[][].x": "int!"},
        ["l[][].y"],
    ),
    (
        "avro field that may be null now, and one that may not any more",
        *(
            "AVRO",
            record(field("a", "int"), field("b", ["null", "int"])),
            record(field("a", ["null", "int"]), field("b", "int")),
        ),
        *({"a": "int", "b": "int"}, {"a": "int", "b": "int"}, []),
    ),
    (
        "avro type widened, and one narrowed",
        *("AVRO", record(field("a", "int"), field("b", "long")), record(field("a", "long"), field("b", "int"))),
        *({"a": "bigint!", "b": "bigint!"}, {"a": "int!", "b": "bigint!"}, []),
    ),
    (
        "json property that is required from now on",
        *("JSON", obj("a", a=INT), obj("a", "b", a=INT, b=TEXT)),
        *({"a": "bigint!", "b": "string"}, {"a": "bigint!"}, ["b"]),
    ),
    (
        "json property dropped inside an object, and one added",
        *("JSON", obj("o", o=obj("x", "y", x=INT, y=TEXT)), obj("o", o=obj("x", "z", x=INT, z=TEXT))),
        {"o": "struct!", "o.x": "bigint!", "o.y": "string", "o.z": "string"},
        *({"o": "struct!", "o.x": "bigint!", "o.y": "string"}, ["o.z"]),
    ),
    (
        "json property dropped inside the items of an array",
        "JSON",
        obj("l", l={"type": "array", "items": obj("x", "y", x=INT, y=TEXT)}),
        obj("l", l={"type": "array", "items": obj("x", x=INT)}),
        *({"l[]": "struct!", "l[].x": "bigint!", "l[].y": "string"},) * 2,
        [],
    ),
    (
        "json property that may be null now",
        *("JSON", obj("a", a=INT), obj("a", a={"type": ["integer", "null"]})),
        *({"a": "bigint"}, {"a": "bigint"}, []),
    ),
    (
        "json properties of allOf",
        *("JSON", {"allOf": [obj("a", a=INT)]}, {"allOf": [obj("a", a=INT), obj("b", b=INT)]}),
        *({"a": "bigint!", "b": "bigint"}, {"a": "bigint!"}, ["b"]),
    ),
    (
        "protobuf fields of a message",
        "PROTOBUF",
        'syntax="proto3"; message M { I i = 1; message I { string x = 1; string gone = 2; optional int32 left = 4; } }',
        'syntax="proto3"; message M { I i = 1; message I { string x = 1; int32 added = 3; reserved 2, 4; } }',
        {"i": "struct", "i.x": "string", "i.added": "int", "i.gone": "string", "i.left": "int"},
        {"i": "struct", "i.x": "string", "i.gone": "string", "i.left": "int"},
        ["i.added"],
    ),
    (
        "protobuf field renamed under its number keeps its column",
        *("PROTOBUF", 'syntax="proto3"; message M { int32 a = 1; }'),
        'syntax="proto3"; message M { int32 b = 1; reserved "a"; }',
        *({"a": "int"}, {"a": "int"}, []),
    ),
    (
        "protobuf field that only one version requires",
        *("PROTOBUF", 'syntax="proto2"; message M { required int32 a = 1; required int32 b = 2; }'),
        'syntax="proto2"; message M { required int32 a = 1; required int32 c = 3; }',
        *({"a": "int!", "b": "int", "c": "int"}, {"a": "int!", "b": "int"}, ["c"]),
    ),
]


@pytest.mark.parametrize(
    ("kind", "before", "after", "added", "kept", "new"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_newer_version(kind: Kind, before: Any, after: Any, added: dict[str, str], kept: Any, new: list[str]) -> None:
    known, newest = registered(kind, before), registered(kind, after, 2)
    assert columns(merged(known, newest, add=True, message=None)) == added
    assert columns(merged(known, newest, add=False, message=None)) == kept
    assert gained(known, newest, None) == new


def test_version_that_says_nothing_new_of_the_columns_leaves_the_text_as_it_is() -> None:
    known = registered("AVRO", {**record(field("a", "int")), "doc": "one"})
    newest = registered("AVRO", {**record(field("a", "int")), "doc": "two"}, 2)
    for add in (True, False):
        assert merged(known, newest, add=add, message=None) == RegisteredSchema(2, "AVRO", known.text)


def test_avro_types_of_one_name_that_stay_and_come_are_told_apart() -> None:
    known = registered("AVRO", record(field("old", INNER), field("also", "I")))
    newest = registered("AVRO", record(field("new", record(field("z", "int"), name="I"), default={"z": 1})), 2)
    found = merged(known, newest, add=True, message=None)
    assert set(columns(found)) == {"old", "old.x", "old.y", "also", "also.x", "also.y", "new", "new.z"}
    assert unusable(found, None) == ""


@pytest.mark.parametrize("add", [True, False])
def test_avro_type_that_contains_itself_is_no_column_and_no_endless_one(add: bool) -> None:
    known = registered("AVRO", record(field("a", "int")))
    tree = record(field("below", ["null", "T"]), name="T")
    newest = registered("AVRO", record(field("a", "int"), field("tree", tree)), 2)
    if add:
        with pytest.raises(AvroSchemaMistake, match="contains itself"):
            merged(known, newest, add=True, message=None)
    else:
        assert columns(merged(known, newest, add=False, message=None)) == {"a": "int!"}


def test_json_property_of_several_types_from_now_on_keeps_its_column_and_its_neighbours_follow() -> None:
    known = registered("JSON", obj("a", "b", a=INT, b=INT))
    newest = registered("JSON", obj(a={"type": ["integer", "string"]}), 2)
    assert columns(merged(known, newest, add=False, message=None)) == {"a": "bigint", "b": "bigint"}
    with pytest.raises(JsonSchemaMistake, match="more than one type"):
        merged(known, newest, add=True, message=None)


def test_protobuf_field_without_a_value_stays_null_when_the_newest_version_lacks_it() -> None:
    known = registered(
        "PROTOBUF", 'syntax="proto3"; message M { optional string a = 1; oneof o { int32 b = 2; int32 c = 3; } }'
    )
    newest = registered("PROTOBUF", 'syntax="proto3"; message M { oneof o { int32 c = 3; int32 d = 4; } }', 2)
    found = from_registered(merged(known, newest, add=True, message=None)).descriptor()
    assert [(f.name, f.has_presence) for f in found.fields] == [("c", True), ("d", True), ("a", True), ("b", True)]
