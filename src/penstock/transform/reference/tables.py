"""Reference tables as batches see them: copies in the checkpoint, changed only between two batches.

A batch that is run again after a crash takes the copies it began with, so its replay gives the same rows. And since the
last good copy is in the checkpoint, a table that cannot be read keeps nothing from starting but the very first time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ReferenceUnusable
from penstock.record import Batch
from penstock.spec.model import Pipeline
from penstock.spec.stateful_check import tables_of_stream
from penstock.spec.types import quoted
from penstock.transform.reference.copies import Copies, Copy
from penstock.transform.reference.sources import TableSources
from penstock.watch import TableNews, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AGAIN_S = 60.0  # after a refresh that failed


@dataclass(frozen=True)
class TableFacts:
    """What `plan` says of a table."""

    name: str
    kind: str
    place: str
    rows: int
    megabytes: float
    broadcast: bool
    refresh_s: float | None
    kept: str | None  # when the copy was taken that the checkpoint has
    kept_age_s: int | None


@dataclass
class Tables:
    """`mine`: where copies are kept; None: nothing is written. `known`: of another one that has some, only read.
    `committed`: the newest batch that will not be run again."""

    pipeline: Pipeline
    sources: TableSources
    mine: Copies | None
    known: Copies | None = None
    committed: Callable[[], int | None] = lambda: None
    now: Callable[[], float] = time.time
    watch: Watch = field(default_factory=Watch)
    used: dict[str, Copy] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)  # when each was read, or tried, by this process
    _frames: dict[str, DataFrame] = field(default_factory=dict)  # by path: several times a batch they are asked for
    _failed: dict[str, ReferenceUnusable] = field(default_factory=dict)  # of those that have no copy

    def __bool__(self) -> bool:
        return bool(self.pipeline.references)

    def heard_by(self, watch: Watch) -> None:
        self.watch = watch

    def views(self, spark: SparkSession) -> dict[str, DataFrame]:
        """Each table as it is for the batch that runs. Raises ReferenceUnusable where there is none to begin with."""
        self._start(spark)
        found = {}
        for name, table in self.pipeline.references.items():
            copy = self.used.get(name)
            if copy is None:  # nothing is kept
                found[name] = self._attempt(name, lambda table=table: self.sources.rows(spark, table))  # type: ignore[misc]
                continue
            if copy.path not in self._frames:
                self._frames[copy.path] = copy.frame(spark)
            found[name] = self._frames[copy.path]
        return found

    def is_small(self, name: str) -> bool:
        copy, table = self.used.get(name), self.pipeline.references[name]
        return copy is not None and copy.size <= table.broadcast_mb * 1_000_000

    def begin(self, spark: SparkSession, batch: Batch) -> bool:
        """Called when a batch begins: whether a table is another one than before. What the batch begins with is written
        down before anything of it is.

        A table that the stream of stateful steps reads stays what it was at the start, though that was the copy of a
        batch that had begun before: the plan of the query reads its files."""
        if not self or self.mine is None:
            return False
        before, begun = dict(self.used), self.mine.begun()
        if begun is not None and (begun.query, begun.batch) == (batch.query, batch.id):
            self._take_up(begun.tables)
            self._start(spark)
        else:
            self._start(spark)
            stay = tables_of_stream(self.pipeline)
            for name in (name for name in self.pipeline.references if name not in stay):
                if self._is_due(name):
                    self._refresh(spark, name)
                self.used[name] = self._newest(name) or self.used[name]
            self.mine.begin(batch, self.used)
        for name, copy in self.used.items():
            newest = self._newest(name) or copy
            self.mine.remove_all_but(name, (copy.number, newest.number))
        self._frames = {copy.path: frame for copy in self.used.values() if (frame := self._frames.get(copy.path))}
        return before != self.used

    def facts(self) -> list[TableFacts]:
        """Of the tables that are used, as far as they could be read."""
        found = []
        for name, copy in self.used.items():
            table, kept = self.pipeline.references[name], self._newest(name, self.known)
            refresh = table.refresh.total_seconds() if table.refresh else None
            size = round(copy.size / 1e6, 3)
            taken = datetime.fromtimestamp(kept.taken, UTC).isoformat(timespec="seconds") if kept else None
            age = max(0, round(self.now() - kept.taken)) if kept else None
            facts = (table.kind, table.place, copy.rows, size, self.is_small(name), refresh, taken, age)
            found.append(TableFacts(name, *facts))
        return found

    def _start(self, spark: SparkSession) -> None:
        """A table is read when a pipeline starts, unless its first batch has begun before: that one takes what it had.
        Called before anything else; does nothing the second time."""
        begun = self.mine.begun() if self.mine and not self.used else None
        if begun is not None and begun.batch > (-1 if (done := self.committed()) is None else done):
            self._take_up(begun.tables)
        for name in self.pipeline.references:
            if name in self.used:
                continue
            if name in self._failed:
                raise self._failed[name]
            if self.mine is None:
                self.used |= {name: copy} if (copy := self._newest(name)) else {}
            else:
                self._refresh(spark, name)

    def _take_up(self, numbers: dict[str, int]) -> None:
        assert self.mine is not None
        known = {name: number for name, number in numbers.items() if name in self.pipeline.references}
        self.used |= {name: copy for name, number in known.items() if (copy := self.mine.copy(name, number))}

    def _is_due(self, name: str) -> bool:
        refresh, asked = self.pipeline.references[name].refresh, self._asked.get(name)
        if asked is None:
            return True
        if refresh is None or self.now() - asked < min(_AGAIN_S, refresh.total_seconds()):
            return False
        return self.now() - self.used[name].taken >= refresh.total_seconds()

    def _refresh(self, spark: SparkSession, name: str) -> None:
        """Take a new copy. Where that fails the last good one stays, and everybody hears of it."""
        old, running = self._newest(name), name in self._asked
        self._asked[name] = self.now()
        try:
            new = self._taken(spark, name)
            if running and old and old.schema != new.schema:  # steps and sinks were told other columns
                shutil.rmtree(new.path)
                raise _unusable(name, "its columns have changed since the start", "penstock run FILE, to begin anew")
        except ReferenceUnusable as error:
            if old is None:
                self._failed[name] = error
                raise
            self.used[name] = old
            self.watch.table_read(TableNews(name, old.rows, old.taken, error))
            since = datetime.fromtimestamp(old.taken, UTC).isoformat(timespec="seconds")
            self.watch.warn(f"{error.what}: {error.cause}; the one of {since} is used until it can be read again")
            return
        self.used[name] = new
        self._failed.pop(name, None)
        self.watch.table_read(TableNews(name, new.rows, new.taken, None))

    def _taken(self, spark: SparkSession, name: str) -> Copy:
        assert self.mine is not None
        number, staged = self.mine.staged(name)
        try:
            taken = self.now()
            found = self._attempt(name, lambda: self._written(spark, name, staged))
            return self.mine.publish(staged, Copy("", number, self._made_of(name), taken, *found))
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _written(self, spark: SparkSession, name: str, to: Path) -> tuple[int, int, dict[str, Any]]:
        import pyarrow.parquet as pq

        rows = self.sources.rows(spark, self.pipeline.references[name])
        rows.write.parquet(str(to))
        self._check_keys(spark.read.schema(rows.schema).parquet(str(to)), name)
        files = [pq.ParquetFile(file).metadata for file in to.glob("*.parquet")]
        size = sum(of.row_group(i).total_byte_size for of in files for i in range(of.num_row_groups))
        return sum(of.num_rows for of in files), size, rows.schema.jsonValue()

    def _check_keys(self, rows: DataFrame, name: str) -> None:
        """A key that two rows have would make two rows of one record."""
        from pyspark.sql import functions as F

        steps = [step.enrich for step in self.pipeline.transform if step.enrich and step.enrich.reference == name]
        there = {column.lower() for column in rows.columns}
        for keys in {tuple(step.on.values()) for step in steps}:
            if not there.issuperset(key.lower() for key in keys):
                continue  # the step will say so
            columns = [F.col(quoted(key)) for key in keys]
            whole = rows.dropna(subset=list(keys))
            twice = whole.groupBy(*columns).agg(F.count(F.lit(1)).alias("_times")).where("_times > 1").head()
            if twice is not None:
                said = ", ".join(f"{key} = {twice[i]}" for i, key in enumerate(keys))
                raise _unusable(name, f"{twice['_times']} rows have {said}: rows would be multiplied")

    def _attempt(self, name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception as error:
            if isinstance(error, ReferenceUnusable) and "reference" in error.facts:
                raise
            raise _unusable(name, self.sources.said(self.pipeline.references[name], error)) from None

    def _newest(self, name: str, only: Copies | None = None) -> Copy | None:
        places = (only,) if only else (self.mine, self.known)
        found = (place.newest(name, self._made_of(name)) for place in places if place)
        return next((copy for copy in found if copy), None)

    def _made_of(self, name: str) -> str:
        table = self.pipeline.references[name]
        return table.model_dump_json(by_alias=True, exclude_none=True, exclude={"refresh", "broadcast_mb"})


def _unusable(name: str, cause: str, next_command: str | None = None) -> ReferenceUnusable:
    return ReferenceUnusable(
        f"reference '{name}' cannot be used",
        cause=cause,
        next_command=next_command or f"mend it, or correct `references.{name}` in the spec; then: penstock plan FILE",
        facts={"reference": name},
    )
