"""One attempt at a batch: staging tables of its own while tasks load rows, and the merge of what they report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.record import Batch
from penstock.sinks.contract import Written
from penstock.sinks.postgres import target as tables
from penstock.sinks.postgres.columns import Plan
from penstock.sinks.postgres.connection import Address, Connection, retried
from penstock.sinks.postgres.ledger import SinkLedger
from penstock.sinks.postgres.load import Load, Report
from penstock.sinks.postgres.merge import Merge
from penstock.sinks.postgres.names import Staging
from penstock.sinks.postgres.target import Target


@dataclass(frozen=True)
class Attempt:
    """Begun by `stage`. Whatever happens then, `close` is called, before the connection is."""

    sink: str
    address: Address
    connection: Connection
    ledger: SinkLedger
    batch: Batch
    target: Target
    plan: Plan
    key: tuple[str, ...]
    order_by: str | None
    staging: Staging

    def stage(self) -> None:
        """Fresh staging tables; those that an attempt left when it died are dropped."""
        prefix = Staging.prefix(self.batch.pipeline, self.sink)
        tables.drop_stale(self.connection, self.ledger.schema, prefix)
        told = [*self.key, *([self.order_by] if self.order_by else [])]
        try:
            tables.stage(self.connection, self.target, self.staging, self.plan, told)
        except BaseException:
            self.close()
            raise

    def load(self) -> Load:
        """What the tasks do."""
        return Load(
            self.sink,
            self.address,
            self.staging,
            tuple(self.plan.names),
            self.key,
            self.order_by,
            self.plan.placed,
            self.plan.deletes,
            tuple((sent, column.name, column.type) for sent, column in self.plan.sent().items()),
            tuple((column.name, column.prints) for column in self.plan.columns if column.prints),
        )

    def merged(self, told: list[dict[str, Any]]) -> Written:
        """`told`: the reports of all tasks, as they came from the workers."""
        reports = [Report(**report) for report in told]
        for report in reports:
            report.raise_error()
        merge = Merge(
            self.sink,
            self.ledger,
            self.batch,
            self.target.name.quoted(),
            self.staging,
            self.plan.names,
            self.key,
            self.order_by,
            reports,
        )
        return retried(lambda: merge.run(self.connection))

    def close(self) -> None:
        with suppress(psycopg.Error):  # the next attempt drops it
            tables.drop(self.connection, self.staging)
