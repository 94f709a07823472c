"""De-duplication: of rows with one key the first, for as long as the watermark remembers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spec.stateful import Deduplicate, sides
from penstock.transform.keyed import in_order, require_key
from penstock.transform.watermark import timed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows(view: str, of: Deduplicate, source: DataFrame, *, ordered: bool) -> DataFrame:
    require_key(view, of, source)
    read = timed(view, source, sides(of)[0])
    if not source.isStreaming:
        return read
    made = read.dropDuplicatesWithinWatermark(list(of.key))
    return in_order(_key(made), read).dropDuplicatesWithinWatermark(list(of.key)) if ordered else made


def _key(made: DataFrame) -> list[str]:
    """As the engine has it: of more than four columns it makes an order of its own."""
    plan: Any = made._jdf.queryExecution().analyzed()
    keys = plan.keys()
    return [keys.apply(at).name() for at in range(keys.size())]
