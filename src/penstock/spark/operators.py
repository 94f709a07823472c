"""What the engine says of its stateful operators while a batch runs: rows in state, memory, what was dropped.

Spark tells listeners after the commit; the ledger is written before it. So the plan that was just executed is asked,
whose operators keep their metrics. It is internal: where it does not answer, nothing is said.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_STARTED_S = 30  # the handle of the query is there before its first batch is; this only ends a defect
_WRITERS = (
    "StateStoreSaveExec",
    "SessionWindowStateStoreSaveExec",
    "StreamingDeduplicateWithinWatermarkExec",
    "StreamingSymmetricHashJoinExec",
    "TransformWithState",
)


@dataclass(frozen=True)
class Operator:
    """One of them, after the batch."""

    rows: int  # in its state
    bytes: int
    late: int  # rows it dropped; after a partial aggregation groups of rows
    duplicates: int | None = None


@dataclass
class Running:
    """A query that was started, or is about to be."""

    _query: StreamingQuery | None = None
    _ready: threading.Event = field(default_factory=threading.Event)

    def started(self, query: StreamingQuery) -> None:
        self._query = query
        self._ready.set()

    def said(self) -> list[Operator]:
        """Of every operator, the last step's first. Called by the thread that runs the batches, after the rows of the
        batch were computed."""
        from py4j.protocol import Py4JError

        if not self._ready.wait(_STARTED_S) or self._query is None:
            return []
        try:
            plan: Any = self._query._jsq.streamingQuery().lastExecution().executedPlan()
            return list(_operators(plan))
        except (Py4JError, AttributeError, TypeError, ValueError, KeyError):
            return []


def _operators(plan: Any) -> Iterator[Operator]:
    """From the end of the plan to its sources."""
    if plan.getClass().getSimpleName().startswith(_WRITERS):
        said = json.loads(plan.getProgress().json())
        yield Operator(
            said["numRowsTotal"],
            said["memoryUsedBytes"],
            said["numRowsDroppedByWatermark"],
            said.get("customMetrics", {}).get("numDroppedDuplicateRows"),
        )
    children = plan.children()
    for at in range(children.size()):
        yield from _operators(children.apply(at))
