"""`penstock` with a sink that forgets what it wrote: the negative control of the crash tests.

It differs from the product in what a Delta commit carries: nothing that says which batch it was, so a batch that Spark
runs again is written again.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.batch.output import Outlet
from penstock.cli.main import main
from penstock.plan import build
from penstock.record import Batch
from penstock.sinks.contract import Written
from penstock.sinks.delta.append import DeltaSink
from penstock.spec.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Careless(DeltaSink):
    def write(self, batch: Batch, rows: DataFrame, *, replay: bool) -> Written:
        before = self._rows()
        rows.write.format("delta").mode("append").partitionBy(*self.partition_by).save(str(self.path))
        return Written(self._rows() - before)

    def _rows(self) -> int:
        table = self.table()
        return 0 if table is None else int(table.to_pyarrow_dataset().count_rows())


def careless(pipeline: Pipeline, *others: Any) -> list[Outlet]:
    return [
        replace(outlet, sink=Careless(outlet.sink.name, outlet.sink.path, outlet.sink.partition_by))
        for outlet in _outlets(pipeline, *others)
        if isinstance(outlet.sink, DeltaSink)
    ]


_outlets = build.outlets

if __name__ == "__main__":
    build.outlets = careless
    sys.exit(main())
