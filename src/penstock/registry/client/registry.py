"""The schema registry: schemas by id, by subject and version, over the Confluent-compatible API.

Decoders need `SchemaRegistry.by_id` only: an id in, a schema out, from the cache when the registry is away. Commands
use the rest. What is registered is never changed or deleted from here.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from penstock.errors import (
    BadArgument,
    PenstockError,
    RegistryRefused,
    RegistryUnreachable,
    SchemaIncompatible,
    SchemaInvalid,
    SchemaMissing,
    SpecInvalid,
    SubjectMissing,
    counted,
)
from penstock.registry.client.apicurio import Apicurio
from penstock.registry.client.cache import SchemaCache
from penstock.registry.client.http import Answer, RegistryHttp, RegistrySettings
from penstock.registry.client.schema import (
    KINDS,
    MODES,
    Compatibility,
    Kind,
    Lookup,
    Mode,
    Reference,
    RegisteredSchema,
    SubjectVersion,
)
from penstock.spec.model import Pipeline
from penstock.spec.references import resolve

__all__ = [
    "KINDS",
    "MODES",
    "Compatibility",
    "Kind",
    "Lookup",
    "Mode",
    "Reference",
    "RegisteredSchema",
    "RegistrySettings",
    "RegistryUnreachable",
    "SchemaRegistry",
    "SubjectVersion",
    "settings_of",
]

_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA, _NO_MODE_OF_ITS_OWN = 40401, 40402, 40403, 40408
# What Apicurio's compatible API puts before a reason.
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")


def settings_of(pipeline: Pipeline) -> RegistrySettings:
    """The registry of a spec, its references resolved now. Raises SpecInvalid when the spec names none."""
    registry = pipeline.registry
    if registry is None:
        raise SpecInvalid(
            "the spec names no schema registry",
            cause="there is no `registry` block in it",
            next_command='add to the spec: registry: {url: "${env:SCHEMA_REGISTRY_URL}"}',
        )

    def value(text: str | None) -> str | None:
        return None if text is None else resolve(text, pipeline.base)

    return RegistrySettings(
        url=resolve(registry.url, pipeline.base),
        user=value(registry.user),
        password=value(registry.password),
        token=value(registry.token),
        timeout=registry.timeout.total_seconds(),
    )


class SchemaRegistry:
    """A registry. Without `cache_dir` schemas are remembered in this object only; `spec` is for the advice in errors.

    Every call ends within the time-out of the settings (with references: each of them), in an answer or in
    RegistryUnreachable. Can be pickled, and used by several threads.
    """

    def __init__(self, settings: RegistrySettings, cache_dir: Path | None = None, *, spec: str = "FILE") -> None:
        self._spec = spec
        self._settings = settings
        self._cache_dir = cache_dir
        self._cache = SchemaCache(cache_dir, settings.url) if cache_dir is not None else None
        self._known: dict[int, RegisteredSchema] = {}
        self._http = RegistryHttp(settings)
        self._apicurio = Apicurio(self._http, settings.url)

    def __reduce__(self) -> tuple[Any, ...]:
        """Settings travel, connections do not."""
        return SchemaRegistry, (self._settings, self._cache_dir)

    def __enter__(self) -> SchemaRegistry:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def hurried(self, seconds: float) -> SchemaRegistry:
        """The same registry, with no more patience than that."""
        return SchemaRegistry(replace(self._settings, timeout=min(seconds, self._settings.timeout)), self._cache_dir)

    @property
    def url(self) -> str:
        return self._settings.url

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        """What decoders call with the id in a record. It can be pickled, and opens no connection before it must ask:

        1. this object's memory  2. the cache on disk  3. the registry, whose answer is kept in both.

        That there is no such id is not kept: a moment later it may be registered.
        """
        if not 0 <= schema_id < 2**31:
            return None  # garbage in a record; some registries answer that with an error of another kind
        found = self.kept(schema_id)
        if found is None:
            answer = self._ask("GET", f"/schemas/ids/{schema_id}")
            # Only the registry's own "no such schema" means that. Any other 404 is a wrong address, and must not
            # turn every record of a topic into a dead letter.
            if answer.status == 404 and answer.code == _NO_SCHEMA:
                return None
            found = self._schema(self._good(answer), schema_id, {}, (f"id {schema_id}",))
            if self._cache:
                self._cache.put(found)
        self._known[schema_id] = found
        return found

    def kept(self, schema_id: int) -> RegisteredSchema | None:
        """What is known of an id without asking the registry."""
        return self._known.get(schema_id) or (self._cache.get(schema_id) if self._cache else None)

    def subjects(self) -> list[str]:
        return sorted(map(str, self._good(self._ask("GET", "/subjects"), list)))

    def versions(self, subject: str) -> list[int]:
        answer = self._ask("GET", f"/subjects/{_quoted(subject)}/versions")
        return sorted(each for each in self._good(answer, list, subject=subject) if isinstance(each, int))

    def latest(self, subject: str) -> SubjectVersion:
        return self._version(subject, "latest", {}, ())

    def version(self, subject: str, number: int) -> SubjectVersion:
        return self._version(subject, str(number), {}, ())

    def register(self, subject: str, kind: Kind, text: str, references: Iterable[Reference] = ()) -> int:
        """The id of the schema, which is the old one where the subject already has it.

        Raises SchemaIncompatible with the registry's reason, or SchemaInvalid.
        """
        body = _body(kind, text, references)
        answer = self._ask("POST", f"/subjects/{_quoted(subject)}/versions", body)
        if answer.status == 409:
            raise SchemaIncompatible(
                f"the registry refuses the schema as a new version of '{subject}'",
                cause=_JAVA_CLASS.sub("", answer.message),
                next_command=f"penstock registry mode {self._spec} --subject {subject}",
                facts={"subject": subject},
            )
        return self._number(self._good(answer, subject=subject), "id")

    def id_of(self, subject: str, kind: Kind, text: str, references: Iterable[Reference] = ()) -> int | None:
        """The id under which the subject has this schema, or None. Registers nothing."""
        answer = self._ask("POST", f"/subjects/{_quoted(subject)}", _body(kind, text, references))
        if answer.status == 404 and answer.code in (_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA):
            return None
        return self._number(self._good(answer, subject=subject), "id")

    def check(self, subject: str, kind: Kind, text: str, references: Iterable[Reference] = ()) -> Compatibility:
        """Whether `register` would be allowed by the subject's mode. Registers nothing."""
        body = _body(kind, text, references)
        # Without a version Confluent compares as the mode says, Apicurio with all of them whatever it says.
        against = "" if self.mode(subject).endswith("_TRANSITIVE") else "/latest"
        path = f"/compatibility/subjects/{_quoted(subject)}/versions{against}?verbose=true"
        answer = self._ask("POST", path, body)
        said = self._good(answer, subject=subject)
        if said.get("is_compatible") is True:
            return Compatibility(True)
        reasons = tuple(map(str, said.get("messages") or ()))
        if not reasons and self._apicurio.is_one:
            reasons = self._apicurio.reasons(subject, body)
        return Compatibility(False, reasons or ("the registry gives no reason",))

    def mode(self, subject: str | None = None) -> Mode:
        """What new versions must be compatible with: of a subject (its own, or else the global one), or global."""
        if subject is None:
            said = self._good(self._ask("GET", "/config"))
        else:
            # Without the parameter Apicurio calls a subject that has no mode of its own NONE, which is not so.
            answer = self._ask("GET", f"/config/{_quoted(subject)}?defaultToGlobal=true")
            if answer.code == _NO_MODE_OF_ITS_OWN:
                return self.mode()
            said = self._good(answer, subject=subject)
        found: Mode = said.get("compatibilityLevel")
        if found not in MODES:
            raise self._odd(f"it calls the mode {found!r}")
        return found

    def set_mode(self, mode: Mode, subject: str | None = None) -> None:
        """Of a subject that exists, or global. Raises SubjectMissing."""
        if mode not in MODES:
            raise BadArgument(f"there is no mode '{mode}'", cause=f"the modes are {', '.join(MODES)}")
        if subject is not None:
            self.versions(subject)  # a registry takes a mode for a subject that was mistyped, and never tells
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._good(self._ask("PUT", path, {"compatibility": mode}), subject=subject)
        if subject is not None and self._apicurio.is_one and self.mode(subject) != mode:
            self._apicurio.set_mode(subject, mode, self.latest(subject).schema)
        if (now := self.mode(subject)) != mode:
            raise self._odd(f"it was told the mode {mode}, and has {now}")

    def _version(
        self, subject: str, version: str, seen: dict[tuple[str, str], SubjectVersion], path: tuple[str, ...]
    ) -> SubjectVersion:
        if found := seen.get((subject, version)):
            return found
        # What a schema refers to may be deleted for new readers; those that have it still need it.
        deleted = "?deleted=true" if path else ""
        answer = self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version}{deleted}")
        said = self._good(answer, subject=subject)
        schema = self._schema(said, self._number(said, "id"), seen, (*path, f"{subject} version {version}"))
        return seen.setdefault((subject, version), SubjectVersion(subject, self._number(said, "version"), schema))

    def _schema(
        self, said: dict[str, Any], schema_id: int, seen: dict[tuple[str, str], SubjectVersion], path: tuple[str, ...]
    ) -> RegisteredSchema:
        """With all it refers to. `seen` saves asking twice, `path` ends a circle, which no registry should have."""
        if len(set(path)) < len(path):
            raise self._odd(f"its schemas refer to each other in a circle: {' -> '.join(path)}")
        kind, text = said.get("schemaType", "AVRO"), said.get("schema")  # older registries leave out that it is Avro
        if kind not in KINDS or not isinstance(text, str):
            raise self._odd(f"schema {schema_id} is of the kind {kind!r}, its text a {type(text).__name__}")
        used = tuple(
            (str(each["name"]), self._version(str(each["subject"]), str(each["version"]), seen, path).schema)
            for each in said.get("references") or ()
        )
        return RegisteredSchema(schema_id, kind, text, used)

    def _number(self, said: dict[str, Any], key: str) -> int:
        found = said.get(key)
        if not isinstance(found, int):
            raise self._odd(f"its answer has no {key}")
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self._http.ask(method, self.url + path, body)

    def _good(self, answer: Answer, shape: type = dict, subject: str | None = None) -> Any:
        """The data of an answer that is one; every other answer is raised as the error it is."""
        if answer.status == 200:
            if isinstance(answer.data, shape):
                return answer.data
            raise self._odd(f"it answered with something else than a registry does: {answer.message[:100]!r}")
        raise self._refusal(answer, subject)

    def _refusal(self, answer: Answer, subject: str | None) -> PenstockError:
        facts: dict[str, object] = {"registry": self.url, "status": answer.status}
        if answer.status in (401, 403):
            return RegistryRefused(
                "the schema registry does not let us in"
                if answer.status == 401
                else "the schema registry forbids this",
                cause=f"{self.url}: it answered {answer.status}: {answer.message}",
                next_command="check user and password, or the token, in the spec's `registry` block",
                facts=facts,
            )
        if answer.status == 422 and answer.code != 42202:
            return SchemaInvalid(
                "the schema registry cannot read the schema",
                cause=answer.message,
                next_command="correct the schema; if it refers to others, name them: --reference NAME=SUBJECT",
                facts=facts,
            )
        if answer.code in (_NO_VERSION, 42202):
            return SchemaMissing(
                f"'{subject}' has no such version",
                cause=answer.message,
                next_command=f"penstock registry ls {self._spec} --subject {subject}",
                facts={**facts, "subject": subject},
            )
        if answer.code == _NO_SUBJECT and subject is not None:
            return SubjectMissing(
                f"the schema registry has no subject '{subject}'",
                cause=self._nearest(subject),
                next_command=f"penstock registry ls {self._spec}",
                facts={**facts, "subject": subject},
            )
        return self._odd(f"it answered {answer.status}: {answer.message}")

    def _nearest(self, subject: str) -> str:
        there: list[str] = []
        with contextlib.suppress(PenstockError):
            there = self.subjects()
        near = difflib.get_close_matches(subject, there, n=1)
        return (
            f"did you mean '{near[0]}'?"
            if near
            else f"{self.url} has {counted(len(there), 'subject')}, none of a similar name"
        )

    def _odd(self, why: str) -> RegistryRefused:
        return RegistryRefused(
            "the schema registry does not answer as one",
            cause=f"{self.url}: {why}",
            next_command=f"curl -i {self.url}/subjects",
            facts={"registry": self.url},
        )


def _quoted(subject: str) -> str:
    if not subject or subject in (".", ".."):
        raise BadArgument(f"'{subject}' is no subject")
    return quote(subject, safe="")


def _body(kind: Kind, text: str, references: Iterable[Reference]) -> dict[str, Any]:
    if kind not in KINDS:
        raise BadArgument(f"there is no kind of schema '{kind}'", cause=f"the kinds are {', '.join(KINDS)}")
    used = [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]
    return {"schema": text, "schemaType": kind, "references": used}
