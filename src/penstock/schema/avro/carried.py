"""Fields of an older Avro schema, carried over into a newer one with all the types they name.

A type may be defined in a field that stays behind, be defined again by the newer schema, or lie in a document that the
newer one no longer refers to. So a carried field has the definitions of all its types with it; one whose name the newer
schema uses gets a name of its own, and the old one as an alias, by which records written with it are still read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.kafka.schema import RegisteredSchema
from penstock.schema.avro.model import PRIMITIVES

_NAMED = ("record", "error", "enum", "fixed")


def carried(fields: list[dict[str, Any]], known: RegisteredSchema, newest: RegisteredSchema) -> list[dict[str, Any]]:
    """Fields of the record `known`, so that they can stand behind those of the record `newest`."""
    root = json.loads(known.text)
    move = _Move(dict(_definitions_of(known)), {name for name, _ in _definitions_of(newest)})
    inside = _full_name(root, "").rpartition(".")[0]
    return [{**field, "type": move.type(field["type"], inside)} for field in fields]


class _Move:
    def __init__(self, definitions: dict[str, dict[str, Any]], taken: set[str]) -> None:
        self.definitions = definitions  # by full name
        self.taken = taken
        self.moved: dict[str, str] = {}  # full name before -> now, of what is defined already

    def type(self, document: Any, inside: str) -> Any:
        match document:
            case str():
                full = f"{inside}.{document}" if inside and "." not in document else document
                full = full if full in self.definitions else document
                return self.definition(full) if full in self.definitions else document
            case list():
                return [self.type(branch, inside) for branch in document]
            case {"type": str(kind)} if kind in _NAMED:
                return self.definition(_full_name(document, inside))
            case {"type": "array"}:
                return {**document, "items": self.type(document["items"], inside)}
            case {"type": "map"}:
                return {**document, "values": self.type(document["values"], inside)}
            case {"type": str(kind)} if kind in PRIMITIVES:
                return document
            case {"type": below}:
                return self.type(below, inside)
        return document

    def definition(self, full: str) -> Any:
        """The type where it is named first, its name from then on."""
        if full in self.moved:
            return self.moved[full]
        found, namespace = self.definitions[full], full.rpartition(".")[0]
        now, number = full, 2
        while now in self.taken:
            now, number = f"{full}_{number}", number + 1
        self.taken.add(now)
        self.moved[full] = now
        aliases = [alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in _aliases(found)]
        made = {**found, "name": now.rpartition(".")[2], "namespace": namespace}
        if aliases or now != full:
            made["aliases"] = list(dict.fromkeys([*([full] if now != full else []), *aliases]))
        if "fields" in found:
            made["fields"] = [{**field, "type": self.type(field["type"], namespace)} for field in found["fields"]]
        return made


def _definitions_of(schema: RegisteredSchema) -> Iterator[tuple[str, dict[str, Any]]]:
    for _, used in schema.references:
        yield from _definitions_of(used)
    yield from _definitions(json.loads(schema.text), "")


def _definitions(document: Any, inside: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(document, list):
        for branch in document:
            yield from _definitions(branch, inside)
    if not isinstance(document, dict):
        return
    if document.get("type") in _NAMED:
        full = _full_name(document, inside)
        yield full, document
        for field in document.get("fields", ()):
            yield from _definitions(field["type"], full.rpartition(".")[0])
        return
    for below in (document.get("type"), document.get("items"), document.get("values")):
        yield from _definitions(below, inside)


def _full_name(document: dict[str, Any], inside: str) -> str:
    name: str = document["name"]
    namespace = document.get("namespace", inside)
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _aliases(document: dict[str, Any]) -> list[str]:
    found: list[str] = document.get("aliases", [])
    return found
