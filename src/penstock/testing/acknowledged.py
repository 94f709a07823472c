"""What a load run put into Kafka, as an oracle for tests: read from the ledger of `penstock produce`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.local import load_ledger
from penstock.local.load_ledger import ACKNOWLEDGED, FAILED, UNKNOWN
from penstock.local.payments import GOOD

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(frozen=True)
class Acknowledged:
    """The records of a run that Kafka acknowledged; `unknown()` are those that may be in the topic or not.

    A test that kills producers or brokers must take acknowledged as the least, acknowledged and unknown as
    the most.
    """

    everything: pa.Table
    """Every record that was sent, whatever became of it: the columns of `load_ledger.SCHEMA`."""

    @classmethod
    def read(cls, path: str | Path) -> Acknowledged:
        return cls(load_ledger.read(Path(path)))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def rows(self) -> pa.Table:
        """The acknowledged records."""
        return self._outcome(ACKNOWLEDGED)

    def good(self) -> pa.Table:
        return self.rows.filter(pc.equal(_text(self.rows, "kind"), GOOD))

    def kept(self) -> pa.Table:
        """Good records that are not VOID: what the example pipeline writes to its table."""
        good = self.good()
        return good.filter(pc.invert(good["void"]))

    def void(self) -> pa.Table:
        good = self.good()
        return good.filter(good["void"])

    def poison(self) -> pa.Table:
        return self.rows.filter(pc.not_equal(_text(self.rows, "kind"), GOOD))

    def failed(self) -> pa.Table:
        return self._outcome(FAILED)

    def unknown(self) -> pa.Table:
        return self._outcome(UNKNOWN)

    def kinds(self) -> dict[str, int]:
        return dict(Counter(_text(self.rows, "kind").to_pylist()))

    def offsets(self, kind: str | None = None) -> set[Place]:
        """Places of the acknowledged records, of one kind or of all."""
        rows = self.rows if kind is None else self.rows.filter(pc.equal(_text(self.rows, "kind"), kind))
        return places(rows)

    def payment_ids(self) -> set[str]:
        """Of the acknowledged good records."""
        return set(self.good()["payment_id"].to_pylist())

    def _outcome(self, outcome: str) -> pa.Table:
        return self.everything.filter(pc.equal(_text(self.everything, "outcome"), outcome))


def places(rows: pa.Table) -> set[Place]:
    """(topic, partition, offset) of the given rows."""
    return set(
        zip(
            _text(rows, "topic").to_pylist(),
            rows["partition"].to_pylist(),
            rows["offset"].to_pylist(),
            strict=True,
        )
    )


def _text(rows: pa.Table, column: str) -> pa.ChunkedArray:
    return rows[column].cast(pa.string())
