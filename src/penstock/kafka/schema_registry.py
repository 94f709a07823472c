"""The schema registry: schemas by id, by subject and version, over the Confluent-compatible API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["AVRO", "PROTOBUF", "JSON"]


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry holds it, with everything it refers to, resolved."""

    id: int
    kind: Kind
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()  # the name it is imported by -> the schema


class RegistryUnreachable(Exception):
    """The registry could not be asked: what a schema id means is not known yet. Not a fault of the record."""


Lookup = Callable[[int], RegisteredSchema | None]
"""The schema of an id; None when the registry says that there is no such id. Raises RegistryUnreachable."""
