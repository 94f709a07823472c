"""De-duplication: of rows with one key the first, for as long as the watermark remembers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spec.stateful import Deduplicate
from penstock.transform.keyed import in_order, require_key
from penstock.transform.watermark import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(view: str, of: Deduplicate, source: DataFrame, *, ordered: bool) -> DataFrame:
    require_key(view, of, source)
    read = timed(view, source, of.time, of.within)
    if not source.isStreaming:
        return read
    return (in_order(of, read) if ordered else read).dropDuplicatesWithinWatermark(list(of.key))
