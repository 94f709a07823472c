"""A registry that takes nothing: what `register` would do, without doing it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import SchemaIncompatible, SchemaMissing, SubjectMissing
from penstock.kafka.registry_http import RegistrySettings
from penstock.kafka.schema import Kind, Reference
from penstock.kafka.schema_registry import SchemaRegistry

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
        references = tuple(references)
        found = self.id_of(subject, kind, text, references)
        if found is None:
            self._require_compatible(subject, kind, text, references)
        self.registrations[subject] = Registration(subject, kind, found)
        return _NOT_YET if found is None else found

    def _require_compatible(self, subject: str, kind: Kind, text: str, references: tuple[Reference, ...]) -> None:
        try:
            verdict = self.check(subject, kind, text, references)
        except (SubjectMissing, SchemaMissing):
            return  # its first version: there is nothing to be compatible with
        if not verdict.compatible:
            raise SchemaIncompatible(
                f"the registry refuses the schema as a new version of '{subject}'",
                cause="; ".join(verdict.reasons),
                next_command=f"penstock registry mode FILE --subject {subject}",
                facts={"subject": subject},
            )
