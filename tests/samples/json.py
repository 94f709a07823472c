"""JSON Schema: random documents, by confluent-kafka's serializer."""

from __future__ import annotations

import datetime
import json
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry.json_schema import JSONSerializer
from hypothesis import strategies as st

from penstock.spec.formats import JsonFormat
from tests.samples.lab import (
    HEADER,
    Lab,
    Pair,
    Sample,
    aware,
    in_subject,
    serialized,
    twice,
    unzipped,
    unzipped_dict,
)

sys.path.append(str(Path(__file__).parent.parent / "unit" / "decode"))

from json_strategies import names


@dataclass(frozen=True)
class JsonType:
    schema: dict[str, Any]
    values: st.SearchStrategy[Pair]
    holds: Callable[[Any], bool]


json_scalars = st.sampled_from(
    [
        JsonType({"type": "integer"}, st.integers(-(2**63), 2**63 - 1).map(twice), lambda v: type(v) is int),
        JsonType(
            {"type": "number"},
            st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53)).map(
                lambda n: (n, float(n))
            ),
            lambda v: type(v) is float,
        ),
        JsonType({"type": "boolean"}, st.booleans().map(twice), lambda v: type(v) is bool),
        JsonType({"type": "string"}, st.text(max_size=12).map(twice), lambda v: type(v) is str),
        JsonType(
            {"type": "string", "format": "date-time"},
            aware.map(lambda t: (t.isoformat(), t)),
            lambda v: type(v) is datetime.datetime and v.tzinfo is not None,
        ),
        JsonType(
            {"type": "string", "format": "date"},
            st.dates().map(lambda d: (d.isoformat(), d)),
            lambda v: type(v) is datetime.date,
        ),
    ]
)


def json_array(item: JsonType) -> JsonType:
    return JsonType(
        {"type": "array", "items": item.schema},
        st.lists(item.values, max_size=3).map(unzipped),
        lambda v: isinstance(v, list) and all(map(item.holds, v)),
    )


def json_map(value: JsonType) -> JsonType:
    return JsonType(
        {"type": "object", "additionalProperties": value.schema},
        st.dictionaries(st.text(max_size=4), value.values, max_size=3).map(unzipped_dict),
        lambda v: isinstance(v, dict) and all(map(value.holds, v.values())),
    )


def json_nullable(inner: JsonType, way: str) -> JsonType:
    null = {"type": "null"}
    kind = inner.schema.get("type")
    schema: dict[str, Any] = {way: [null, inner.schema]}
    if way == "type":
        schema = {**inner.schema, "type": [kind, "null"]} if isinstance(kind, str) else inner.schema
    if inner.holds(None):
        return inner
    return JsonType(schema, st.one_of(st.just((None, None)), inner.values), lambda v: v is None or inner.holds(v))


def json_object(members: list[tuple[str, JsonType, bool]]) -> JsonType:
    required = {name: inner.values for name, inner, needed in members if needed}
    optional = {name: inner.values for name, inner, needed in members if not needed}
    every = dict.fromkeys([name for name, *_ in members])
    schema = {"type": "object", "properties": {name: inner.schema for name, inner, _ in members}}

    def pair(found: dict[str, Pair]) -> Pair:
        given, expected = unzipped_dict(found)
        return given, {**every, **expected}

    return JsonType(
        {**schema, "required": list(required)} if required else schema,
        st.fixed_dictionaries(required, optional=optional).map(pair),
        lambda v: (
            isinstance(v, dict)
            and all(inner.holds(v[name]) or (v[name] is None and not needed) for name, inner, needed in members)
        ),
    )


def json_objects(of: st.SearchStrategy[JsonType], most: int) -> st.SearchStrategy[JsonType]:
    members = st.tuples(names, of, st.booleans())
    return st.lists(members, min_size=1, max_size=most, unique_by=lambda m: m[0].lower()).map(json_object)


json_types = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        inner.map(json_array),
        inner.map(json_map),
        json_objects(inner, 3),
        st.builds(json_nullable, inner, st.sampled_from(["type", "oneOf", "anyOf"])),
    ),
    max_leaves=5,
)


@st.composite
def json_documents(draw: Any) -> JsonType:
    """A document with a title, as confluent-kafka wants it, and some of its types by reference."""
    found = draw(json_objects(json_types, 6))
    properties, definitions = dict(found.schema["properties"]), {}
    for i, name in enumerate(properties):
        if draw(st.booleans()) and draw(st.booleans()):
            definitions[f"d{i}"] = properties[name]
            properties[name] = {"$ref": f"#/definitions/d{i}"}
    return replace(found, schema={**found.schema, "title": "R", "properties": properties, "definitions": definitions})


def json_sample(draw: Any, lab: Lab) -> Sample:
    document = draw(json_documents())
    pairs = draw(st.lists(document.values, min_size=1, max_size=8))
    subject = f"json-{uuid.uuid4().hex}"
    serialize = JSONSerializer(json.dumps(document.schema), lab.client, conf=in_subject(subject))
    values = serialized(serialize, [given for given, _ in pairs])
    return Sample(
        "json",
        lab.prepared(JsonFormat(format="json"), subject),
        values,
        [row for _, row in pairs],
        document.holds,
        HEADER,
    )
