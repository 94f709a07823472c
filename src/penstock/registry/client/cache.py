"""Schemas by id, kept on disk: what was seen once is known without the registry.

What an id means never changes, so nothing here is ever out of date. One JSON file per id, in a directory per
registry address. A file is written beside its place and renamed: several processes may fill the cache at once,
and a crash leaves a whole file or none. What cannot be read back exactly is as good as absent: it is fetched again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.registry.client.schema import KINDS, RegisteredSchema

_LOG = logging.getLogger("penstock.registry.client.cache")


class SchemaCache:
    """The schemas of one registry. `directory` is shared by registries; each has a directory of its own in it."""

    def __init__(self, directory: Path, url: str) -> None:
        self._address = _address(url)
        self.directory = directory / hashlib.sha256(self._address.encode()).hexdigest()[:16]

    def get(self, schema_id: int) -> RegisteredSchema | None:
        """The schema, or None: not cached, or its file is damaged."""
        try:
            content = json.loads(self._file(schema_id).read_bytes())
            schema = content["schema"]
            if content["sha256"] != _digest(self._address, schema) or schema["id"] != schema_id:
                return None
            return from_json(schema)
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def put(self, schema: RegisteredSchema) -> None:
        """Keep a schema. A disk that is full or read-only costs the cache, never the record being decoded."""
        value = to_json(schema)
        content = {"registry": self._address, "sha256": _digest(self._address, value), "schema": value}
        try:
            put_whole(self._file(schema.id), json.dumps(content, indent=1))
        except OSError as error:
            _LOG.warning("schema %d cannot be kept in %s: %s", schema.id, self.directory, error)

    def _file(self, schema_id: int) -> Path:
        return self.directory / f"{schema_id}.json"


def put_whole(file: Path, text: str) -> None:
    """Replace a file that several processes may replace at once: it is always one of theirs, and whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, new = tempfile.mkstemp(prefix=f".{file.stem}-", suffix=".new", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(new).chmod(0o644)  # mkstemp lets only us read; a pipeline may run under several users
        Path(new).replace(file)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise


def _address(url: str) -> str:
    """Two spellings of one address are one registry."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def _digest(address: str, schema: dict[str, Any]) -> str:
    return hashlib.sha256(f"{address}\n{json.dumps(schema, sort_keys=True)}".encode()).hexdigest()


def to_json(schema: RegisteredSchema) -> dict[str, Any]:
    return {
        "id": schema.id,
        "kind": schema.kind,
        "text": schema.text,
        "references": [[name, to_json(used)] for name, used in schema.references],
    }


def from_json(value: dict[str, Any]) -> RegisteredSchema:
    if value["kind"] not in KINDS:
        raise ValueError(value["kind"])
    used = tuple((name, from_json(below)) for name, below in value["references"])
    return RegisteredSchema(value["id"], value["kind"], value["text"], used)
