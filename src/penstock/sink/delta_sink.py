"""What the two Delta sinks have in common: everything that is asked of the table's log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.record import Batch, Known
from penstock.sink.delta_log import DeltaLog


@dataclass(frozen=True)
class OfDelta:
    name: str
    path: Path

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(self.name, self.path)

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        self.log.prepare(batch, known, accepted)

    def held(self, batch: Batch) -> int | None:
        """Rows the table has of this batch, or None when it was not written."""
        return self.log.held(batch)

    def rows_by_batch(self, query: str) -> dict[int, int]:
        return self.log.rows_by_batch(query)

    def holds(self, batch: Batch) -> bool:
        return self.held(batch) is not None

    def remembered_from(self, query: str) -> int:
        return self.log.remembered_from(query)

    def sizes(self) -> list[int]:
        return self.log.sizes()
