"""Reader schemas that follow their subjects while a pipeline runs (D8).

A record with a new schema is in Kafka only after that schema was registered. So asking for the newest version when a
batch begins is early enough for every record in it. What was found is written down in the checkpoint: the columns of a
view are the same after a restart, also when the registry is away then. Only what can be a view is written down: a
version that cannot leaves the columns as they are, and is told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.decode.formats import unusable
from penstock.errors import RegistryUnreachable, SpecInvalid
from penstock.registry.client.cache import from_json, put_whole, to_json
from penstock.registry.client.registry import SchemaRegistry
from penstock.registry.client.schema import RegisteredSchema
from penstock.registry.evolution import gained, merged
from penstock.registry.json_schema import limits

_FILE = "readers.json"
_NAMED = 5
_HURRIED_S, _HURRIED_FOR_S = 1.0, 60.0


def _name(subject: str, message: str | None) -> str:
    """Two views may read two messages of one subject, each with columns of its own."""
    return subject if message is None else f"{subject}#{message}"


@dataclass
class _Followed:
    subject: str
    message: str | None
    newest: int  # id of the newest version that was seen
    reader: RegisteredSchema


class Readers:
    """The reader schema of every subject that a view reads by `version: latest`."""

    def __init__(self, registry: Callable[[], SchemaRegistry], directory: Path, *, add: bool) -> None:
        self.registry, self._file, self._add = registry, directory / _FILE, add
        self._known = self._stored()
        self._followed: dict[str, _Followed] = {}  # by `_name`
        self.said: list[str] = []  # until somebody listens
        self.report: Callable[[str], None] = self.said.append
        self._limits: dict[str, list[str]] = {}
        self._hurried_until = 0.0  # the registry was silent: see `_newest`
        self.given_up = False  # the registry was away for too long: records of unknown schemas no longer wait for it

    def heard_by(self, report: Callable[[str], None]) -> None:
        """Tell what was found so far, and from now on."""
        self.report = report
        for text in self.said:
            report(text)
        self.said.clear()

    def schema(self, subject: str, version: int | str, message: str | None) -> RegisteredSchema:
        """The schema to read with; from here on a `latest` one is followed."""
        if version != "latest":
            return self._told(subject, self._pinned(subject, int(version)))
        name = _name(subject, message)
        if name not in self._followed:
            self._followed[name] = self._first(subject, message)
            self._store()
        return self._told(subject, self._followed[name].reader)

    def _told(self, subject: str, schema: RegisteredSchema) -> RegisteredSchema:
        """Say once what the schema asks of values and nobody checks."""
        if subject not in self._limits:
            self._limits[subject] = limits(schema.text) if schema.kind == "JSON" else []
            if found := self._limits[subject]:
                more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
                self.report(
                    f"'{subject}' says more of values than their types ({', '.join(found[:_NAMED])}{more}): not "
                    "checked; what matters of it can be a rule in `contract`"
                )
        return schema

    def _pinned(self, subject: str, version: int) -> RegisteredSchema:
        """What a version says never changes, so the registry is asked once."""
        name = f"{subject}@{version}"
        if name not in self._known:
            self._store({name: self.registry().version(subject, version).schema})
        return self._known[name]

    def refresh(self) -> bool:
        """Ask for newer versions; whether a reader schema changed. A registry that is away changes nothing."""
        changed = False
        for subject in dict.fromkeys(followed.subject for followed in self._followed.values()):
            try:
                newest = self._newest(subject)
            except RegistryUnreachable:
                break  # the others would wait for it as long
            for followed in self._followed.values():
                if followed.subject == subject and newest.id != followed.newest:
                    changed |= self._follow(followed, newest)
        if changed:
            self._store()
        return changed

    def _newest(self, subject: str) -> RegisteredSchema:
        """Raises RegistryUnreachable. A registry that is away is asked before every batch all the same, or records of a
        new schema could come before it; but with little patience, or each batch would wait for the whole time-out. One
        that is only slow gets its time now and then."""
        now = time.monotonic()
        if now < self._hurried_until:
            with self.registry().hurried(_HURRIED_S) as registry:
                found = registry.latest(subject).schema
        else:
            try:
                found = self.registry().latest(subject).schema
            except RegistryUnreachable:
                self._hurried_until = now + _HURRIED_FOR_S
                raise
        self._hurried_until = 0.0
        return found

    def _first(self, subject: str, message: str | None) -> _Followed:
        known = self._known.get(_name(subject, message), self._known.get(subject))
        if known is not None and unusable(known, message):
            known = None
        try:
            newest = self._newest(subject)
        except RegistryUnreachable:
            if known is None:
                raise
            return _Followed(subject, message, known.id, known)
        if known is None or known.kind != newest.kind:
            return _Followed(subject, message, newest.id, newest)
        followed = _Followed(subject, message, known.id, known)
        if newest.id != known.id or self._add:
            self._follow(followed, newest)
        return followed

    def _follow(self, followed: _Followed, newest: RegisteredSchema) -> bool:
        subject = followed.subject
        new = gained(followed.reader, newest, followed.message)
        reader, why = self._merged(followed, newest)
        if why:
            self.report(f"the newest schema of '{subject}' is not followed, the columns stay as they are: {why}")
        elif newest.id != followed.newest:
            self._tell(subject, new, gained(newest, followed.reader, followed.message))
        changed = (reader.text, reader.references) != (followed.reader.text, followed.reader.references)
        followed.newest, followed.reader = newest.id, replace(reader, id=newest.id)
        return changed

    def _merged(self, followed: _Followed, newest: RegisteredSchema) -> tuple[RegisteredSchema, str]:
        """The reader schema from now on; and where it gains nothing because no view could be made of it then, why."""
        if newest.kind != followed.reader.kind:
            return followed.reader, f"it is {newest.kind}, not {followed.reader.kind}"
        why = ""
        for add in (True, False) if self._add else (False,):
            try:
                made = merged(followed.reader, newest, add=add, message=followed.message)
                said = unusable(made, followed.message)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                said = f"{type(error).__name__}: {error}"
            if not said:
                return made, why
            why = why or said
        return followed.reader, why

    def _tell(self, subject: str, new: list[str], gone: list[str]) -> None:
        if gone:
            self.report(f"'{subject}' no longer has {', '.join(gone)}: null, or its default, in new records")
        if new and self._add:
            self.report(f"'{subject}' has gained {', '.join(new)}: added to the view")
        elif new:
            self.report(
                f"'{subject}' has gained {', '.join(new)}: ignored; to have them in a table, set `evolve: add-columns` "
                "of its sink"
            )

    def _stored(self) -> dict[str, RegisteredSchema]:
        try:
            return {subject: from_json(schema) for subject, schema in json.loads(self._file.read_text()).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise SpecInvalid(
                f"{self._file} cannot be read",
                cause=f"{type(error).__name__}: {error}",
                next_command=f"remove {self._file}: the columns are then those of the newest schemas",
            ) from None

    def _store(self, more: Mapping[str, RegisteredSchema] | None = None) -> None:
        followed = {
            name: each.reader
            for name, each in self._followed.items()
            if each.reader == self._known.get(name) or not unusable(each.reader, each.message)
        }
        kept = {**self._known, **followed, **(more or {})}
        if kept == self._known:
            return
        self._known = kept
        # A stream and a backfill of the same pipeline write it at the same time.
        put_whole(self._file, json.dumps({subject: to_json(schema) for subject, schema in kept.items()}, indent=1))
