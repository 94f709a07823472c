"""An Iceberg table as its metadata file describes it, read without Spark: which batches it holds, and their rows.

A batch of ours is one snapshot that was staged under an id and then published (Iceberg's write-audit-publish). The id
names pipeline, query and batch, and stays in the snapshot's summary. Only the history of the current snapshot counts:
a batch that was staged and never published, or rolled back, is not there.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.record import Batch
from penstock.sinks.iceberg.catalog import Catalog

ROWS = "penstock.rows"  # in the summary: rows given to a merge, which itself only counts those it wrote
ATTEMPT = "penstock.attempt"  # in the summary: tells our staged snapshot from one that a crash left
BATCH = "penstock.batch"  # in the summary: the id once more, so that it is there even where staging was switched off
_IDS = (BATCH, "wap.id", "published-wap-id")  # the last is what Iceberg keeps when it copies a staged snapshot
_PREFIX = "penstock"


@dataclass(frozen=True)
class Held:
    """A batch in the table."""

    pipeline: str
    query: str
    batch: int
    rows: int


@dataclass(frozen=True)
class State:
    """A table at one moment."""

    snapshots: dict[int, dict[str, Any]]
    current: int | None
    properties: dict[str, str]

    def held(self) -> Iterator[Held]:
        """Our batches, newest first."""
        for snapshot in self._history(self.current):
            if found := _held(snapshot):
                yield found

    def rows_of(self, batch: Batch) -> int | None:
        return next((h.rows for h in self.held() if (h.query, h.batch) == (batch.query, batch.id)), None)

    def manifests(self) -> str | None:
        """Where the files of the current snapshot are listed."""
        return None if self.current is None else self.snapshots[self.current].get("manifest-list")

    def staged(self, attempt: str) -> int | None:
        """The snapshot that an attempt has staged."""
        return next((id_ for id_, s in self.snapshots.items() if _summary(s).get(ATTEMPT) == attempt), None)

    def builds_on(self, snapshot: int, batch: Batch) -> bool:
        """Whether a staged snapshot was made on top of the same batch."""
        history = self._history(self.snapshots[snapshot].get("parent-snapshot-id"))
        return any(identity(batch) == _id(s) for s in history)

    def _history(self, snapshot: int | None) -> Iterator[dict[str, Any]]:
        while snapshot is not None and snapshot in self.snapshots:  # older ones may have expired
            yield self.snapshots[snapshot]
            snapshot = self.snapshots[snapshot].get("parent-snapshot-id")


def identity(batch: Batch) -> str:
    """The id a batch is staged and published under. Neither a pipeline's name nor a query's id has a dot."""
    return f"{_PREFIX}.{batch.pipeline}.{batch.query}.{batch.id}"


def state(catalog: Catalog, table: tuple[str, ...]) -> State | None:
    """None: there is no such table."""
    file = catalog.metadata(table)
    if file is None:
        return None
    found = _read(file)
    current = found.get("current-snapshot-id")
    return State(
        {s["snapshot-id"]: s for s in found.get("snapshots", [])},
        None if current in (None, -1) else current,
        found.get("properties", {}),
    )


def _read(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    read: dict[str, Any] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    return read


def _summary(snapshot: dict[str, Any]) -> dict[str, str]:
    summary: dict[str, str] = snapshot.get("summary", {})
    return summary


def _id(snapshot: dict[str, Any]) -> str:
    return next((summary[name] for name in _IDS if name in (summary := _summary(snapshot))), "")


def _held(snapshot: dict[str, Any]) -> Held | None:
    summary = _summary(snapshot)
    parts = _id(snapshot).split(".")
    if len(parts) != 4 or parts[0] != _PREFIX:
        return None
    _, pipeline, query, batch = parts
    return Held(pipeline, query, int(batch), int(summary.get(ROWS) or summary.get("added-records") or 0))
