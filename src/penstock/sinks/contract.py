"""The contract every sink keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.record import Batch, Failure, Known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Rejected:
    """A row that a sink cannot take, by the record it was made of."""

    topic: str
    partition: int
    offset: int
    why: Failure


@dataclass(frozen=True)
class Written:
    """What a sink says about one batch. Every row handed to it is one of the three."""

    rows: int  # it holds them
    superseded: int = 0  # a newer row of the same key took their place
    rejected: Sequence[Rejected] = ()
    letters: int | None = None  # dead letters that were written together with the rows; None: that is for others to do

    @property
    def all(self) -> int:
        return self.rows + self.superseded + len(self.rejected)


@dataclass(frozen=True)
class Incoming:
    """What a sink is told about the rows it will get."""

    view: str
    columns: StructType
    apart: str = ""  # why the rows of one input partition do not stay in one task, in their order; empty: they do
    unique: tuple[str, ...] = ()  # a batch has one row for each value of these, and a later batch's is the newer one


class Sink(Protocol):
    """Where the rows of a view go.

    When: `prepare` once per start, before anything is read; `suits` before the first batch. Then `write`, batch by
    batch and never two at once.
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

    def suits(self, incoming: Incoming) -> None:
        """Raise SpecInvalid when such rows can never be written."""

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        """Write all rows or none, once, and say what became of them.

        `replay`: this batch may have been written before. Whether or not it was, every row is read exactly once: the
        caller counts them on their way.
        """

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        """Offsets the sink holds, per topic and partition, with repetitions; None when its rows do not carry `column`.

        Read by something that is not Spark. For `verify`.
        """

    def rows_by_batch(self, query: str) -> dict[int, int] | None:
        """Rows the sink's own records say each batch of `query` has; None when it keeps none. For `verify`, where there
        are no positions."""

    def holds(self, batch: Batch) -> bool:
        """Whether anything of this batch is there, be it a part of it. For `split`, while no run is going on. An
        attempt that is not quite dead can add nothing any more once this has returned."""


@runtime_checkable
class Converting(Protocol):
    """A sink that writes into types of the place's own, where the place has them already."""

    def losses(self) -> list[str]:
        """Columns of which the place cannot hold every value as it is, and what becomes of those. Asked after `suits`,
        to warn of them; asks nobody itself."""


@runtime_checkable
class OfFiles(Protocol):
    """A sink whose rows are in files. Too many small ones make readers slow: see `doctor`."""

    def sizes(self) -> list[int]:
        """Bytes of each data file that readers see now."""


@runtime_checkable
class Forgetful(Protocol):
    """A sink whose own records of its batches do not go back for ever."""

    def remembered_from(self, query: str) -> int:
        """The first batch of `query` that they speak of for certain: what is missing before it may have been there."""


def read_through(rows: DataFrame) -> None:
    """Read every row once and keep none: for a replay of what is written already."""
    rows.write.format("noop").mode("overwrite").save()
