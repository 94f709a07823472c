"""Every path leaves behind what it always did: rows, dead letters, ledger entries and the text of `plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from psycopg.rows import dict_row
from pyspark.sql import SparkSession
from tests.golden import FOREVER, RULES, Golden, fill
from tests.payments import Payments, good

from penstock.deadletters.browse import Wanted
from penstock.lifecycle import backfill
from penstock.lifecycle.replay import run as replay
from penstock.local.postgres import LocalPostgres

STEP = [{"view": "settled", "sql": "select *, to_date(event_time) as day from payments where status <> 'VOID'"}]
FAILING = [{"view": "settled", "sql": "select *, 1 / (cast(substr(payment_id, 3) as int) - 7) as x from payments"}]
UPSERT = {"key": ["account"], "order_by": "payment_id"}
Start = Callable[..., Golden]


@pytest.fixture
def start(kafka: Any, spark: SparkSession, tmp_path: Path) -> Start:
    """A pipeline over the records, with this spec; not run yet."""

    def started(name: str, **spec: Any) -> Golden:
        payments = Payments(kafka.bootstrap, tmp_path, partitions=1)
        payments.topic = f"golden-{name}"  # the fingerprints of the ledger have the topic in them
        payments.create(payments.topic, 2, **FOREVER)
        payments.create(f"{payments.topic}.DLT", 1, **FOREVER)
        topic = {"view": "payments", "value": {"format": "json", "schema": "schemas/payment.yaml"}}
        payments.spec |= {
            "name": name,
            "source": {"topics": {payments.topic: topic}},
            "contract": {"payments": RULES},
            "transform": [],
            "rate": {"max_offsets": 14},
            **spec,
        }
        fill(payments)
        return Golden(name, payments)

    return started


def run(golden: Golden) -> None:
    golden.plan()
    golden.payments.run()
    report = golden.payments.verify()
    assert report.complete, report.findings


def test_delta_from_the_worker_with_a_backfill_and_a_replay(start: Start) -> None:
    golden = start(
        "delta", sinks={"lake": {"from": "payments", "where": "status = 'SETTLED'", "delta": {"path": "lake"}}}
    )
    run(golden)
    golden.rows("lake", golden.payments.rows())
    golden.letters()
    golden.ledger()
    wanted = backfill.Range(f"{golden.payments.topic}:1=2", f"{golden.payments.topic}:1=9")
    golden.payments.spec["contract"] = {}
    home = backfill.run(golden.payments.pipeline, wanted, "again")
    golden.rows("lake after a backfill without rules", golden.payments.rows())
    golden.ledger(home.ledger)
    done, _ = replay.run(golden.payments.pipeline, Wanted(stage="contract"), "mended")
    assert done is not None
    golden.rows("lake after a replay without rules", golden.payments.rows())
    golden.letters()
    golden.check()


def test_delta_from_the_engine(start: Start) -> None:
    lake = {"path": "lake", "partition_by": ["day"]}
    golden = start("delta-sql", transform=STEP, sinks={"lake": {"from": "settled", "delta": lake}})
    run(golden)
    golden.rows("lake", golden.payments.rows())
    golden.letters()
    golden.ledger()
    golden.check()


def test_delta_upsert_with_deletes_and_letters_in_a_table(start: Start) -> None:
    golden = start(
        "delta-upsert",
        sinks={"lake": {"from": "payments", "delta": {"path": "lake", "upsert": UPSERT}}},
        dead_letters={"delta": {"path": "dead"}},
    )
    run(golden)
    golden.rows("lake", golden.payments.rows())
    golden.letters()
    golden.ledger()
    golden.check()


@pytest.mark.parametrize("name", ["parquet", "parquet-sql"])
def test_parquet_from_the_worker_and_from_the_engine(start: Start, name: str) -> None:
    sql = name.endswith("sql")
    lake = {"path": "lake", **({"partition_by": ["day"]} if sql else {})}
    sinks = {"lake": {"from": "settled" if sql else "payments", "parquet": lake}}
    golden = start(name, transform=STEP if sql else [], sinks=sinks)
    run(golden)
    found = ds.dataset(golden.payments.directory / "lake", partitioning="hive" if sql else None)
    golden.rows("lake", found.to_table().to_pylist())
    golden.letters()
    golden.ledger()
    golden.check()


@pytest.mark.parametrize("name", ["iceberg", "iceberg-upsert"])
def test_iceberg(start: Start, spark: SparkSession, name: str) -> None:
    upsert = {"upsert": UPSERT} if name.endswith("upsert") else {}
    catalog = {"type": "hadoop", "name": f"golden_{len(name)}", "warehouse": "warehouse"}  # one per session and name
    golden = start(
        name, sinks={"lake": {"from": "payments", "iceberg": {"table": "db.t", "catalog": catalog, **upsert}}}
    )
    run(golden)
    rows = spark.read.format("iceberg").load(str(golden.payments.directory / "warehouse/db/t")).collect()
    golden.rows("lake", [row.asDict(recursive=True) for row in rows])
    golden.letters()
    golden.ledger()
    golden.check()


@pytest.mark.parametrize("name", ["postgres", "postgres-upsert", "postgres-upsert-sql"])
def test_postgres(start: Start, postgres: LocalPostgres, name: str) -> None:
    table = f"golden_{name.replace('-', '_')}"
    to = {"url": postgres.url, "table": table, **({"upsert": UPSERT} if "upsert" in name else {})}
    sql = name.endswith("sql")
    sinks = {"db": {"from": "settled" if sql else "payments", "postgres": to}}
    golden = start(name, transform=STEP if sql else [], sinks=sinks)
    run(golden)
    with psycopg.connect(postgres.url, row_factory=dict_row) as connection:
        golden.rows("db", connection.execute(f"select * from {table}").fetchall())  # type: ignore[call-overload]
    golden.letters()
    golden.ledger()
    golden.check(POSTGRES=postgres.url)


@pytest.mark.parametrize("way", ["worker", "sql", "failing"])
@pytest.mark.parametrize("guarantee", ["exactly-once-by-partition", "exactly-once-by-batch", "at-least-once"])
def test_kafka(start: Start, guarantee: str, way: str) -> None:
    steps = {"worker": [], "sql": STEP, "failing": FAILING}[way]
    golden = start(f"kafka-{guarantee}-{way}", transform=steps)
    out = f"{golden.payments.topic}.out"
    golden.payments.create(out, 2, **FOREVER)
    key = {"format": "string", "column": "account"}
    to = {"topic": out, "key": key, "origin": True, "guarantee": guarantee}
    golden.payments.spec["sinks"] = {"out": {"from": "settled" if steps else "payments", "kafka": to}}
    run(golden)
    golden.messages(out)
    golden.letters()
    golden.ledger()
    golden.check()


def test_several_sinks_from_two_topics_with_python_and_a_reference(start: Start) -> None:
    golden = start("fan-out")
    payments, codes = golden.payments, "code,per_euro\nEUR,1\nCHF,0.95\n"
    (payments.directory / "rates.csv").write_text(codes)
    (payments.directory / "steps.py").write_text(
        "def doubled(df):\n    return df.selectExpr('*', 'amount * 2 as twice')\n"
    )
    second = f"{payments.topic}.text"
    payments.create(second, 1, **FOREVER)
    payments.create(f"{second}.DLT", 1, **FOREVER)
    payments.send(b"1;x", b"2;y", b"no;z", b"3", topic=second)
    fields = {"code": {"type": "string", "required": True}, "per_euro": "decimal(9,2)"}
    columns = {"fields": {"id": {"type": "int", "required": True}, "word": {"type": "string", "required": True}}}
    payments.spec["source"]["topics"][second] = {
        "view": "words",
        "value": {"format": "csv", "delimiter": ";", "schema": columns},
    }
    payments.spec |= {
        "references": {"rates": {"file": {"path": "rates.csv", "format": "csv", "schema": {"fields": fields}}}},
        "transform": [
            {"view": "rated", "enrich": {"from": "payments", "reference": "rates", "on": {"currency": "code"}}},
            {"view": "twice", "python": {"function": "steps:doubled", "from": "rated"}},
        ],
        "sinks": {
            "large": {"from": "twice", "where": "amount > 10", "delta": {"path": "lake"}},
            "all": {"from": "payments", "parquet": {"path": "all"}},
            "words": {"from": "words", "delta": {"path": "words"}},
        },
    }
    run(golden)
    golden.rows("large", payments.rows())
    golden.rows("all", ds.dataset(payments.directory / "all").to_table().to_pylist())
    words = DeltaTable(str(payments.directory / "words")).to_pyarrow_table().to_pylist()
    golden.rows("words", [{name: row[name] for name in ("id", "word")} for row in words])
    golden.letters(letter for letter in payments.dead() if letter.topic == payments.topic)
    golden.ledger()
    golden.check()


def test_steps_that_keep_state(start: Start) -> None:
    once = {"from": "payments", "key": ["payment_id"], "time": "event_time", "within": "1h"}
    size = {"from": "once", "time": "event_time", "size": "1h", "by": ["account"], "columns": {"n": "count(*)"}}
    golden = start(
        "stateful",
        transform=[{"view": "once", "deduplicate": once}, {"view": "hourly", "window": size}],
        sinks={"hourly": {"from": "hourly", "delta": {"path": "lake"}}},
    )
    later = [good(n % 4, event_time=f"2026-11-0{2 + n // 4}T12:00:00Z") for n in range(16)]
    fill(golden.payments, [*later, good(50)], first=50)
    run(golden)
    golden.rows("hourly", golden.payments.rows())
    golden.letters()
    golden.ledger()
    golden.check()
