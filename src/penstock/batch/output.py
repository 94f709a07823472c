"""Rows on their way out of a view: the sink's own condition, then the sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import StepFailed, first_line
from penstock.sinks.contract import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Outlet:
    sink: Sink
    view: str
    where: str | None = None

    def rows(self, views: dict[str, DataFrame]) -> DataFrame:
        """What the sink gets. Raises StepFailed when its condition is none over the view's columns."""
        from pyspark.errors import PySparkException

        rows = views[self.view]
        if self.where is None:
            return rows
        try:
            return rows.where(self.where)
        except PySparkException as error:
            raise StepFailed(
                f"`where` of sink '{self.sink.name}' is not a condition over view '{self.view}'",
                cause=first_line(error),
                next_command=f"correct `where` of sink '{self.sink.name}' in the spec",
                facts={"sink": self.sink.name},
            ) from None
