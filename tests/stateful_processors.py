"""Processors with timers, for tests: they count the rows of a key, and give the count when nothing came for a while."""

# ruff: noqa: N802, N803  the names are Spark's

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

QUIET_MS = 60_000
IDLE_MS = 10  # less than what lies between two batches


class Quiet(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "n int, last bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n, last = self.seen.get() if self.seen.exists() else (0, 0)
        for row in rows:
            n, last = n + 1, max(last, round(row["at"].timestamp() * 1000))
        self.seen.update((n, last))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(last + QUIET_MS)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        n, _ = self.seen.get()
        self.seen.clear()
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        pass


class Idle(StatefulProcessor):
    """By the clock instead of event time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "n int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        before = self.seen.get()[0] if self.seen.exists() else 0
        self.seen.update((before + sum(1 for _ in rows),))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + IDLE_MS)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        (n,) = self.seen.get()
        self.seen.clear()
        yield Row(key=key[0], n=n)

    def close(self) -> None:
        pass
