"""A registry that takes nothing, or nothing yet: what `register` would do, without doing it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import SchemaIncompatible, SchemaMissing, SubjectMissing
from penstock.registry.client.http import RegistrySettings
from penstock.registry.client.registry import SchemaRegistry
from penstock.registry.client.schema import Kind, Reference

_NOT_YET = 0  # stands for the id that a schema would get; only records carry it, and none is written


@dataclass(frozen=True)
class Registration:
    """A schema that a sink writes with: under the id it has, or None where a run would register it."""

    subject: str
    kind: Kind
    id: int | None


class RegistryRehearsal(SchemaRegistry):
    """For `plan`: sinks with `register: true` call `register` when they are told their columns, before any batch.

    The schema is looked up; one that the subject does not have is compared as its mode asks. Raises what `register`
    would raise.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        super().__init__(settings)
        self.registrations: dict[str, Registration] = {}

    def register(self, subject: str, kind: Kind, text: str, references: Iterable[Reference] = ()) -> int:
        found = _looked_up(self, subject, kind, text, tuple(references))
        self.registrations[subject] = Registration(subject, kind, found)
        return _NOT_YET if found is None else found


class PatientRegistry(SchemaRegistry):
    """For a run: what sinks register is only looked up while it is held back, and registered afterwards.

    A start asks every sink twice. So nothing is left in the registry, which forgets nothing, by a pipeline that another
    of its sinks keeps from starting.
    """

    _held = False

    @contextmanager
    def held_back(self) -> Iterator[None]:
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def register(self, subject: str, kind: Kind, text: str, references: Iterable[Reference] = ()) -> int:
        references = tuple(references)
        if not self._held:
            return super().register(subject, kind, text, references)
        found = _looked_up(self, subject, kind, text, references)
        return _NOT_YET if found is None else found


def _looked_up(
    registry: SchemaRegistry, subject: str, kind: Kind, text: str, references: tuple[Reference, ...]
) -> int | None:
    """The id that the schema has; None where it would be registered now. Raises what `register` would raise."""
    found = registry.id_of(subject, kind, text, references)
    if found is not None:
        return found
    try:
        verdict = registry.check(subject, kind, text, references)
    except (SubjectMissing, SchemaMissing):
        return None  # its first version: there is nothing to be compatible with
    if not verdict.compatible:
        raise SchemaIncompatible(
            f"the registry refuses the schema as a new version of '{subject}'",
            cause="; ".join(verdict.reasons),
            next_command=f"penstock registry mode FILE --subject {subject}",
            facts={"subject": subject},
        )
    return None
