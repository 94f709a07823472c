"""The processor of silent.yaml: a row for each visitor of whom nothing came for an hour of event time."""

# ruff: noqa: N802, N803, ARG002  the names are Spark's

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

HOUR_MS = 3_600_000


class Silent(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.seen = handle.getValueState("seen", "clicks int, last_page string, last bigint")

    def handleInputRows(self, key, rows, timerValues):
        clicks, page, last = self.seen.get() if self.seen.exists() else (0, None, 0)
        for row in rows:
            clicks, at = clicks + 1, round(row["at"].timestamp() * 1000)
            if at >= last:
                page, last = row["page"], at
        self.seen.update((clicks, page, last))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(last + HOUR_MS)
        yield from ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        clicks, page, _ = self.seen.get()
        self.seen.clear()
        yield Row(visitor=key[0], clicks=clicks, last_page=page)

    def close(self):
        pass
