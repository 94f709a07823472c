"""A registry made of files: what a pipeline asks a schema registry for, without one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import SchemaMissing, SpecInvalid
from penstock.registry.client.http import RegistrySettings
from penstock.registry.client.registry import SchemaRegistry
from penstock.registry.client.schema import Kind, Reference, RegisteredSchema, SubjectVersion
from penstock.spec.load import text_of
from penstock.spec.references import located

_KINDS: dict[str, Kind] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"', re.MULTILINE)
_NOWHERE = RegistrySettings(url="http://registry.invalid")  # never asked


class FileRegistry(SchemaRegistry):
    """Subjects with their versions. Pickles, to be asked by decoders; what is registered later stays on the driver."""

    def __init__(self, subjects: Mapping[str, list[RegisteredSchema]]) -> None:
        super().__init__(_NOWHERE)
        self._subjects = {subject: list(versions) for subject, versions in subjects.items()}

    @classmethod
    def of(cls, base: Path, schemas: Mapping[str, str | list[str]]) -> FileRegistry:
        """Raises SpecUnreadable, and SpecInvalid for a file of another kind."""
        made = cls({})
        for subject, written in schemas.items():
            for path in [written] if isinstance(written, str) else written:
                made.take(subject, located(path, base))
        return made

    def take(self, subject: str, file: Path) -> None:
        """A further version."""
        self._add(subject, *_read(file))

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRegistry, (self._subjects,)

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        return next((each for every in self._subjects.values() for each in every if each.id == schema_id), None)

    def subjects(self) -> list[str]:
        return sorted(self._subjects)

    def versions(self, subject: str) -> list[int]:
        return list(range(1, len(self._found(subject)) + 1))

    def latest(self, subject: str) -> SubjectVersion:
        return self.version(subject, len(self._found(subject)))

    def version(self, subject: str, number: int) -> SubjectVersion:
        there = self._found(subject)
        if number > len(there):
            raise SchemaMissing(f"`schemas` has {len(there)} versions of '{subject}', and not a version {number}")
        return SubjectVersion(subject, number, there[number - 1])

    def register(self, subject: str, kind: Kind, text: str, _references: Iterable[Reference] = ()) -> int:
        """What a sink may register is taken: whether a real registry would allow it is for `penstock plan` to say."""
        same = (each for each in self._subjects.get(subject, ()) if each.kind == kind and each.text == text)
        found = next(same, None) or self._add(subject, kind, text, ())
        return found.id

    def id_of(self, subject: str, kind: Kind, text: str, _references: Iterable[Reference] = ()) -> int | None:
        """As if it were there: `schemas` need not repeat what a sink names itself."""
        return self.register(subject, kind, text)

    def _add(
        self, subject: str, kind: Kind, text: str, used: tuple[tuple[str, RegisteredSchema], ...]
    ) -> RegisteredSchema:
        number = 1 + sum(map(len, self._subjects.values()))
        made = RegisteredSchema(number, kind, text, used)
        self._subjects.setdefault(subject, []).append(made)
        return made

    def _found(self, subject: str) -> list[RegisteredSchema]:
        if subject not in self._subjects:
            raise SpecInvalid(
                f"the tests have no schema of '{subject}'",
                cause="the spec takes it from the registry, which tests do not ask",
                next_command=f"name its file in the file of tests: `schemas: {{{subject}: path.avsc}}` "
                f"(as: penstock registry show FILE --subject {subject})",
            )
        return self._subjects[subject]


def _read(file: Path) -> tuple[Kind, str, tuple[tuple[str, RegisteredSchema], ...]]:
    if file.suffix not in _KINDS:
        raise SpecInvalid(f"{file} is no schema", cause=f"expected one of: {', '.join(_KINDS)}")
    text = text_of(file)
    return _KINDS[file.suffix], text, _imports(file.parent, text) if file.suffix == ".proto" else ()


def _imports(base: Path, text: str) -> tuple[tuple[str, RegisteredSchema], ...]:
    """Those that lie beside the file; google's own are known everywhere."""
    found = []
    for name in _IMPORT.findall(text):
        if (base / name).is_file():
            inner = text_of(base / name)
            found.append((name, RegisteredSchema(0, "PROTOBUF", inner, _imports(base, inner))))
    return tuple(found)
