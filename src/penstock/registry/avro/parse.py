"""Avro schemas from JSON text, with every name resolved: the schema's own types and those of what it refers to.

A logical type that does not fit what it annotates is ignored, as the specification asks.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeGuard

from penstock.registry.avro.model import (
    NO_DEFAULT,
    PRIMITIVES,
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
    width_of,
)
from penstock.registry.client.schema import RegisteredSchema
from penstock.spec.types import MOST_DEPTH

_ANNOTATES = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
    "uuid": "string",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def parse(schema: str | RegisteredSchema) -> Schema:
    """The schema of a text, or of an id with the named types of everything it refers to."""
    names: dict[str, Named] = {}
    if isinstance(schema, RegisteredSchema):
        _parse_references(schema, names)
        schema = schema.text
    return _parse(schema, names)


def essence(registered: RegisteredSchema) -> str:
    """The same text for writer schemas that write the same bytes and mean the same by them: two versions of which one
    only has other comments or defaults are read as one."""
    try:
        own = json.dumps(_essential(json.loads(registered.text)), sort_keys=True)
    except (ValueError, RecursionError):
        return registered.text
    return "\n".join([own, *(essence(reference) for _, reference in registered.references)])


def _essential(document: Any) -> Any:
    if isinstance(document, list):
        return [_essential(d) for d in document]
    if isinstance(document, dict):
        return {k: _essential(v) for k, v in document.items() if k not in ("doc", "default", "order", "aliases")}
    return document


def _parse_references(registered: RegisteredSchema, names: dict[str, Named]) -> None:
    for _, reference in registered.references:
        _parse_references(reference, names)
        _parse(reference.text, names)


def _parse(text: str, known: dict[str, Named]) -> Schema:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaMistake(f"not JSON: {error}") from None
    parser = _Parser(dict(known))
    found = parser.schema(document, "", document.get("name", "") if isinstance(document, dict) else "", 0)
    known.update(parser.names)
    return found


class _Parser:
    def __init__(self, names: dict[str, Named]) -> None:
        self.names = names  # by full name
        self.defined: set[str] = set()  # by this text; what a reference defined may be defined again

    def schema(self, document: Any, namespace: str, path: str, depth: int) -> Schema:
        if depth > 2 * MOST_DEPTH:  # a level of a view can be two of a schema: a union and what is in it
            raise AvroSchemaMistake(f"{path}: nested too deeply")
        if isinstance(document, str):
            return self.by_name(document, namespace, path)
        if isinstance(document, list):
            return self.union(document, namespace, path, depth)
        if not isinstance(document, dict) or "type" not in document:
            raise AvroSchemaMistake(f"{path}: neither a type's name nor an object with 'type': {_shown(document)}")
        kind = document["type"]
        match kind:
            case "record" | "error":
                return self.record(document, namespace, path, depth)
            case "enum":
                return self.enum(document, namespace, path)
            case "fixed":
                return self.fixed(document, namespace, path)
            case "array":
                return Array(self.schema(_need(document, "items", path), namespace, f"{path}[]", depth + 1))
            case "map":
                return Map(self.schema(_need(document, "values", path), namespace, f"{path}[]", depth + 1))
            case str() if kind in PRIMITIVES:
                return Primitive(kind, _logical_of(document, kind, None))
        return self.schema(kind, namespace, path, depth + 1)  # {"type": {...}} and {"type": "a.name"}

    def by_name(self, name: str, namespace: str, path: str) -> Schema:
        if name in PRIMITIVES:
            return Primitive(name)
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise AvroSchemaMistake(f"{path}: there is no type '{name}'")
        return found

    def union(self, document: list[Any], namespace: str, path: str, depth: int) -> Union:
        branches = tuple(self.schema(b, namespace, path, depth + 1) for b in document)
        kinds = [b.name if isinstance(b, Fixed | Enum | Record) else b.kind for b in branches]
        if "union" in kinds:
            raise AvroSchemaMistake(f"{path}: a union directly inside a union")
        if not branches or len(set(kinds)) < len(kinds):
            raise AvroSchemaMistake(f"{path}: the types of a union must be some and differ: {_shown(document)}")
        return Union(branches)

    def record(self, document: dict[str, Any], namespace: str, path: str, depth: int) -> Record:
        name, aliases, inside = self.name(document, namespace, path)
        made = Record(name, aliases)
        self.define(made, path)
        listed = _need(document, "fields", path)
        if not isinstance(listed, list) or not all(isinstance(f, dict) for f in listed):
            raise AvroSchemaMistake(f"{path}: 'fields' is not a list of objects")
        for entry in listed:
            here = _need(entry, "name", path)
            if not isinstance(here, str):
                raise AvroSchemaMistake(f"{path}: a field's name is {_shown(here)}")
            below = f"{path}.{here}"
            if any(f.name == here for f in made.fields):
                raise AvroSchemaMistake(f"{below}: defined twice")
            # An annotation is sometimes written beside the type instead of inside of it; like Java, that is not one.
            kind = self.schema(_need(entry, "type", below), inside, below, depth + 1)
            made.fields.append(Field(here, _texts(entry, "aliases", below), kind, entry.get("default", NO_DEFAULT)))
        widths = [width_of(f.type) for f in made.fields]
        made.width = None if None in widths else sum(w for w in widths if w is not None)
        return made

    def enum(self, document: dict[str, Any], namespace: str, path: str) -> Enum:
        name, aliases, _ = self.name(document, namespace, path)
        symbols = _texts(document, "symbols", path)
        default = document.get("default")
        if not symbols or len(set(symbols)) < len(symbols):
            raise AvroSchemaMistake(f"{path}: the symbols of an enum must be some and differ")
        if default is not None and default not in symbols:
            raise AvroSchemaMistake(f"{path}: the default {_shown(default)} is none of the symbols")
        made = Enum(name, aliases, symbols, default)
        self.define(made, path)
        return made

    def fixed(self, document: dict[str, Any], namespace: str, path: str) -> Fixed:
        name, aliases, _ = self.name(document, namespace, path)
        size = _need(document, "size", path)
        if not _is_number(size) or size < 0:
            raise AvroSchemaMistake(f"{path}: the size of a fixed is {_shown(size)}")
        made = Fixed(name, aliases, size, _logical_of(document, "fixed", size))
        self.define(made, path)
        return made

    def name(self, document: dict[str, Any], namespace: str, path: str) -> tuple[str, tuple[str, ...], str]:
        """Full name, full aliases, and the namespace of what is inside."""
        name = _need(document, "name", path)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise AvroSchemaMistake(f"{path}: {_shown(name)} is not a name")
        inside = document.get("namespace", namespace) or ""
        if "." in name:
            inside = name.rpartition(".")[0]
        if not isinstance(inside, str):
            raise AvroSchemaMistake(f"{path}: the namespace is {_shown(inside)}")
        full = name if "." in name or not inside else f"{inside}.{name}"
        aliases = _texts(document, "aliases", path)
        return full, tuple(a if "." in a or not inside else f"{inside}.{a}" for a in aliases), inside

    def define(self, made: Named, path: str) -> None:
        if made.name in self.defined or made.name in PRIMITIVES:
            raise AvroSchemaMistake(f"{path}: the name '{made.name}' is taken")
        self.defined.add(made.name)
        self.names[made.name] = made


def _logical_of(document: dict[str, Any], kind: str, size: int | None) -> Logical | None:
    name = document.get("logicalType")
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = document.get("precision"), document.get("scale", 0)
        if not _is_number(precision) or not _is_number(scale) or not 0 <= scale <= precision or not precision:
            return None
        if size is not None and precision > math.log10(2) * (8 * size - 1):  # more digits than its bytes can hold
            return None
        return Logical(name, precision, scale)
    if name == "duration" and kind == "fixed" and size == 12:
        return Logical(name)
    return Logical(name) if isinstance(name, str) and _ANNOTATES.get(name) == kind else None


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _need(document: dict[str, Any], key: str, path: str) -> Any:
    if key not in document:
        raise AvroSchemaMistake(f"{path}: '{key}' is missing")
    return document[key]


def _texts(document: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    found = document.get(key, [])
    if not isinstance(found, list) or not all(isinstance(t, str) for t in found):
        raise AvroSchemaMistake(f"{path}: '{key}' is not a list of texts")
    return tuple(found)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:79] + "…"
