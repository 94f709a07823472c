"""The contract every sink keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.record import Batch, Known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Sink(Protocol):
    """Where the rows of a view go.

    When: `prepare` once per start, before anything is read. Then, batch by batch and never two at once, `written` for
    the first batch of a start (the only one that can be a replay) and `write`.
    After a crash: Spark runs the same batch id with the same offsets again. `write` must then leave the sink as one
    run would have left it, whatever the crash left behind; and it must become visible whole or not at all.
    """

    @property
    def name(self) -> str: ...

    @property
    def guarantee(self) -> str:
        """In the user's words; shown before a run."""

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        """Raise now what would stop the first batch: a place that cannot be written, rows of another query,
        a table that has lost batches."""

    def written(self, batch: Batch) -> int | None:
        """Rows the sink already holds of this batch, or None when it holds none of it."""

    def write(self, batch: Batch, rows: DataFrame) -> int:
        """Write all rows or none, once; return how many the sink itself says it now holds of this batch."""

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        """Offsets the sink holds, per topic and partition, with repetitions; None when its rows do not carry `column`.

        Read by something that is not Spark. For `verify`.
        """

    def rows_by_batch(self, query: str) -> dict[int, int]:
        """Rows the sink's own records say each batch of `query` has. For `verify`, where there are no positions."""
