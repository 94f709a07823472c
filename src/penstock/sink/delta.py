"""Delta, append: a batch is one Delta commit that carries an application transaction.

1. Spark writes Parquet files into the table's directory; no reader sees them.
2. The commit adds the files and records `txn(appId, version = batch id)` in one atomic step.
3. A replay finds that transaction and adds nothing; Delta itself also refuses a second commit with it.

The commit's user metadata names pipeline, sink, query and batch, so that the row count of a batch can be read back
from the table by anybody, also by a reader that is not Spark.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import NotWritable, SinkBusy, SinkFailed, TableDiffers, TableOfAnotherQuery, first_line
from penstock.record import Batch, Known

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

_RECENT = 10  # commits: a batch just written is the newest one, unless somebody else writes to the table too


@dataclass(frozen=True)
class DeltaSink:
    name: str
    path: Path
    partition_by: tuple[str, ...] = ()
    guarantee: str = "exactly-once: one Delta commit per batch, identified by application id and version"

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        place = self.path if self.path.exists() else next(p for p in self.path.parents if p.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise NotWritable(
                f"sink '{self.name}' cannot write to {self.path}",
                cause=f"{place} is not a directory this user can write to",
                next_command=f"make {place} writable, or change the path of sink '{self.name}'",
            )
        table = self.table()
        version = table.transaction_version(self._application(batch)) if table else None
        if TableDiffers.code not in accepted:
            self._check(known, version)
        if table is None or version is not None:
            return
        others = {
            m["query"] for m in self._commits(table) if m["pipeline"] == batch.pipeline and m["query"] != batch.query
        }
        if others and TableOfAnotherQuery.code not in accepted:
            raise TableOfAnotherQuery(
                f"the table of sink '{self.name}' holds rows that '{batch.pipeline}' wrote under another checkpoint",
                cause=f"the checkpoint is new, but {self.path} has batches of query {', '.join(sorted(others))}: "
                "reading from the start again would write those records a second time",
                next_command="restore the old checkpoint directory; or, to keep the rows and add to them: "
                f"penstock run FILE --accept {TableOfAnotherQuery.code}",
            )

    def _check(self, known: Known, version: int | None) -> None:
        """The table must hold what the ledger says it got, and nothing that the checkpoint cannot know of."""
        if known.written is not None and (version is None or version < known.written):
            found = "no batch of this query" if version is None else f"batches up to {version}"
            raise TableDiffers(
                f"sink '{self.name}' has lost batches",
                cause=f"the ledger says it holds batches up to {known.written}; {self.path} has {found}: "
                "it was deleted, restored from an older copy, or its path was changed",
                next_command="restore the table; or, to go on without what is missing: "
                f"penstock run FILE --accept {TableDiffers.code}",
            )
        if version is not None and (known.planned is None or version > known.planned):
            raise TableDiffers(
                f"sink '{self.name}' is ahead of the checkpoint",
                cause=f"{self.path} has batch {version}, the checkpoint knows batches up to {known.planned}: an older "
                "checkpoint was restored, and its next batches would be taken for written",
                next_command="restore the checkpoint directory that belongs to this table",
            )

    def written(self, batch: Batch) -> int | None:
        table = self.table()
        version = table.transaction_version(self._application(batch)) if table else None
        if table is None or version is None or version < batch.id:
            return None
        return self._rows_of(table, batch)

    def write(self, batch: Batch, rows: DataFrame) -> int:
        from pyspark.errors import AnalysisException, PySparkException

        writer = (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._application(batch))
            .option("txnVersion", batch.id)
            .option("userMetadata", json.dumps({**self._mark(batch), "batch": batch.id}))
        )
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        try:
            writer.save(str(self.path))
        except PySparkException as error:
            if (error.getCondition() or "").startswith("DELTA_CONCURRENT"):
                raise SinkBusy(
                    f"sink '{self.name}': somebody else wrote to {self.path} at the same moment",
                    cause=first_line(error),
                    next_command="nothing: the batch is run again",
                ) from error
            refused = isinstance(error, AnalysisException) or (error.getCondition() or "").startswith("DELTA_")
            if not refused:  # the engine failed, not the table: let the caller look at the cause
                raise
            raise SinkFailed(
                f"sink '{self.name}' refused batch {batch.id}",
                cause=first_line(error),
                next_command=f"compare the columns of view and table {self.path}",
            ) from error
        table = self.table()
        if table is None:
            raise SinkFailed(f"sink '{self.name}' has no table at {self.path} after batch {batch.id}")
        return self._rows_of(table, batch)

    def table(self) -> DeltaTable | None:
        """The table as a reader that is not Spark sees it."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(str(self.path))
        except TableNotFoundError:  # also where a crash left a log directory without a commit
            return None

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        import pyarrow.dataset as ds

        table = self.table()
        if table is None:
            return {}
        dataset = table.to_pyarrow_dataset()
        if column not in dataset.schema.names:
            return None
        wanted = {name: ds.field(column, name) for name in ("topic", "partition", "offset")}
        found: dict[tuple[str, int], list[int]] = {}
        for batch in dataset.to_batches(columns=wanted):
            topics, partitions, offsets = (batch.column(i).to_pylist() for i in range(3))
            for topic, partition, offset in zip(topics, partitions, offsets, strict=True):
                found.setdefault((topic, partition), []).append(offset)
        return found

    def rows_by_batch(self, query: str) -> dict[int, int]:
        """Rows the table's own log says each batch of `query` has. For `verify`."""
        table = self.table()
        found: dict[int, int] = {}
        for mark in self._commits(table) if table else []:
            if mark["query"] == query:
                found[mark["batch"]] = found.get(mark["batch"], 0) + mark["rows"]
        return found

    def _rows_of(self, table: DeltaTable, batch: Batch) -> int:
        for limit in (_RECENT, None):
            for mark in self._commits(table, limit):
                if mark["query"] == batch.query and mark["batch"] == batch.id:
                    return int(mark["rows"])
        raise SinkFailed(
            f"the log of table {self.path} no longer says how many rows batch {batch.id} has",
            cause="its commit was cleaned out of the Delta log",
            next_command="penstock verify FILE",
        )

    def _commits(self, table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
        """Our commits, newest first: pipeline, query, batch, rows."""
        found = []
        for commit in table.history(limit):
            try:
                mark = json.loads(commit.get("userMetadata") or "{}")
            except ValueError:
                continue
            if "penstock" in mark:
                found.append({**mark, "rows": int(commit["operationMetrics"]["numOutputRows"])})
        return found

    def _mark(self, batch: Batch) -> dict[str, str]:
        return {"penstock": self.name, "pipeline": batch.pipeline, "query": batch.query}

    def _application(self, batch: Batch) -> str:
        # Without the sink's name: a sink may be renamed, and a table has one writer per pipeline.
        return f"penstock.{batch.pipeline}.{batch.query}"
