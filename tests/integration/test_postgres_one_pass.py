"""PostgreSQL by the short way, where the worker that decodes also loads: the same as by the way through the engine."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.databases import KAFKA, Database, batch
from tests.payments import Heard, Payments

from penstock.batch.fused.way import Shortcut
from penstock.local.postgres import LocalPostgres
from penstock.plan import build
from penstock.sinks.contract import Incoming
from penstock.sinks.postgres.one_pass import OnePassPostgres

FIELDS = {
    "id": {"type": "int", "required": True},
    "account": "string",
    "amount": "decimal(12,2)",
    "at": "timestamp",
    "tags": "array<string>",
    "raw": "binary",
    "a.b `c": "double",
}
UPSERT = {"key": ["account"], "order_by": "at"}


def change(number: int, account: str | None, second: int | None, **more: Any) -> bytes:
    at = None if second is None else f"2024-01-01T00:00:{second:02}.5Z"
    return json.dumps({"id": number, "account": account, "at": at, "amount": number + 0.25, **more}).encode()


ROWS = [
    *(change(n, f"a-{n % 7}", 59 - n, tags=['q"', None, "ü\\"], raw="AP8=", **{"a.b `c": n / 3}) for n in range(30)),
    change(40, None, 1),  # no key
    change(41, "nul\0here", 1),  # PostgreSQL has no such text
    change(42, "a-1", 58),
    change(43, "a-2", None),  # counts by its place
    change(44, "a-1", 59),  # dropped by a rule
    b"{", b"", change(45, "a-3", 1, amount="x"), change(46, "a-3", 1, amount=-1),
]  # fmt: skip


def spec(payments: Payments, db: Database, name: str, upsert: dict[str, Any] | None, *, engine: bool) -> None:
    value = {"format": "json", "schema": {"fields": FIELDS}}
    payments.spec["name"] = name
    payments.spec["source"] = {"topics": {payments.topic: {"view": "changes", "value": value}}}
    payments.spec["contract"] = {
        "changes": [
            {"name": "positive", "rule": "amount > 0"},
            {"name": "dropped", "rule": "id <> 44", "otherwise": "drop"},
        ]
    }
    payments.spec["transform"] = [{"view": "kept", "sql": "select * from changes"}] if engine else []
    table = {"url": db.url, "table": f"{db.schema}.{name}", **({"upsert": upsert} if upsert else {})}
    payments.spec["sinks"] = {"db": {"from": "kept" if engine else "changes", "postgres": table}}
    payments.spec["rate"]["max_offsets"] = 15


def takes_the_short_way(payments: Payments, spark: SparkSession) -> bool:
    assembly = build.assembly(payments.pipeline)
    assembly.settle(spark)
    return isinstance(assembly.way, Shortcut)


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_both_ways_leave_the_same(
    payments: Payments, db: Database, spark: SparkSession, upsert: dict[str, Any] | None
) -> None:
    payments.send(*ROWS, None, key=b"k")
    found = []
    for name, engine in (("short", False), ("engine", True)):
        spec(payments, db, name, upsert, engine=engine)
        assert takes_the_short_way(payments, spark) is not engine
        heard = Heard()
        payments.run(watch=heard)
        report = payments.verify()
        assert report.complete, report.findings
        rows = db.run(f"select * from SCHEMA.{name} order by id")
        dead = sorted((d.position, d.error_class, d.reason) for d in payments.dead() if d.pipeline == name)
        counts = [(entry.views, replace(entry.sinks["db"], seconds=0)) for entry in heard.entries]
        found.append((db.columns(name), rows, dead, counts))
    assert found[0] == found[1]
    _, rows, dead, counts = found[0]
    assert len(rows) == (7 if upsert else 33)
    assert Counter(error for _, error, _ in dead)["missing-field"] == (1 if upsert else 0)
    assert any("byte sequence" in reason for _, _, reason in dead)
    assert sum(sink.superseded for _, sink in counts) == (23 if upsert else 0)
    assert db.staging() == []


@pytest.mark.usefixtures("spark")
def test_batch_run_again_finds_itself_written(payments: Payments, db: Database) -> None:
    payments.send(*ROWS, key=b"k")
    spec(payments, db, "again", UPSERT, engine=False)
    payments.spec["rate"]["max_offsets"] = 1000
    first, second = Heard(), Heard()
    payments.run(watch=first)
    before = db.run("select xmin, * from SCHEMA.again order by id")
    for commit in (payments.home / "spark" / "commits").glob("*0*"):  # a crash just before Spark's commit
        commit.unlink()
    payments.run(watch=second)
    assert db.run("select xmin, * from SCHEMA.again order by id") == before
    assert [e.batch for e in second.entries] == [0]
    assert second.entries[0].sinks["db"].written == first.entries[0].sinks["db"].written
    assert payments.verify().complete


def test_server_that_is_away_is_waited_for(
    payments: Payments, db: Database, postgres: LocalPostgres, spark: SparkSession
) -> None:
    payments.send(*ROWS, key=b"k")
    spec(payments, db, "away", UPSERT, engine=False)
    heard = Heard()
    heard.started = lambda _pipeline, _home: postgres.down()  # type: ignore[method-assign]
    heard.retrying = lambda error, _wait: (heard.warnings.append(error.code), postgres.up())  # type: ignore[method-assign]
    payments.run(watch=heard)
    db.reconnect(postgres.url)
    assert heard.warnings == ["sink-busy"]
    assert db.run("select count(*) from SCHEMA.away") == [(7,)]
    assert payments.verify().complete
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_what_an_attempt_made_goes_with_it(db: Database) -> None:
    columns = db.frame([], f"id int, name string, {KAFKA}").schema
    finish = db.sink().one_pass(Incoming("v", columns))
    assert isinstance(finish, OnePassPostgres)
    finish.begin(batch(), db.frame([], columns), replay=False)
    (left,) = db.staging()
    finish.begin(batch(), db.frame([], columns), replay=True)  # the first attempt failed
    (fresh,) = db.staging()
    assert fresh != left
    finish.discard([])
    assert db.staging() == []
    assert db.sink().rows_by_batch("q") == {}


def test_short_way_is_taken_where_columns_are_written_as_they_are(db: Database) -> None:
    def way(columns: str, table: str = "things") -> OnePassPostgres | str:
        schema: StructType = db.frame([], f"{columns}, {KAFKA}").schema
        return db.sink(table).one_pass(Incoming("v", schema))

    assert isinstance(way("id int, tags array<string>"), OnePassPostgres)
    assert "engine" in str(way("id int, place struct<a:int>"))
    db.run("create table SCHEMA.documents (id int primary key, tags jsonb)")
    assert "engine" in str(way("id int, tags array<string>", "documents"))
