"""A JSON Schema of the registry as the columns of a view, and one for columns that are written.

Objects become structs, arrays arrays, objects with only `additionalProperties` maps; `integer` is a bigint, `number` a
double, `string` with `format: date-time` a timestamp, with `format: date` a date. A property is required when it is
listed so and cannot be null. Null next to one other type (`["string", "null"]`, `oneOf`, `anyOf`) makes it nullable;
`$ref` inside the document is followed, what `allOf` lists is put together. What could be more than one type has no
column type and is refused.

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
    "dependencies", "dependentRequired", "dependentSchemas", "patternProperties", "not", "if",
}  # fmt: skip


class JsonSchemaMistake(ValueError):
    """The schema cannot be a view; the message names the place in it."""


def struct_of_json_schema(text: str) -> Struct:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonSchemaMistake(f"not JSON: {error}") from None
    found = type_of(document, document)
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


def type_of(schema: Any, document: Any, path: str = "$", depth: int = 0) -> Type:
    """The type of a column for a part of a document. Raises JsonSchemaMistake."""
    if depth > _DEEPEST:
        raise JsonSchemaMistake(f"{path}: refers to itself")
    schema, _ = present(schema, document, path)
    kind = schema.get("type") or ("object" if "properties" in schema else None)
    if kind == "object" and "properties" in schema:
        wanted = schema.get("required", ())
        members: dict[str, Member] = {}
        for name, inner in schema["properties"].items():
            place = f"{path}.{name}"
            if name.lower() in members:
                raise JsonSchemaMistake(f"{place}: there twice (SQL does not tell upper from lower case)")
            _, nullable = present(inner, document, place)
            found = type_of(inner, document, place, depth + 1)
            members[name.lower()] = Member(name, found, name in wanted and not nullable)
        return Struct(tuple(members.values()))
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return Map(type_of(schema["additionalProperties"], document, f"{path}.*", depth + 1))
    if kind == "array" and isinstance(schema.get("items"), dict):
        return Array(type_of(schema["items"], document, f"{path}[]", depth + 1))
    if kind in _SCALARS:
        return Scalar(_FORMATS.get(schema.get("format", ""), "string") if kind == "string" else _SCALARS[kind])
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        return Scalar("string")
    raise JsonSchemaMistake(f"{path}: no single type can be told from {json.dumps(schema)[:200]}")


# What words that are looked at here must be, where they are there.
_WORDS: dict[str, tuple[type, ...]] = {
    "$ref": (str,), "type": (str, list), "properties": (dict,), "required": (list,), "enum": (list,), "format": (str,),
    "oneOf": (list,), "anyOf": (list,), "allOf": (list,),
}  # fmt: skip


def _followed(schema: Any, document: Any, path: str, depth: int = 0) -> dict[str, Any]:
    """The schema that is meant: where a reference leads to, with all that `allOf` lists."""
    for _ in range(_DEEPEST):
        if not isinstance(schema, dict):
            raise JsonSchemaMistake(f"{path}: not a schema")
        for word, kinds in _WORDS.items():
            if word in schema and not isinstance(schema[word], kinds):
                raise JsonSchemaMistake(f"{path}: '{word}' is {json.dumps(schema[word])[:80]}")
        reference = schema.get("$ref")
        if reference is None:
            break
        if not reference.startswith("#"):
            raise JsonSchemaMistake(f"{path}: refers to another document: {reference}")
        schema = document
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if name and isinstance(schema, dict) else schema
    else:
        raise JsonSchemaMistake(f"{path}: refers to itself")
    if depth > _DEEPEST:
        raise JsonSchemaMistake(f"{path}: refers to itself")
    whole = {word: said for word, said in schema.items() if word != "allOf"}
    for part in schema.get("allOf", ()):
        whole = _both(whole, _followed(part, document, path, depth + 1), path)
    return whole


def _both(one: dict[str, Any], other: dict[str, Any], path: str) -> dict[str, Any]:
    """A schema for what fits both."""
    found = {**one, **other}
    for word in ("oneOf", "anyOf", "items", "additionalProperties"):
        if isinstance(one.get(word), list | dict) and isinstance(other.get(word), list | dict):
            if word in ("oneOf", "anyOf") and one[word] != other[word]:
                raise JsonSchemaMistake(f"{path}: more than one type in allOf")
            found[word] = {"allOf": [one[word], other[word]]} if isinstance(one[word], dict) else one[word]
    if "properties" in one and "properties" in other:
        found["properties"] = {**one["properties"], **other["properties"]}
        for name in one["properties"].keys() & other["properties"].keys():
            found["properties"][name] = {"allOf": [one["properties"][name], other["properties"][name]]}
    if "required" in one and "required" in other:
        found["required"] = [*one["required"], *(name for name in other["required"] if name not in one["required"])]
    if "type" in one and "type" in other:
        listed = [said["type"] if isinstance(said["type"], list) else [said["type"]] for said in (one, other)]
        kinds = [kind for kind in listed[0] if kind in listed[1] or (kind == "integer" and "number" in listed[1])]
        kinds += [kind for kind in listed[1] if kind == "integer" and "number" in listed[0] and kind not in kinds]
        if not kinds:
            raise JsonSchemaMistake(f"{path}: allOf of different types")
        found["type"] = kinds[0] if len(kinds) == 1 else kinds
    return found


def present(schema: Any, document: Any, path: str, depth: int = 0) -> tuple[dict[str, Any], bool]:
    """The schema that is meant, without null, and whether null was one of its types."""
    if depth > _DEEPEST:
        raise JsonSchemaMistake(f"{path}: refers to itself")
    schema = _followed(schema, document, path)
    if isinstance(schema.get("type"), list):
        kinds = [kind for kind in schema["type"] if kind != "null"]
        if len(kinds) != 1 or not isinstance(kinds[0], str):
            raise JsonSchemaMistake(f"{path}: more than one type: {', '.join(map(str, kinds))}")
        return {**schema, "type": kinds[0]}, len(kinds) < len(schema["type"])
    word = next((word for word in ("oneOf", "anyOf") if schema.get(word)), None)
    if word is None:
        return schema, False
    others = [b for b in schema[word] if _followed(b, document, path).get("type") != "null"]
    if len(others) != 1:
        raise JsonSchemaMistake(f"{path}: more than one type in oneOf or anyOf")
    beside = {key: said for key, said in schema.items() if key != word}
    inner, nullable = present(_both(beside, _followed(others[0], document, path), path), document, path, depth + 1)
    return inner, nullable or len(others) < len(schema[word])


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
