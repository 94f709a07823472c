"""Where the engine itself writes what the workers of the short way make (Spark's own Kafka sink): their rows, and in a
row beside them what each task tells."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from penstock.batch.fused.letters import Origins
from penstock.sinks.files.writer import Judged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TOLD = "__penstock_told"  # null, or what a task tells; all else in that row is null


@runtime_checkable
class Makes(Protocol):
    """A sink's part of the worker that makes rows, and how the engine is told to write those of all. Pickles."""

    @property
    def columns(self) -> Mapping[str, str]:
        """Of the rows, with the engine's types."""

    @property
    def types(self) -> pa.Schema:
        """The same, with Arrow's."""

    def rows(self, parts: Iterator[Judged], origins: Origins, /) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
        """Take every batch, to its end. Returns what becomes of the records when the rows are written."""

    def write(self, rows: DataFrame, /) -> None:
        """In the driver: one action that reads every row once."""


def columns(out: Makes) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in {**out.columns, _TOLD: "string"}.items())


def rows(out: Makes, parts: Iterator[Judged], origins: Origins) -> Generator[pa.RecordBatch, None, dict[str, Any]]:
    made = out.rows(parts, origins)
    while True:
        try:
            batch = next(made)
        except StopIteration as end:
            outcome: dict[str, Any] = end.value
            return outcome
        yield batch.append_column(_TOLD, pa.nulls(batch.num_rows, pa.string()))


def told(out: Makes, what: dict[str, Any]) -> pa.RecordBatch:
    schema = out.types.append(pa.field(_TOLD, pa.string()))
    return pa.RecordBatch.from_pylist([{_TOLD: json.dumps(what)}], schema=schema)


def written(out: Makes, made: DataFrame) -> list[dict[str, Any]]:
    """What all tasks told, after the rows were written."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    seen = Observation()
    out.write(made.observe(seen, F.collect_list(_TOLD).alias("told")).where(F.col(_TOLD).isNull()).drop(_TOLD))
    return [json.loads(each) for each in seen.get["told"]]
