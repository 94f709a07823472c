"""Steps that keep something for each key: its columns must be there, and its rows come in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import StepFailed
from penstock.record import KAFKA, PLACE
from penstock.spec.stateful import Deduplicate, State
from penstock.spec.types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def require_key(view: str, of: Deduplicate | State, source: DataFrame) -> None:
    """Raise StepFailed where the view that is read lacks a column of the key."""
    missing = [name for name in of.key if name not in source.columns]
    if missing:
        raise StepFailed(
            f"step '{view}' has a key that view '{of.from_}' lacks: {', '.join(missing)}",
            cause=f"it has: {', '.join(source.columns)}",
            next_command=f"correct `key` of view '{view}'",
            facts={"view": view},
        )


def say_place(rows: DataFrame) -> bool:
    """Whether rows say which record they are of."""
    from pyspark.sql.types import StructType

    places = rows.schema[KAFKA].dataType if KAFKA in rows.columns else None
    return isinstance(places, StructType) and set(PLACE) <= set(places.names)


def in_order(key: Sequence[str], rows: DataFrame) -> DataFrame:
    """The rows of one key together, by their place in Kafka, where they say it.

    `key`: in the order in which the step asks the engine for it; in another one the rows would be moved once more.

    Tasks hand rows on in the order in which they end. A batch that is run again must meet them as it did before: some
    of the sinks may hold what it made of them. The engine would bring the rows of a key together all the same, so the
    sorting is all that this costs; its own check of streams allows none, see `Flow.supported`.
    """
    from pyspark.sql import functions as F

    if not say_place(rows):
        return rows
    by = [F.col(quoted(name)) for name in key]
    return rows.repartition(*by).sortWithinPartitions(*by, *(F.col(KAFKA)[name] for name in PLACE))
