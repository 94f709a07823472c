"""The sink cases as Penstock runs them: one spec, and a sink per case. `penstock.run` is what `penstock run` calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from bench import plain
from bench.order import Order
from penstock.spec.model import Pipeline

_SCHEMA = Path(__file__).parent.parent / "examples" / "payments" / "schemas" / "payment.yaml"
_SETTLED = "select *, to_date(event_time) as day from payments where status <> 'VOID'"
_FLAT = "select payment_id, account, amount, currency, status, event_time from payments where status <> 'VOID'"
# Those of `_FLAT` and no others: fields that are not declared are not read, so no step must leave them out.
_FLAT_FIELDS = {
    "payment_id": {"type": "string", "required": True},
    "account": {"type": "string", "required": True},
    "amount": {"type": "decimal(12,2)", "required": True},
    "currency": {"type": "string", "required": True},
    "status": {"type": "string", "required": True},
    "event_time": {"type": "timestamp", "required": True},
}
_BY_ACCOUNT = {"key": ["account"], "order_by": "event_time"}


def _kafka(guarantee: str) -> Callable[[Order], dict[str, Any]]:
    key = {"format": "string", "column": "account"}
    return lambda order: {"kafka": {"topic": order.out, "key": key, "guarantee": guarantee}}


SINKS: dict[str, Callable[[Order], dict[str, Any]]] = {
    "delta-append": lambda _: {"delta": {"path": "lake"}},
    "parquet-append": lambda _: {"parquet": {"path": "lake"}},
    "delta": lambda _: {"delta": {"path": "lake", "partition_by": ["day"]}},
    "parquet": lambda _: {"parquet": {"path": "lake", "partition_by": ["day"]}},
    "iceberg": lambda order: {
        "iceberg": {
            "table": f"bench.{order.table}",
            "catalog": {"type": "hadoop", "warehouse": str(order.warehouse)},
            "partition_by": ["day"],
        }
    },
    "kafka-at-least-once": _kafka("at-least-once"),
    "kafka-by-partition": _kafka("exactly-once-by-partition"),
    "kafka-by-batch": _kafka("exactly-once-by-batch"),
    "delta-upsert": lambda _: {"delta": {"path": "lake", "upsert": _BY_ACCOUNT}},
    "postgres-upsert": lambda order: {"postgres": {"url": order.postgres, "table": order.table, "upsert": _BY_ACCOUNT}},
}


UNOBSERVED = "-unobserved"  # with nobody looking on: what that costs is the difference


def spec(order: Order) -> dict[str, Any]:
    work = order.work.removesuffix(UNOBSERVED)
    rules = [{"name": "positive", "rule": "amount > 0", "otherwise": "dead-letter"}]
    steps, view = [{"view": "settled", "sql": _FLAT if work.endswith("upsert") else _SETTLED}], "settled"
    # No SQL between: what steps leave out elsewhere, a rule leaves out here.
    if work.endswith("-append") or work.startswith(("kafka", "postgres")):
        rules.append({"name": "void", "rule": "status <> 'VOID'", "otherwise": "drop"})
        steps, view = [], "payments"
    schema = {"fields": _FLAT_FIELDS} if work.startswith("postgres") else str(_SCHEMA)
    return {
        "name": order.out,
        "kafka": {"bootstrap": order.bootstrap},
        "source": {
            "topics": {order.topic: {"view": "payments", "value": {"format": "json", "schema": schema}}},
            "start": "earliest",
        },
        "contract": {"payments": rules},
        "transform": steps,
        "sinks": {"out": {"from": view, **SINKS[work](order)}},
        "rate": {"max_offsets": order.max_offsets},
        "checkpoint": "checkpoint",
        "observe": {"mirror": False, "events": False} if work != order.work else {},
    }


def run(order: Order) -> None:
    if order.work.startswith("postgres"):
        plain.create_table(order)
    penstock.run(Pipeline.model_validate(spec(order)).at(order.home), until_caught_up=True)
