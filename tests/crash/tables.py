"""The sinks that make tables, as crash tests use them: what the spec says, and what a reader that is not ours finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow.dataset
import pytest

from penstock.local.postgres import LocalPostgres
from penstock.record import PLACE
from penstock.testing.acknowledged import Place
from tests.payments import Payments


@dataclass
class Table:
    kind: str
    sink: dict[str, Any]
    places: Callable[[Payments], Counter[Place]]

    def into(self, payments: Payments) -> None:
        payments.spec["sinks"] = {"lake": {"from": "settled", **self.sink}}


KINDS = ("delta", "parquet", "iceberg", "postgres")


def table(kind: str, request: pytest.FixtureRequest) -> Table:
    match kind:
        case "delta":
            return Table(kind, {"delta": {"path": "lake"}}, Payments.places)
        case "parquet":
            return Table(kind, {"parquet": {"path": "files"}}, lambda payments: _counted(_parquet(payments)))
        case "iceberg":
            spark = request.getfixturevalue("spark")
            catalog = {"type": "hadoop", "warehouse": "warehouse"}
            sink = {"iceberg": {"table": "shop.payments", "catalog": catalog}}
            return Table(kind, sink, lambda payments: _counted(_iceberg(payments, spark)))
        case "postgres":
            server: LocalPostgres = request.getfixturevalue("postgres")
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("drop table if exists crashed, penstock_ledger")
            sink = {"postgres": {"url": server.url, "table": "crashed"}}
            return Table(kind, sink, lambda _payments: _counted(_postgres(server.url)))
    raise AssertionError(kind)


def _counted(rows: Iterator[dict[str, Any]]) -> Counter[Place]:
    return Counter((row["topic"], row["partition"], row["offset"]) for row in rows)


def _parquet(payments: Payments) -> Iterator[dict[str, Any]]:
    files = pyarrow.dataset.dataset(payments.directory / "files", format="parquet", partitioning="hive")
    yield from files.to_table(columns=["_kafka"]).column("_kafka").to_pylist()


def _iceberg(payments: Payments, spark: Any) -> Iterator[dict[str, Any]]:
    rows = spark.read.format("iceberg").load(str(payments.directory / "warehouse" / "shop" / "payments"))
    yield from (row.asDict() for row in rows.select("_kafka.*").collect())


def _postgres(url: str) -> Iterator[dict[str, Any]]:
    with psycopg.connect(url) as connection:
        found = connection.execute("select _kafka_topic, _kafka_partition, _kafka_offset from crashed").fetchall()
    yield from (dict(zip(PLACE, row, strict=True)) for row in found)
