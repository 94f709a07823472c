"""Words for the shape of what `--json` prints, as JSON Schema: keys stay between releases, none come unnoticed."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

ANY: Schema = {}
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


def keys_of(schema: Schema) -> set[str]:
    """Every key that such a document has, at any depth. Names that the data brings along are none."""
    own: Schema = schema.get("properties", {})
    below = [schema[name] for name in ("items", "additionalProperties") if schema.get(name)]
    parts = [*own.values(), *schema.get("anyOf", ()), *below]
    return set(own).union(*map(keys_of, parts))


def exactly(**keys: Schema) -> Schema:
    return {"type": "object", "properties": keys, "required": sorted(keys), "additionalProperties": False}
