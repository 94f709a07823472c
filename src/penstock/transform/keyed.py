"""Steps that keep something for each key: its columns must be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import StepFailed
from penstock.spec.stateful import Deduplicate, State

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
