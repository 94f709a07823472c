"""A Delta table as a reader that is not Spark sees it (delta-rs): which batches it holds, and how many rows of each.

A batch of ours is one commit. It carries an application transaction (`penstock.<pipeline>.<query>`, version = batch
id), by which Delta itself refuses it a second time, and user metadata that names pipeline, sink, query and batch, so
that its row count can be read back from the log by anybody.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.files import sync_file
from penstock.errors import SinkBusy, SinkFailed
from penstock.record import PLACE, Batch, Known
from penstock.sinks import held
from penstock.sinks.delta.demands import demands, other_columns
from penstock.spark.write_errors import condition_of, refuses, said_by

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    from penstock.sinks.files.writer import NewFile

_RECENT = 10  # commits: a batch just written is the newest one, unless somebody else writes to the table too
# What counts as the rows of a batch: those a merge was given (it also says how many it wrote, among them old ones),
# those an append added.
_ROWS = ("numSourceRows", "numOutputRows")
_LOST_RACE = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")


@dataclass(frozen=True)
class DeltaLog:
    sink: str
    path: Path

    def prepare(self, batch: Batch, known: Known, accepted: frozenset[str]) -> None:
        held.require_writable(self.sink, self.path)
        table = self.table()
        newest = table.transaction_version(_application(batch)) if table else None
        held.require_complete(self.sink, self.path, known, newest, accepted)
        if table is not None and newest is None:
            queries = {m["query"] for m in _commits(table) if m["pipeline"] == batch.pipeline}
            held.require_own(self.sink, self.path, batch, queries, accepted)

    def table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(str(self.path))
        except TableNotFoundError:  # also where a crash left a log directory without a commit
            return None

    def sizes(self) -> list[int]:
        table = self.table()
        if table is None:
            return []
        import pyarrow as pa

        return [int(size) for size in pa.table(table.get_add_actions())["size_bytes"].to_pylist()]

    def identity(self, batch: Batch) -> dict[str, str]:
        """What a commit of this batch carries, by the names of Delta's write options."""
        mark = {"penstock": self.sink, "pipeline": batch.pipeline, "query": batch.query, "batch": batch.id}
        return {"txnAppId": _application(batch), "txnVersion": str(batch.id), "userMetadata": json.dumps(mark)}

    def held(self, batch: Batch) -> int | None:
        """Rows the table has of this batch, or None when it was not written."""
        table = self.table()
        version = table.transaction_version(_application(batch)) if table else None
        if table is None or version is None or version < batch.id:
            return None
        return self._rows_of(table, batch)

    def rows_of(self, batch: Batch) -> int:
        """Rows of a batch that was just written."""
        table = self.table()
        if table is None:
            raise SinkFailed(f"sink '{self.sink}' has no table at {self.path} after batch {batch.id}")
        return self._rows_of(table, batch)

    def _rows_of(self, table: DeltaTable, batch: Batch) -> int:
        for limit in (_RECENT, None):
            for mark in _commits(table, limit):
                if mark["query"] == batch.query and mark["batch"] == batch.id:
                    return int(mark["rows"])
        raise SinkFailed(
            f"the log of table {self.path} no longer says how many rows batch {batch.id} has",
            cause="its commit was cleaned out of the Delta log",
            next_command="penstock verify FILE",
        )

    def needs_engine(self, columns: StructType) -> str:
        """Why files with these columns cannot just be added to the table, in words for `plan`: it has other columns, or
        asks more of a writer than that. Empty when they can, or there is no table yet."""
        table = self.table()
        if table is None:
            return ""
        return other_columns(table, columns) or demands(table)

    def commit_none(self, batch: Batch) -> bool:
        """A commit that says that the batch has no rows. False where only the engine can make one."""
        table = self.table()
        if table is None or demands(table):
            return False
        self.commit(batch, (), table.schema().to_arrow())
        return True

    def commit(self, batch: Batch, files: Sequence[NewFile], columns: pa.Schema) -> int:
        """Add files that workers wrote to the table, in one commit like those that Spark makes. Returns their rows."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        rows = sum(file.rows for file in files)
        mark = {**json.loads(self.identity(batch)["userMetadata"]), "rows": rows}
        properties = CommitProperties(
            custom_metadata={"userMetadata": json.dumps(mark)},
            app_transactions=[Transaction(_application(batch), batch.id)],
        )
        now = int(time.time() * 1000)
        added: list[Any] = [AddAction(file.name, file.size, {}, now, True, file.stats) for file in files]
        for file in files:
            sync_file(self.path / file.name)
        schema = Schema.from_arrow(columns)
        try:
            table = self.table()
            if table is None:
                self.path.mkdir(parents=True, exist_ok=True)
                create_table_with_add_actions(str(self.path), schema, added, mode="error", commit_properties=properties)
            elif _newest(table, batch) >= batch.id:
                raise self._beaten("the batch was committed since this attempt looked for it")  # delta-rs does not ask
            elif why := demands(table):
                raise SinkFailed(
                    f"sink '{self.sink}' does not add batch {batch.id} to {self.path}",
                    cause=f"the table was changed while the pipeline ran: {why}",
                    next_command="penstock run FILE: the batch then goes through the engine",
                )
            else:
                table.create_write_transaction(added, "append", schema, commit_properties=properties)
        except CommitFailedError as error:
            raise self._beaten(str(error)) from error
        except DeltaError as error:
            raise SinkFailed(
                f"sink '{self.sink}' refused batch {batch.id}",
                cause=str(error),
                next_command=f"compare the columns of view and table {self.path}",
            ) from error
        return rows

    def rows_by_batch(self, query: str) -> dict[int, int]:
        table = self.table()
        found: dict[int, int] = {}
        for mark in _commits(table) if table else []:
            if mark["query"] == query:
                found[mark["batch"]] = found.get(mark["batch"], 0) + mark["rows"]
        return found

    def remembered_from(self, query: str) -> int:
        """Delta removes the commits of its log when they are a month old, once a checkpoint of the log has them."""
        table = self.table()
        if table is None or (self.path / "_delta_log" / f"{0:020d}.json").exists():
            return 0
        return min((mark["batch"] for mark in _commits(table) if mark["query"] == query), default=2**63)

    def positions(self, column: str) -> dict[tuple[str, int], list[int]] | None:
        import pyarrow.dataset as ds
        from deltalake.exceptions import DeltaProtocolError

        table = self.table()
        if table is None:
            return {}
        try:
            dataset = table.to_pyarrow_dataset()
        except DeltaProtocolError:  # a column was widened, which delta-rs cannot read; where rows came from never is
            dataset = ds.dataset(table.file_uris(), format="parquet")
        if column not in dataset.schema.names:
            return None
        wanted = {name: ds.field(column, name) for name in PLACE}
        found: dict[tuple[str, int], list[int]] = {}
        for batch in dataset.to_batches(columns=wanted):
            topics, partitions, offsets = (batch.column(i).to_pylist() for i in range(3))
            for topic, partition, offset in zip(topics, partitions, offsets, strict=True):
                found.setdefault((topic, partition), []).append(offset)
        return found

    def _beaten(self, cause: str) -> SinkBusy:
        return SinkBusy(
            f"sink '{self.sink}': somebody else wrote to {self.path} at the same moment",
            cause=cause,
            next_command="nothing: the batch is run again",
        )

    def failure(self, error: Exception, batch: Batch) -> Exception:
        """What a failed write means: somebody was faster, the table refuses the rows, or neither: the engine failed."""
        condition = condition_of(error)
        if condition.startswith(_LOST_RACE):
            return self._beaten(said_by(error))
        if not refuses(error) and not condition.startswith("DELTA_"):
            return error  # let the caller look at the cause
        return SinkFailed(
            f"sink '{self.sink}' refused batch {batch.id}",
            cause=said_by(error),
            next_command=f"compare the columns of view and table {self.path}",
        )


def _application(batch: Batch) -> str:
    # Without the sink's name: a sink may be renamed, and a table has one writer per pipeline.
    return f"penstock.{batch.pipeline}.{batch.query}"


def _newest(table: DeltaTable, batch: Batch) -> int:
    """The newest batch of this query that the table has."""
    version = table.transaction_version(_application(batch))
    return -1 if version is None else version


def _commits(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """Our commits, newest first: pipeline, query, batch, rows."""
    found = []
    for commit in table.history(limit):
        try:
            mark = json.loads(commit.get("userMetadata") or "{}")
        except ValueError:
            continue
        if isinstance(mark, dict) and "penstock" in mark:
            metrics = commit.get("operationMetrics", {})
            rows = next((int(metrics[name]) for name in _ROWS if name in metrics), None)
            found.append({"rows": rows, **mark})  # a commit of ours says it itself, one of Spark's in its metrics
    return found
