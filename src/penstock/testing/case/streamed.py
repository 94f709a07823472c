"""Cases of pipelines whose steps keep state: the batches of a case as a stream of files, one file for each batch.

The stream, its state and its watermark are the engine's own. Only the records come from the case: where Kafka's source
would give them, and where a batch reads them a second time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.batch.run import Assembly
from penstock.batch.source_view import RAW
from penstock.batch.stateful.flow import Flow, Replanned
from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import SparkLog
from penstock.lifecycle.replay.raw import raw
from penstock.record import OffsetRange
from penstock.testing.case.records import Sent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Streamed(SparkLog):
    """The log of the case's query. Its offsets are numbers of files: those of the records are the case's."""

    batches: Sequence[list[OffsetRange]]

    def ranges(self, batch: int) -> list[OffsetRange]:
        """None for the batch that the engine adds when time has moved and no records are left."""
        return self.batches[batch] if batch < len(self.batches) else []


@dataclass
class CaseFlow(Flow):
    given: Sequence[Sent] = ()

    def read_again(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        spans = {(each.topic, each.partition): range(each.start, each.end) for each in ranges}
        return raw(spark, [each for each in self.given if each.offset in spans.get((each.topic, each.partition), ())])


def run(
    spark: SparkSession,
    assembly: Assembly,
    planned: Sequence[Sequence[Sent]],
    directory: Path,
    ended: Callable[[Entry], None],
) -> None:
    """All batches of a case, and what the watermark closes after the last one. Raises what a batch raises."""
    files = directory / "records"
    files.mkdir()
    oldest = time.time() - len(planned)
    for number, batch in enumerate(planned):
        _write(files / f"{number:06}.parquet", batch, oldest + number)
    while not _ended(spark, assembly, files, directory / "checkpoint", ended):
        pass  # without the records that the stream fails on


def _ended(
    spark: SparkSession, assembly: Assembly, files: Path, checkpoint: Path, ended: Callable[[Entry], None]
) -> bool:
    """Whether the query came to its end; it has to be started again where its plan is another one."""
    flow = assembly.flow
    assert flow is not None
    raised: list[BaseException] = []

    def batch(rows: DataFrame, number: int) -> None:
        try:
            ended(assembly.process(rows, number))
        except BaseException as error:
            raised.append(error)
            raise

    records = spark.readStream.schema(RAW).option("maxFilesPerTrigger", 1).parquet(str(files))
    rows = flow.stream(records, assembly.inlets, ends=True)
    writer = rows.writeStream.foreachBatch(batch).outputMode(flow.emit).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    flow.started(query)
    try:
        query.awaitTermination()
    except Exception as error:
        if raised and isinstance(raised[0], Replanned):
            return False
        raise raised[0] if raised else error from None
    return True


def _write(file: Path, batch: Sequence[Sent], modified: float) -> None:
    """As Kafka's source would give them. The engine reads files in the order of their times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, tuple[Any, list[Any]]] = {
        "key": (pa.binary(), [each.key for each in batch]),
        "value": (pa.binary(), [each.value for each in batch]),
        "topic": (pa.string(), [each.topic for each in batch]),
        "partition": (pa.int32(), [each.partition for each in batch]),
        "offset": (pa.int64(), [each.offset for each in batch]),
        "timestamp": (pa.timestamp("us", tz="UTC"), [each.timestamp_ms * 1000 for each in batch]),
        "timestampType": (pa.int32(), [each.timestamp_type for each in batch]),
        "headers": (
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            [[{"key": k, "value": v} for k, v in each.headers] or None for each in batch],
        ),
    }
    table = pa.table({name: pa.array(values, type_) for name, (type_, values) in columns.items()})
    pq.write_table(table, file)
    os.utime(file, (modified, modified))
