"""The short way and the way through the engine give the same table, the same dead letters and the same ledger."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.payments import Heard, Payments, good

from penstock.batch.fused.way import Shortcut
from penstock.contract.native import condition
from penstock.kafka import admin
from penstock.plan import build
from penstock.spec.types import Member, Struct, parse

ROWS = [
    *(good(n, amount=n - 3.25, merchant=None if n % 3 else {"name": "Ü \"Q\""}, tags=["a", None]) for n in range(36)),
    *(good(n, amount=n - 3.25, status="PENDING") for n in range(36, 40)),
    b"{", b"", b"null", good(50, currency=None), good(51, amount="x"), good(52, account="A" * 50),
]  # fmt: skip
RULES = [
    {"name": "positive", "rule": "amount > 0"},
    {"name": "known", "rule": "currency in ('EUR', 'USD') and status is not null", "otherwise": "drop"},
]


def results(payments: Payments, kind: str, steps: list[dict[str, str]]) -> tuple[list[Any], list[Any], list[Any]]:
    name = "engine" if steps else "short"
    payments.spec["name"] = name
    payments.spec["contract"] = {"payments": RULES}
    payments.spec["transform"] = steps
    place = {kind: {"path": f"{name}-{kind}"}}
    payments.spec["sinks"] = {"lake": {"from": "kept" if steps else "payments", "where": "status = 'SETTLED'", **place}}
    payments.spec["rate"]["max_offsets"] = 25
    heard = Heard()
    payments.run(watch=heard)
    place = payments.directory / f"{name}-{kind}"
    dataset = DeltaTable(str(place)).to_pyarrow_dataset() if kind == "delta" else ds.dataset(place)
    rows = sorted(dataset.to_table().to_pylist(), key=lambda row: (row["_kafka"]["partition"], row["_kafka"]["offset"]))
    dead = sorted((d.position, d.error_class, d.reason, d.value or b"") for d in payments.dead() if d.pipeline == name)
    counts = [(entry.views, entry.sinks["lake"]) for entry in heard.entries]
    report = payments.verify()
    assert report.complete, report.findings
    assert report.proof == {"lake": "by offset"}
    return rows, dead, counts


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_both_ways_give_the_same(payments: Payments, spark: SparkSession, kind: str) -> None:
    payments.send(*ROWS, None, key=b"k")
    short = results(payments, kind, [])
    engine = results(payments, kind, [{"view": "kept", "sql": "select * from payments"}])
    for mine, other in zip(short, engine, strict=True):
        assert mine == other
    rows, dead, _ = short
    assert len(rows) == 33
    assert Counter(error for _, error, _, _ in dead)["broken-rule"] == 4
    place = str(payments.directory / f"short-{kind}")
    again = spark.read.format(kind).load(place)
    assert again.count() == 33
    assert again.where("amount > 10").count() == sum(row["amount"] > 10 for row in rows)
    assert again.where("event_time < timestamp'2020-01-01'").count() == 0


@pytest.mark.usefixtures("spark")
def test_dead_letters_sent_along_with_the_records_are_the_same_as_those_sent_apart(payments: Payments) -> None:
    payments.send(*ROWS, None, key=b"k", headers=[("h", b"1"), ("h", None)])
    found = {}
    engine = ["select * from payments"]
    for name, view, steps in (("along", "payments", []), ("apart", "kept", engine), ("batch", "payments", [])):
        payments.spec["name"] = name
        budget = {"budget": {"share": 0.99}} if name == "apart" else {}  # they are counted before anything is sent
        payments.spec["dead_letters"] = {"kafka": {"topic": "{topic}.DLT"}, **budget}
        payments.spec["contract"] = {
            "payments": [*RULES, {"name": "short", "rule": "account <> 'a-9' and amount < 30"}]
        }
        payments.spec["transform"] = [{"view": "kept", "sql": sql} for sql in steps]
        payments.create(f"{payments.topic}-{name}")
        kafka = {"topic": f"{payments.topic}-{name}", "origin": True}
        kafka |= {"guarantee": "exactly-once-by-batch"} if name == "batch" else {}
        payments.spec["sinks"] = {"out": {"from": view, "kafka": kafka}}
        payments.run()
        letters = [letter for letter in payments.dead() if letter.pipeline == name]
        found[name] = sorted((replace(d, pipeline="", query="") for d in letters), key=lambda d: d.position)
        groups = [group for group in admin.groups(payments.config) if f".{found[name] and letters[0].query}." in group]
        assert any(group.endswith("dead-letters") for group in groups) is (name == "apart"), groups
        assert payments.verify().complete
    assert found["along"] == found["apart"] == found["batch"]
    assert {d.error_class for d in found["along"]} >= {"broken-rule", "malformed", "null-value"}


@pytest.mark.usefixtures("spark")
def test_record_that_the_schema_cannot_hold_is_a_dead_letter_that_is_sent_along(payments: Payments) -> None:
    currency = {"type": "enum", "name": "Currency", "symbols": ["EUR", "CHF"]}
    schema = {"type": "record", "name": "Out", "fields": [{"name": "currency", "type": currency}]}
    (payments.directory / "out.avsc").write_text(json.dumps(schema))
    payments.create(f"{payments.topic}-out")
    value = {"format": "avro", "wire": "raw", "schema": "out.avsc", "columns": ["currency"]}
    payments.spec["transform"] = []
    payments.spec["sinks"] = {"out": {"from": "payments", "kafka": {"topic": f"{payments.topic}-out", "value": value}}}
    payments.send(good(1), good(2, currency="USD"), good(3, currency="CHF"))
    heard = Heard()
    payments.run(watch=heard)
    (dead,) = payments.dead()
    assert (dead.stage, dead.value) == ("sink", good(2, currency="USD"))
    assert dead.reason.startswith("sink 'out': ")
    assert sum(entry.sinks["out"].written for entry in heard.entries) == 2
    assert payments.verify().findings == []


def test_short_way_is_taken_where_it_can_be_and_says_why_not(payments: Payments, spark: SparkSession) -> None:
    def way(**changes: Any) -> Shortcut | str:
        payments.spec["transform"], payments.spec["contract"] = [], {}
        payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
        payments.spec.update(changes)
        assembly = build.assembly(payments.pipeline)
        assembly.settle(spark)
        return assembly.way

    assert isinstance(way(), Shortcut)
    assert (
        way(contract={"payments": [{"name": "long", "rule": "length(account) > 1"}]}) == "rule 'long' needs the engine"
    )
    assert "partitioned" in str(
        way(sinks={"lake": {"from": "payments", "delta": {"path": "x", "partition_by": ["status"]}}})
    )
    assert isinstance(
        way(sinks={"lake": {"from": "payments", "where": "amount > 1", "delta": {"path": "x"}}}), Shortcut
    )
    assert "`where`" in str(
        way(sinks={"lake": {"from": "payments", "where": "length(account) > 1", "delta": {"path": "x"}}})
    )
    assert "engine" in str(
        way(sinks={"lake": {"from": "payments", "delta": {"path": "x", "upsert": {"key": ["account"]}}}})
    )


def test_table_that_spark_made_is_appended_to_and_one_with_other_columns_goes_through_the_engine(
    payments: Payments, spark: SparkSession
) -> None:
    payments.send(good(1), good(2))
    payments.spec["contract"] = {}
    payments.spec["transform"] = [{"view": "kept", "sql": "select * from payments"}]
    payments.spec["sinks"] = {"lake": {"from": "kept", "delta": {"path": "lake"}}}
    payments.run()
    payments.spec["transform"] = []
    payments.spec["sinks"]["lake"]["from"] = "payments"
    payments.send(good(3))
    payments.run()
    assert sorted(row["payment_id"] for row in payments.rows()) == ["p-1", "p-2", "p-3"]
    assert payments.verify().complete
    history = DeltaTable(str(payments.directory / "lake")).history()
    assert [commit["operation"] for commit in history] == ["WRITE", "WRITE"]
    spark.sql(f"alter table delta.`{payments.directory / 'lake'}` add column extra int")
    payments.send(good(4))
    payments.run()
    assert len(payments.rows()) == 4
    assert payments.verify().complete


def test_replay_of_a_batch_that_was_published_adds_nothing(payments: Payments, spark: SparkSession) -> None:
    payments.spec["contract"], payments.spec["transform"] = {"payments": RULES}, []
    payments.spec["sinks"] = {"lake": {"from": "payments", "delta": {"path": "lake"}}}
    payments.send(*ROWS)
    payments.run()
    before = sorted(payments.places())
    last = max(int(p.name) for p in (payments.home / "spark" / "commits").iterdir() if p.name.isdigit())
    (payments.home / "spark" / "commits" / str(last)).unlink()  # as after a crash: Spark runs the batch again
    payments.run()
    assert sorted(payments.places()) == before
    assert payments.verify().complete


NATIVE = [
    "amount > 0", "amount >= -1.5", "AMOUNT <> 0.00", "amount between -1 and 1", "n = 5", "n < -3 and n >= -128",
    "code in ('EUR', 'USD', '')", "code <> 'EUR'", "code is null", "code is not null and n is not null", "n in (1, 2)",
]  # fmt: skip
FOR_THE_ENGINE = [
    "f > 0",
    "amount > 0.001",
    "length(code) > 2",
    "n = 5 or n = 6",
    "code > 'A'",
    "code = 'it''s'",
    "big",
]


def test_native_rules_say_what_the_engine_says(spark: SparkSession) -> None:
    struct = Struct(
        tuple(
            Member(name, parse(type_))
            for name, type_ in {"amount": "decimal(9,2)", "n": "tinyint", "code": "string", "f": "double"}.items()
        )
    )
    random = Random(7)
    rows = [
        (
            random.choice([None, Decimal(random.randrange(-300, 300)) / 100, Decimal(0)]),
            random.choice([None, random.randrange(-128, 128), 5, 1]),
            random.choice([None, "EUR", "USD", "", "eur", "Ü"]),
            random.choice([None, float("nan"), 1.5]),
        )
        for _ in range(300)
    ]
    frame = spark.createDataFrame(rows, "amount decimal(9,2), n tinyint, code string, f double")
    columns = frame.toArrow().combine_chunks().to_batches()[0]
    by_name = {name: columns.column(name) for name in columns.schema.names}
    for rule in NATIVE:
        made = condition(rule, struct)
        assert made is not None, rule
        expected = [row[0] for row in frame.selectExpr(f"({rule})").collect()]
        assert made(by_name).to_pylist() == expected, rule
    assert [rule for rule in FOR_THE_ENGINE if condition(rule, struct) is not None] == []
