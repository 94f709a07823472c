"""What a JSON Schema says as columns; and what cannot be told is a mistake with its place, not a crash."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.registry.json_schema import JsonSchemaMistake, limits, struct_of_json_schema

INT, TEXT = {"type": "integer"}, {"type": "string"}


def columns(document: Any) -> dict[str, str]:
    struct = struct_of_json_schema(json.dumps(document))
    return {m.name: m.type.ddl() + ("!" if m.required else "") for m in struct.members}


def test_properties_of_allof_are_columns_beside_its_own() -> None:
    person = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
    document = {
        "type": "object",
        "properties": {"id": INT, "who": {"allOf": [{"$ref": "#/$defs/P"}], "description": "the buyer"}},
        "required": ["id"],
        "allOf": [
            {"$ref": "#/$defs/P"},
            {"properties": {"age": {"allOf": [INT, {"minimum": 0}]}}, "required": ["age"]},
        ],
        "$defs": {"P": person},
    }
    expected = {"id": "bigint!", "who": "struct<`name`:string>", "name": "string!", "age": "bigint!"}
    assert columns(document) == expected
    assert "$.age: minimum" in limits(json.dumps(document))


def test_one_property_in_two_parts_of_allof_is_what_fits_both() -> None:
    parts = [{"properties": {"a": {"type": ["number", "null"]}}}, {"properties": {"a": INT}, "required": ["a"]}]
    assert columns({"type": "object", "allOf": parts}) == {"a": "bigint!"}


def test_properties_beside_a_oneof_of_null_are_columns() -> None:
    inner = {"properties": {"x": INT}, "anyOf": [{"type": "null"}, {"type": "object", "properties": {"y": INT}}]}
    assert columns({"type": "object", "properties": {"a": inner}}) == {"a": "struct<`x`:bigint,`y`:bigint>"}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"type": "object", "properties": []}, "$: 'properties' is []"),
        ({"properties": {"a": {"enum": 5}}}, "$.a: 'enum' is 5"),
        ({"properties": {"a": {"type": {"x": 1}}}}, "$.a: 'type' is {\"x\": 1}"),
        ({"properties": {"a": {"type": [{"x": 1}, "null"]}}}, "$.a: more than one type"),
        ({"properties": {"a": {"type": "string", "format": ["date"]}}}, "$.a: 'format' is"),
        ({"properties": {"a": INT}, "required": "a"}, "$: 'required' is \"a\""),
        ({"properties": {"a": {"oneOf": {"type": "string"}}}}, "$.a: 'oneOf' is"),
        ({"properties": {"a": {"allOf": 1}}}, "$.a: 'allOf' is 1"),
        ({"properties": {"a": {"$ref": 7}}}, "$.a: '$ref' is 7"),
        ({"properties": {"a": 3}}, "$.a: not a schema"),
        ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"anyOf": [{"$ref": "#"}]}, "refers to itself"),
        ({"properties": {"a": {"allOf": [INT, TEXT]}}}, "$.a: allOf of different types"),
        ({"properties": {"o": {"properties": {"Id": INT, "id": INT}}}}, "$.o.id: there twice"),
        (
            {"properties": {"l": {"type": "array", "items": {"properties": {"x": INT, "X": INT}}}}},
            "$.l[].X: there twice",
        ),
        ([], "$: not a schema"),
    ],
)
def test_schema_that_cannot_be_a_view_is_a_mistake_with_its_place(document: Any, told: str) -> None:
    with pytest.raises(JsonSchemaMistake) as mistake:
        struct_of_json_schema(json.dumps(document))
    assert told in str(mistake.value)


WORDS = (
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "format",
    "oneOf",
    "anyOf",
    "allOf",
    "$ref",
    "additionalProperties",
)
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["object", "array", "string", "null", "#", "#/properties"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "a", "B", "b"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(odd)
def test_no_document_does_worse_than_a_mistake(document: Any) -> None:
    with contextlib.suppress(JsonSchemaMistake):
        struct_of_json_schema(json.dumps(document))
    limits(json.dumps(document))
