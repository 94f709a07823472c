"""De-duplication: of rows with one key the first, for as long as the watermark remembers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import StepFailed
from penstock.spec.stateful import Deduplicate
from penstock.transform.watermark import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(view: str, of: Deduplicate, source: DataFrame) -> DataFrame:
    missing = [name for name in of.key if name not in source.columns]
    if missing:
        raise StepFailed(
            f"step '{view}' has a key that view '{of.from_}' lacks: {', '.join(missing)}",
            cause=f"it has: {', '.join(source.columns)}",
            next_command=f"correct `key` of view '{view}'",
            facts={"view": view},
        )
    read = timed(view, source, of.time, of.within)
    return read.dropDuplicatesWithinWatermark(list(of.key)) if source.isStreaming else read
