"""Two versions of a JSON Schema as one, which reads the records of both.

At every depth: a property is required only where both versions require it, and may be null where one lets it be; what
the newest version lacks stays. With `add` the properties it has gained, and types it has widened, become part of the
view.
The result refers to nothing: the newest version may have other definitions than the known one, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.registry.json_schema import JsonSchemaMistake, inlined, present, type_of
from penstock.spec.types import Scalar, Type

# A type of the known version -> types of the newest one that its column holds
_HOLDS: dict[Type, tuple[Type, ...]] = {
    Scalar("double"): (Scalar("bigint"),),
    Scalar("string"): (Scalar("timestamp"), Scalar("date")),
}


@dataclass(frozen=True)
class Part:
    """A part of a document, as it is meant: without references, and without null."""

    schema: dict[str, Any]
    nullable: bool
    document: Any

    @classmethod
    def of(cls, schema: Any, document: Any) -> Part:
        found, nullable = present(schema, document, "$")
        return cls(found, nullable, document)

    @property
    def properties(self) -> dict[str, Any] | None:
        found = self.schema.get("properties")
        return found if isinstance(found, dict) and self.schema.get("type", "object") == "object" else None

    def below(self, word: str) -> Part | None:
        """The items of an array, or the values of a map."""
        kind = {"items": "array", "additionalProperties": "object"}[word]
        found = self.schema.get(word)
        if self.properties is not None or self.schema.get("type") != kind or not isinstance(found, dict):
            return None
        return Part.of(found, self.document)

    def property(self, name: str) -> Part:
        return Part.of((self.properties or {})[name], self.document)

    def usable(self, name: str) -> Part | None:
        try:
            return self.property(name)
        except JsonSchemaMistake:
            return None

    def whole(self) -> dict[str, Any]:
        found: dict[str, Any] = inlined(self.schema, self.document)
        return found

    def type(self) -> Type | None:
        try:
            return type_of(self.schema, self.document)
        except JsonSchemaMistake:
            return None


def merged(known: Any, newest: Any, *, add: bool) -> Any:
    """The document to read with from now on. Raises JsonSchemaMistake for one that cannot be a view."""
    return _merged(Part.of(known, known), Part.of(newest, newest), add)


def gained(known: Part, newest: Part, path: str = "") -> Iterator[str]:
    """Paths of the properties of the newest version that the known one does not have."""
    before, after = known.properties, newest.properties
    if before is not None and after is not None:
        for name in after:
            here = f"{path}.{name}" if path else name
            if name not in before:
                yield here
            elif (other := newest.usable(name)) is not None:
                yield from gained(known.property(name), other, here)
    for word in ("items", "additionalProperties"):
        one, other = known.below(word), newest.below(word)
        if one is not None and other is not None:
            yield from gained(one, other, f"{path}[]")


def _merged(known: Part, newest: Part, add: bool) -> Any:
    made = _without_null(known, newest, add)
    if not (known.nullable or newest.nullable):
        return made
    if isinstance(made.get("type"), str) and "enum" not in made and "const" not in made:
        return {**made, "type": [made["type"], "null"]}
    return {"oneOf": [{"type": "null"}, made]}


def _without_null(known: Part, newest: Part, add: bool) -> dict[str, Any]:
    before, after = known.properties, newest.properties
    if before is not None and after is not None:
        return _objects(known, newest, add)
    said = newest if add else known
    for word in ("items", "additionalProperties"):
        one, other = known.below(word), newest.below(word)
        if one is not None and other is not None:
            return {**_without(said, word), word: _merged(one, other, add)}
    one_type, other_type = known.type(), newest.type()
    if one_type is not None and other_type in _HOLDS.get(one_type, ()):
        return known.whole()
    return said.whole()


def _objects(known: Part, newest: Part, add: bool) -> dict[str, Any]:
    before, after = known.properties or {}, newest.properties or {}
    found: dict[str, Any] = {}
    for name in before:
        # Without `add` the column stays, whatever its property has become; records are then judged one by one.
        other = None if name not in after else newest.property(name) if add else newest.usable(name)
        found[name] = (
            inlined(before[name], known.document) if other is None else _merged(known.property(name), other, add)
        )
    if add:
        found |= {name: inlined(after[name], newest.document) for name in after if name not in before}
    required = [name for name in known.schema.get("required", ()) if name in newest.schema.get("required", ())]
    kept = _without(newest if add else known, "properties", "required")
    return {**kept, "type": "object", "properties": found, "required": required}


def _without(part: Part, *words: str) -> dict[str, Any]:
    left = {k: v for k, v in part.schema.items() if k not in (*words, "definitions", "$defs")}
    found: dict[str, Any] = inlined(left, part.document)
    return found
