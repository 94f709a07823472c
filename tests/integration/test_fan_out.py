"""One pipeline into every kind of sink: one read and one decode for all of them, each exactly once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.committed import committed
from tests.databases import Database
from tests.payments import Heard, Payments, good

from penstock.local.postgres import LocalPostgres


class All:
    """Payments into every kind of sink at once, appended and by key."""

    def __init__(self, payments: Payments, db: Database) -> None:
        self.payments, self.db, self.out = payments, db, f"{payments.topic}-out"
        payments.create(self.out, 2)
        by_account = {"key": ["account"]}
        iceberg = {"catalog": {"type": "hadoop", "warehouse": "warehouse"}}
        postgres = {"url": db.url}
        payments.spec["sinks"] = {
            "lake": {"from": "settled", "delta": {"path": "lake"}},
            "newest": {"from": "settled", "delta": {"path": "newest", "upsert": by_account}},
            "files": {"from": "settled", "parquet": {"path": "files", "partition_by": ["day"]}},
            "ice": {"from": "settled", "iceberg": {"table": "shop.all", **iceberg}},
            "ice_newest": {"from": "settled", "iceberg": {"table": "shop.newest", "upsert": by_account, **iceberg}},
            "rows": {"from": "settled", "postgres": {"table": f"{db.schema}.rows", **postgres}},
            "accounts": {
                "from": "settled",
                "postgres": {"table": f"{db.schema}.accounts", "upsert": by_account, **postgres},
            },
            "out": {"from": "settled", "where": "amount > 10", "kafka": {"topic": self.out, "origin": True}},
        }

    def send(self, *numbers: int) -> None:
        self.payments.send(*(good(n, account=f"a-{n % 3}", amount=n + 0.5) for n in numbers), key=b"k")

    def held(self, spark: SparkSession) -> dict[str, list[str]]:
        """Payments in every sink, by readers that are not ours."""
        directory: Path = self.payments.directory
        ids: Any = {
            name: DeltaTable(str(directory / name)).to_pyarrow_table(columns=["payment_id"])["payment_id"].to_pylist()
            for name in ("lake", "newest")
        }
        ids["files"] = ds.dataset(directory / "files", partitioning="hive").to_table()["payment_id"].to_pylist()
        spark.conf.set("spark.sql.catalog.reader", "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set("spark.sql.catalog.reader.type", "hadoop")
        spark.conf.set("spark.sql.catalog.reader.warehouse", str(directory / "warehouse"))
        for name, table in (("ice", "all"), ("ice_newest", "newest")):
            rows = spark.sql(f"select payment_id from reader.shop.{table}").collect()
            ids[name] = [row["payment_id"] for row in rows]
        for name in ("rows", "accounts"):
            ids[name] = [row[0] for row in self.db.run(f"select payment_id from SCHEMA.{name}")]
        ids["out"] = [
            json.loads(each.value or b"")["payment_id"] for each in committed(self.payments.bootstrap, self.out)
        ]
        return {name: sorted(found) for name, found in ids.items()}


@pytest.fixture
def everywhere(payments: Payments, db: Database) -> All:
    return All(payments, db)


def test_every_sink_holds_each_record_once_also_when_one_of_them_fails(
    everywhere: All, spark: SparkSession, postgres: LocalPostgres
) -> None:
    everywhere.send(*range(20))
    heard = Heard()
    everywhere.payments.run(watch=heard)
    everywhere.send(*range(20, 30))
    # The sinks before it have written the batch when this one fails.
    heard.started = lambda _pipeline, _home: postgres.down()  # type: ignore[method-assign]
    heard.retrying = lambda error, _wait: (heard.warnings.append(error.code), postgres.up())  # type: ignore[method-assign]
    everywhere.payments.run(watch=heard)
    assert "sink-busy" in heard.warnings
    everywhere.db.reconnect(postgres.url)
    every = sorted(f"p-{n}" for n in range(30))
    newest = sorted(["p-27", "p-28", "p-29"])
    assert everywhere.held(spark) == {
        "lake": every,
        "newest": newest,
        "files": every,
        "ice": every,
        "ice_newest": newest,
        "rows": every,
        "accounts": newest,
        "out": sorted(f"p-{n}" for n in range(10, 30)),
    }
    report = everywhere.payments.verify()
    assert report.complete, report.findings
    assert Counter(report.proof.values()) == {"by offset": 5, "by count": 3}
