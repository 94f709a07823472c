"""A JSON Schema of the registry as the columns of a view, and one for columns that are written.

Objects become structs, arrays arrays, objects with only `additionalProperties` maps; `integer` is a bigint, `number` a
double, `string` with `format: date-time` a timestamp, with `format: date` a date. A property is required when it is
listed so and cannot be null. Null next to one other type (`["string", "null"]`, `oneOf`, `anyOf`) makes it nullable;
`$ref` inside the document is followed. What could be more than one type has no column type and is refused.

The other way around the same holds; what JSON has no type for is told by its range (the smaller integers), read as a
double (float, decimal) or as text (binary, which is base64, and timestamp_ntz).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.spec.types import Array, Decimal, Map, Member, Scalar, Struct, Type

_SCALARS = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": "string"}
_FORMATS = {"date-time": "timestamp", "date": "date"}
_DEEPEST = 50
_WRITTEN: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "tinyint": {"type": "integer", "minimum": -(2**7), "maximum": 2**7 - 1},
    "smallint": {"type": "integer", "minimum": -(2**15), "maximum": 2**15 - 1},
    "int": {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    "bigint": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    "timestamp_ntz": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
}


# What a schema may say of a value beyond its type. Columns do not say it, and decode does not check it.
_LIMITS = {
    "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems", "uniqueItems", "contains", "minProperties", "maxProperties", "propertyNames",
    "dependencies", "dependentRequired", "not", "if",
}  # fmt: skip


class JsonSchemaMistake(ValueError):
    """The schema cannot be a view; the message names the place in it."""


def struct_of_json_schema(text: str) -> Struct:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise JsonSchemaMistake(f"not JSON: {error}") from None
    found = _type(document, document, "$", 0)
    if not isinstance(found, Struct):
        raise JsonSchemaMistake("$: not an object with properties")
    return found


def limits(text: str) -> list[str]:
    """What the schema says of values beyond their types, each as the place and the word: `$.status: enum`."""

    def walk(schema: Any, path: str) -> Iterator[str]:
        if isinstance(schema, list):
            for each in schema:
                yield from walk(each, path)
        if not isinstance(schema, dict):
            return
        yield from (f"{path}: {word}" for word in schema if word in _LIMITS)
        if schema.get("additionalProperties") is False:
            yield f"{path}: additionalProperties"
        for word in ("properties", "definitions", "$defs"):
            inside = schema.get(word)
            for name, each in inside.items() if isinstance(inside, dict) else ():
                yield from walk(each, f"{path}.{name}" if word == "properties" else name)
        for word in ("items", "additionalProperties", "oneOf", "anyOf", "allOf"):
            yield from walk(schema.get(word), path)

    return list(dict.fromkeys(walk(json.loads(text), "$")))


def _type(schema: Any, document: Any, path: str, depth: int) -> Type:
    if depth > _DEEPEST:
        raise JsonSchemaMistake(f"{path}: refers to itself")
    schema, _ = _present(_followed(schema, document, path), document, path)
    kind = schema.get("type") or ("object" if "properties" in schema else None)
    if kind == "object" and "properties" in schema:
        wanted = set(schema.get("required", ()))
        members = []
        for name, inner in schema["properties"].items():
            place = f"{path}.{name}"
            _, nullable = _present(_followed(inner, document, place), document, place)
            members.append(Member(name, _type(inner, document, place, depth + 1), name in wanted and not nullable))
        return Struct(tuple(members))
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return Map(_type(schema["additionalProperties"], document, f"{path}.*", depth + 1))
    if kind == "array" and isinstance(schema.get("items"), dict):
        return Array(_type(schema["items"], document, f"{path}[]", depth + 1))
    if kind in _SCALARS:
        return Scalar(_FORMATS.get(schema.get("format", ""), "string") if kind == "string" else _SCALARS[kind])
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        return Scalar("string")
    raise JsonSchemaMistake(f"{path}: no single type can be told from {json.dumps(schema)[:200]}")


def _followed(schema: Any, document: Any, path: str) -> dict[str, Any]:
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            raise JsonSchemaMistake(f"{path}: not a schema")
        reference = schema.get("$ref")
        if reference is None:
            return schema
        if not str(reference).startswith("#"):
            raise JsonSchemaMistake(f"{path}: refers to another document: {reference}")
        schema = document
        for step in str(reference).removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if name and isinstance(schema, dict) else schema
    raise JsonSchemaMistake(f"{path}: refers to itself")


def _present(schema: dict[str, Any], document: Any, path: str) -> tuple[dict[str, Any], bool]:
    """The schema without null, and whether null was one of its types."""
    if isinstance(schema.get("type"), list):
        kinds = [kind for kind in schema["type"] if kind != "null"]
        if len(kinds) != 1:
            raise JsonSchemaMistake(f"{path}: more than one type: {', '.join(map(str, kinds))}")
        return {**schema, "type": kinds[0]}, len(kinds) < len(schema["type"])
    branches = schema.get("oneOf") or schema.get("anyOf")
    if branches is None:
        return schema, False
    others = [b for b in branches if _followed(b, document, path).get("type") != "null"]
    if len(others) != 1:
        raise JsonSchemaMistake(f"{path}: more than one type in oneOf or anyOf")
    return _followed(others[0], document, path), len(others) < len(branches)


def top(document: dict[str, Any]) -> dict[str, Any]:
    """The document with its own properties at the top, also where it says only which definition they are in."""
    if "$ref" not in document:
        return document
    return {**{key: value for key, value in document.items() if key != "$ref"}, **_followed(document, document, "$")}


def inlined(schema: Any, document: Any, depth: int = 0) -> Any:
    """A part of a document that no longer refers to others. Raises JsonSchemaMistake for one that refers to itself."""
    if depth > _DEEPEST:
        raise JsonSchemaMistake("refers to itself")
    if isinstance(schema, list):
        return [inlined(each, document, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("$ref"), str):
        return inlined(_followed(schema, document, "$"), document, depth + 1)
    return {key: inlined(value, document, depth + 1) for key, value in schema.items()}


def json_schema(struct: Struct, name: str = "record") -> str:
    """A schema for records of these columns; `name` is its title, which Confluent's serializers ask for.

    Objects are closed: only so does a registry call a property that is added compatible with what was written before.
    """
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_written(struct)}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _written(column: Type) -> dict[str, Any]:
    match column:
        case Scalar(epoch=str()):
            return {"type": "integer"}
        case Scalar(name=name):
            return dict(_WRITTEN[name])
        case Decimal():
            return {"type": "number"}
        case Array(item=item):
            return {"type": "array", "items": _or_null(item)}
        case Map(value=value):
            return {"type": "object", "additionalProperties": _or_null(value)}
        case Struct(members=members):
            found: dict[str, Any] = {"type": "object", "additionalProperties": False}
            found["properties"] = {m.name: _written(m.type) if m.required else _or_null(m.type) for m in members}
            required = [m.name for m in members if m.required]
            return {**found, "required": required} if required else found
    raise AssertionError(column)


def _or_null(column: Type) -> dict[str, Any]:
    """As Confluent's generators write it; null first, where a default would be."""
    return {"oneOf": [{"type": "null"}, _written(column)]}
