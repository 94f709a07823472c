"""`penstock` with a sink that forgets what it wrote: the negative control of the crash tests.

It differs from the product in what a Delta commit carries: nothing that says which batch it was, so a batch that Spark
runs again is written again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.main import main
from penstock.record import Batch
from penstock.runtime import build
from penstock.sink.delta import DeltaSink
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Careless(DeltaSink):
    def written(self, batch: Batch) -> int | None:
        return None

    def write(self, batch: Batch, rows: DataFrame) -> int:
        before = self._rows()
        rows.write.format("delta").mode("append").partitionBy(*self.partition_by).save(str(self.path))
        return self._rows() - before

    def _rows(self) -> int:
        table = self.table()
        return 0 if table is None else int(table.to_pyarrow_dataset().count_rows())


def careless_sinks(pipeline: Pipeline) -> dict[str, Careless]:
    return {
        name: Careless(sink.name, sink.path, sink.partition_by)
        for name, sink in _sinks(pipeline).items()
        if isinstance(sink, DeltaSink)
    }


_sinks = build.sinks
build.sinks = careless_sinks  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(main())
