"""The short way into PostgreSQL: the worker that decodes records also loads them into staging (`batch.fused`).

The tables, the loading, the merge and what is counted are those of the way through the engine; only who hands rows to
`load` is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from penstock.errors import SinkBusy
from penstock.record import DELETED, ORIGIN, Batch
from penstock.sinks.contract import Written
from penstock.sinks.files.writer import Counting, Judged
from penstock.sinks.postgres.attempt import Attempt
from penstock.sinks.postgres.load import Load
from penstock.sinks.postgres.names import GONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Begin = Callable[[Batch, ExitStack, bool], Attempt | Written]
"""Opens an attempt until the stack is closed; or says what the batch left, if it was written before."""


@dataclass(frozen=True)
class Loading:
    """In the worker. Pickles."""

    load: Load
    taken: tuple[tuple[str, bool], ...]  # as `Plan.taken` says

    def __call__(self, parts: Iterator[Judged], origins: Any) -> dict[str, Any] | None:
        return asdict(self.load.loaded(self._rows(part.good, origins) for part in parts if part.good.num_rows))

    def _rows(self, batch: pa.RecordBatch, origins: Any) -> pa.RecordBatch:
        """The columns that `Plan.projection` has."""
        found = {
            f"c{i}": origins.column(batch, name) if of_origin else batch.column(name)
            for i, (name, of_origin) in enumerate(self.taken)
        }
        if self.load.placed:
            found |= {f"kafka_{name}": origins.column(batch, name) for name in ORIGIN}
        if self.load.deletes:
            found[GONE] = batch.column(DELETED)
        return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


@dataclass
class OnePassPostgres:
    """In the driver."""

    does: ClassVar[str] = "load"
    posts: ClassVar[str] = ""
    publishes: ClassVar[bool] = True

    name: str
    _begin: Begin = field(repr=False)
    _open: ExitStack = field(default_factory=ExitStack, repr=False)
    _attempt: Attempt | Written | None = None

    def begin(self, batch: Batch, _rows: DataFrame, *, replay: bool) -> Loading | Counting:
        self.discard([])
        with ExitStack() as stack:
            attempt = self._begin(batch, stack, replay)
            out = self._out(attempt)
            self._attempt, self._open = attempt, stack.pop_all()
        return out

    def _out(self, attempt: Attempt | Written) -> Loading | Counting:
        if isinstance(attempt, Written):
            return Counting()
        taken = attempt.plan.taken()
        if taken is None:
            raise SinkBusy(
                f"sink '{self.name}': its table was changed while the pipeline ran",
                cause="its rows must now be made by the engine",
                next_command="nothing: the batch is run again, that way",
            )
        return Loading(attempt.load(), taken)

    def end(self, _batch: Batch, outcomes: list[dict[str, Any]], _handed: int) -> Written:
        assert self._attempt is not None
        with self._open:
            return self._attempt if isinstance(self._attempt, Written) else self._attempt.merged(outcomes)

    def discard(self, _outcomes: list[dict[str, Any]]) -> None:
        self._attempt = None
        self._open.close()
