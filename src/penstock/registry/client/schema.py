"""Schemas as a registry knows them: by id, by subject and version, with what they refer to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from penstock.errors import RegistryUnreachable

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Mode = Literal[
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"
]  # fmt: skip
MODES: tuple[Mode, ...] = get_args(Mode)
"""What a new version of a subject must be compatible with. TRANSITIVE: with every version, not just the last."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry holds it, with everything it refers to, resolved."""

    id: int
    kind: Kind
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()  # the name it is imported by -> the schema


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject: a topic's values are the subject `<topic>-value` by convention."""

    subject: str
    version: int
    schema: RegisteredSchema


@dataclass(frozen=True)
class Reference:
    """How a schema that is being registered names another one: `import "name"` means this version of that subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Compatibility:
    """Whether a schema could become the next version of a subject; `reasons` in the registry's words when not."""

    compatible: bool
    reasons: tuple[str, ...] = ()


Lookup = Callable[[int], RegisteredSchema | None]
"""The schema of an id; None when the registry says that there is no such id. Raises RegistryUnreachable, and
RegistryRefused when the registry answers but not to us (wrong login, wrong address)."""


class GivenUp:
    """A lookup that no longer waits for a registry that is away: what is not cached is not known. Pickles.

    Each task has its own, and waits for the registry once: after a time-out only the cache (`kept`) is asked, or every
    record of an unknown schema would cost another one.
    """

    def __init__(self, lookup: Lookup, kept: Lookup) -> None:
        self._lookup, self._kept, self._away = lookup, kept, False
        self.denied: set[int] = set()  # ids of which the registry said, when it last answered, that there are none

    def __call__(self, schema_id: int) -> RegisteredSchema | None:
        if self._away:
            return self._kept(schema_id)
        try:
            found = self._lookup(schema_id)
        except RegistryUnreachable:
            self._away = True
            return None
        if found is None:
            self.denied.add(schema_id)
        return found


def why_unknown(lookup: Lookup | None, schema_id: int) -> str:
    if isinstance(lookup, GivenUp) and schema_id not in lookup.denied:
        return f"schema {schema_id} is not known here, and the registry does not answer"
    return f"the registry has no schema {schema_id}"
