"""Steps that group, compare, sort, limit or join the rows of one batch only: `plan` and `run` say so, with the line."""

from __future__ import annotations

import json
import textwrap
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.payments import Heard, Payments, good
from typer.testing import CliRunner

from penstock.cli.main import app, register
from penstock.spec.python_step import PythonStep
from penstock.spec.steps import Step
from penstock.transform.steps import Transform

COUNTS = "select account, count(*) as n from payments group by account"


def said(spark: SparkSession, step: Step, base: Path) -> list[str]:
    """What is said of a step over two views of a batch and a reference table, `rates`."""
    made: dict[str, DataFrame] = {
        name: spark.createDataFrame([], columns)
        for name, columns in (
            ("orders", "id int, account string, amount int, _kafka string"),
            ("refunds", "id int, account string, _kafka string"),
            ("rates", "account string, rate int"),
        )
    }
    transform = Transform((step,), base)
    made = transform.views(made)
    return [each.does for each in transform.per_batch(made, {"rates"})]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select account, count(*) as n from orders group by account", ["groups rows"]),
        ("select max(amount) as most from orders", ["groups rows"]),
        ("with t as (select * from orders) select account, count(*) n from t group by account", ["groups rows"]),
        ("select distinct account from orders", ["compares rows"]),
        ("select id from orders union select id from refunds", ["compares rows"]),
        ("select id from orders intersect select id from refunds", ["compares rows"]),
        ("select id from orders except all select id from refunds", ["compares rows"]),
        ("select *, row_number() over (partition by account order by id) r from orders", ["uses window functions"]),
        ("select * from orders order by amount", ["sorts rows"]),
        ("select * from orders order by amount limit 3", ["limits rows"]),
        ("select * from orders limit 3", ["limits rows"]),
        ("select a.* from orders a join orders b on a.id = b.id + 1", ["joins rows"]),
        ("select o.* from orders o join refunds r using (id)", ["joins rows"]),
        ("select * from orders where id in (select id from refunds)", ["runs a subquery"]),
        ("select * from orders o where not exists (select 1 from refunds r where r.id = o.id)", ["runs a subquery"]),
        ("select *, (select max(id) from refunds) as newest from orders", ["runs a subquery"]),
        ("with t as (select id from refunds) select * from orders where id in (select id from t)", ["runs a subquery"]),
        ("select r.*, o.id from rates r left join orders o using (account)", ["keeps rows of a reference"]),
        ("select r.* from rates r left anti join orders o using (account)", ["keeps rows of a reference"]),
        # Row by row, or over what every batch has whole.
        ("select *, amount * 2 as twice from orders where amount > 1", []),
        ("select * from orders sort by amount", []),
        ("select id from orders union all select id from refunds", []),
        ("select id, explode(array(1, 2)) as x from orders", []),
        ("select o.*, rate from orders o left join rates using (account)", []),
        ("select o.* from orders o left semi join rates using (account)", []),
        ("select * from orders where account in (select distinct account from rates order by account limit 3)", []),
        ("select *, (select max(rate) from rates) as most from orders", []),
        ("with m as (select max(rate) as most from rates) select * from orders, m", []),
    ],
)
def test_what_a_query_does_over_one_batch_is_told_from_its_plan(
    spark: SparkSession, tmp_path: Path, query: str, expected: list[str]
) -> None:
    found = said(spark, Step(view="made", sql=query), tmp_path)
    assert [len(found), *(does.startswith(text) for does, text in zip(found, expected, strict=False))] == [
        len(expected),
        *(True for _ in expected),
    ], found
    assert said(spark, Step(view="made", sql=query, per="batch"), tmp_path) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("orders.where('amount > 1')", []),
        ("orders.groupBy('account').count()", ["groups rows"]),
        ("orders.dropDuplicates(['id'])", ["compares rows"]),
        ("orders.join(orders.select('id'), 'id')", ["joins rows"]),
        ("orders.groupBy('account').applyInPandas(lambda rows: rows, orders.schema)", ["groups rows"]),
        ("orders.orderBy('id')", ["sorts rows"]),
    ],
)
def test_a_python_step_is_told_from_the_plan_it_makes(
    spark: SparkSession, tmp_path: Path, body: str, expected: list[str]
) -> None:
    module = f"per_batch_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(f"def made(orders):\n    return {body}\n"))
    called = PythonStep.model_validate({"function": f"{module}:made", "from": "orders"})
    assert said(spark, Step(view="made", python=called), tmp_path) == expected
    assert said(spark, Step(view="made", python=called, per="batch"), tmp_path) == []


def planned(payments: Payments) -> list[str]:
    register()
    done = CliRunner().invoke(app, ["plan", str(payments.file), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return list(json.loads(done.stdout)["warnings"])


def test_plan_and_run_warn_of_an_aggregate_with_its_line_and_per_batch_silences_them(
    payments: Payments, spark: SparkSession
) -> None:
    step: dict[str, Any] = {"view": "totals", "sql": COUNTS}
    payments.spec["transform"] = [step]
    payments.spec["sinks"] = {"lake": {"from": "totals", "delta": {"path": "lake"}}}
    payments.spec["rate"] = {"max_offsets": 10}
    payments.send(*(good(n) for n in range(20)), key=b"k")  # one partition, so two batches
    [warning] = planned(payments)
    line = 1 + payments.file.read_text().splitlines().index("- view: totals")
    said = "step 'totals' groups rows within each batch, not across the stream: one `account` in two batches"
    assert warning.startswith(f"{payments.file}:{line}: {said}")
    assert "`window`" in warning
    assert "`per: batch`" in warning
    heard = Heard()
    payments.run(watch=heard)
    assert len(heard.entries) == 2
    assert heard.warnings == [warning]
    step["per"] = "batch"
    assert planned(payments) == []
    again = Heard()
    payments.send(good(30), key=b"k")
    payments.run(watch=again)
    assert again.warnings == []


@pytest.mark.parametrize(
    ("query", "sink"),
    [
        ("select * from payments order by amount", "parquet"),
        ("select * from payments where amount >= (select amount from payments limit 1)", "kafka"),
    ],
)
def test_records_are_counted_once_however_often_the_engine_computes_them(
    payments: Payments, query: str, sink: str
) -> None:
    """To sort rows it computes them twice, and for the subquery a part of them."""
    out = f"{payments.topic}-out"
    payments.create(out)
    into: dict[str, Any] = {"parquet": {"path": "files"}, "kafka": {"topic": out, "origin": True}}
    payments.spec["transform"] = [{"view": "made", "sql": query, "per": "batch"}]
    payments.spec["sinks"] = {"out": {"from": "made", sink: into[sink]}}
    payments.send(*(good(n) for n in range(20)), b"{", key=b"k")
    heard = Heard()
    payments.run(watch=heard)
    assert heard.warnings == []
    [entry] = heard.entries
    assert (entry.read, entry.dead, entry.sinks["out"].written, entry.sinks["out"].dropped) == (21, 1, 20, 0)
    report = payments.verify()
    assert (report.complete, report.proof) == (True, {"out": "by offset"}), report.findings
