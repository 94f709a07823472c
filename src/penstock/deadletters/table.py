"""Dead letters to a table, exactly once: whatever a table sink guarantees for rows, it guarantees for these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.deadletters import dead_letter
from penstock.deadletters.dead_letter import DeadLetter
from penstock.record import Batch, Known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Held(Protocol):
    @property
    def rows(self) -> int: ...


class Table(Protocol):
    """What is needed of a table: the sink contract, and a reader that is not Spark. `runtime` gives one."""

    @property
    def guarantee(self) -> str: ...
    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None: ...
    def held(self, batch: Batch) -> int | None: ...
    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Held: ...
    def table(self) -> Any: ...


@dataclass(frozen=True)
class DeadLetterTable:
    to: Table
    pipeline: str

    @property
    def guarantee(self) -> str:
        return self.to.guarantee

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        self.to.prepare(batch, known, accepted)

    def written(self, batch: Batch) -> int | None:
        return self.to.held(batch)

    def write(self, batch: Batch, rows: DataFrame) -> int:
        from pyspark.sql import functions as F

        origin = {"pipeline": batch.pipeline, "query": batch.query, "batch": batch.id}
        marked = rows.select("*", *(F.lit(value).alias(name) for name, value in origin.items()))
        return self.to.write(batch, marked, replay=False).rows

    def read(self, query: str | None = None) -> Iterator[DeadLetter]:
        table = self.to.table()
        for rows in table.to_pyarrow_dataset().to_batches() if table is not None else ():
            for row in _in_milliseconds(rows).to_pylist():
                batch = Batch(row["pipeline"], row["query"], row["batch"])
                if batch.pipeline == self.pipeline and query in (None, batch.query):
                    row.setdefault("sinks", None)  # written by an older version
                    yield dead_letter.from_row(row, batch)


def _in_milliseconds(rows: Any) -> Any:
    """With the time as a number: a producer may have written one that is no date in Python."""
    import pyarrow as pa

    in_microseconds = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    numbers = [None if each is None else each // 1000 for each in in_microseconds.to_pylist()]
    return rows.drop_columns("timestamp").append_column("timestamp_ms", pa.array(numbers, pa.int64()))
