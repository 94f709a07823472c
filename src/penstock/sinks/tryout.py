"""Sinks to try a pipeline out: rows on the terminal, or in a table of this process. Neither outlives it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkFailed, counted
from penstock.record import Batch, Known
from penstock.sinks.contract import Incoming, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


_CONTROL = re.compile(r"[\x7f-\x9f]")  # those that JSON lets through, and a terminal must not see
_TABLES: dict[str, dict[tuple[str, int], pa.Table]] = {}  # of this process, by name: query and batch -> rows


@dataclass(frozen=True)
class ConsoleSink:
    name: str
    show: int  # rows of a batch; the others are only counted
    guarantee: str = "at-least-once: rows are printed; a batch that is run again is printed again"

    def prepare(self, _batch: Batch, _known: Known, _accepted: frozenset[str]) -> None:
        return

    def suits(self, _incoming: Incoming) -> None:
        return

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:  # noqa: ARG002  it cannot tell
        from pyspark.sql import functions as F

        lines = rows.select(F.to_json(F.struct("*")).alias("line"))
        found = lines.mapInArrow(_First(self.show), "lines array<string>, count bigint").collect()
        shown = [line for task in found for line in task["lines"]][: self.show]
        count = sum(task["count"] for task in found)
        for line in shown:  # JSON lines, also where the run itself prints some
            sys.stdout.write(f'{{"sink": "{self.name}", "row": {_CONTROL.sub(_escaped, line)}}}\n')
        if count > len(shown):
            sys.stdout.write(json.dumps({"sink": self.name, "batch": batch.id, "more": count - len(shown)}) + "\n")
        sys.stdout.flush()
        return Written(count)

    def positions(self, _column: str) -> dict[tuple[str, int], list[int]] | None:
        return None

    def rows_by_batch(self, _query: str) -> dict[int, int] | None:
        return None

    def holds(self, _batch: Batch) -> bool:
        return False  # what was printed is printed again, in batches of whatever size


@dataclass(frozen=True)
class _First:
    """In a Python worker: the first lines of a task, and how many it has."""

    most: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        lines: list[str] = []
        count = 0
        for batch in batches:
            count += batch.num_rows
            lines += batch.column("line").slice(0, max(0, self.most - len(lines))).to_pylist()
        schema = pa.schema([("lines", pa.list_(pa.string())), ("count", pa.int64())])
        yield pa.RecordBatch.from_pylist([{"lines": lines, "count": count}], schema=schema)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


@dataclass(frozen=True)
class MemorySink:
    """A temporary view of the Spark session, which grows batch by batch."""

    name: str
    table: str
    most: int  # rows; this is no place for more
    whole: bool = False  # every batch has all rows: it takes the place of those before it
    guarantee: str = "exactly-once while this process lives; the rows are gone with it"

    @property
    def _batches(self) -> dict[tuple[str, int], pa.Table]:
        return _TABLES.setdefault(self.table, {})

    def prepare(self, _batch: Batch, _known: Known, _accepted: frozenset[str]) -> None:
        return

    def suits(self, _incoming: Incoming) -> None:
        return

    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:  # noqa: ARG002  a batch replaces itself
        import pyarrow as pa
        from pyspark.sql import SparkSession

        if self.whole:
            for at in [at for at in self._batches if at != (batch.query, batch.id)]:
                del self._batches[at]
        held = sum(table.num_rows for at, table in self._batches.items() if at != (batch.query, batch.id))
        made = rows.toArrow()
        if held + made.num_rows > self.most:
            raise SinkFailed(
                f"the table '{self.table}' in memory would have {counted(held + made.num_rows, 'row')}",
                cause=f"`max_rows` of sink '{self.name}' is {self.most:,}: it is for trying things out",
                next_command="raise `max_rows`, or write to delta or parquet",
            )
        self._batches[batch.query, batch.id] = made
        whole = pa.concat_tables(self._batches.values(), promote_options="default")
        # A batch runs in a session of its own; users look into the one that was there first.
        session: Any = SparkSession._instantiatedSession or rows.sparkSession
        session.createDataFrame(whole).createOrReplaceTempView(self.table)
        return Written(made.num_rows)

    def positions(self, _column: str) -> dict[tuple[str, int], list[int]] | None:
        return None

    def rows_by_batch(self, query: str) -> dict[int, int] | None:
        return {batch: table.num_rows for (of, batch), table in self._batches.items() if of == query} or None

    def holds(self, batch: Batch) -> bool:
        return (batch.query, batch.id) in self._batches
