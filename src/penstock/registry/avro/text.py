"""An Avro schema as text again, with no references: every type is written where it is used.

A name may be defined once in a text. So a type that is used twice, or is another one of the same name, gets a name of
its own the second time, and the first as an alias, by which records written with it are still read.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.registry.avro.model import (
    NO_DEFAULT,
    Array,
    AvroSchemaMistake,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)
from penstock.registry.avro.view import MOST_MEMBERS
from penstock.spec.types import MOST_DEPTH


def text_of(schema: Schema) -> str:
    """Raises AvroSchemaMistake for a type that contains itself, which has no such text."""
    return json.dumps(_Text().document(schema, 0))


class _Text:
    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.fields = 0

    def document(self, schema: Schema, depth: int) -> Any:
        if depth > 2 * MOST_DEPTH:
            raise AvroSchemaMistake("nested too deeply, or a type that contains itself")
        match schema:
            case Primitive(kind=kind, logical=logical):
                return kind if logical is None else {"type": kind, **_annotation(logical)}
            case Union(branches=branches):
                return [self.document(branch, depth + 1) for branch in branches]
            case Array(items=items):
                return {"type": "array", "items": self.document(items, depth + 1)}
            case Map(values=values):
                return {"type": "map", "values": self.document(values, depth + 1)}
            case Fixed(size=size, logical=logical):
                return {"type": "fixed", **self.named(schema), "size": size, **_annotation(logical)}
            case Enum(symbols=symbols, default=default):
                made = {"type": "enum", **self.named(schema), "symbols": list(symbols)}
                return made if default is None else {**made, "default": default}
            case Record(fields=fields):
                self.fields += len(fields)
                if self.fields > MOST_MEMBERS:
                    raise AvroSchemaMistake(f"the view would have more than {MOST_MEMBERS} fields")
                made = {"type": "record", **self.named(schema)}
                return {**made, "fields": [self.field(field, depth + 1) for field in fields]}

    def field(self, field: Field, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"name": field.name, "type": self.document(field.type, depth)}
        if field.aliases:
            made["aliases"] = list(field.aliases)
        return made if field.default is NO_DEFAULT else {**made, "default": field.default}

    def named(self, schema: Named) -> dict[str, Any]:
        now, number = schema.name, 2
        while now in self.taken:
            now, number = f"{schema.name}_{number}", number + 1
        self.taken.add(now)
        aliases = [alias for alias in dict.fromkeys((schema.name, *schema.aliases)) if alias != now]
        namespace, _, name = now.rpartition(".")
        return {"name": name, "namespace": namespace, **({"aliases": aliases} if aliases else {})}


def _annotation(logical: Logical | None) -> dict[str, Any]:
    if logical is None:
        return {}
    digits = {"precision": logical.precision, "scale": logical.scale} if logical.name == "decimal" else {}
    return {"logicalType": logical.name, **digits}
