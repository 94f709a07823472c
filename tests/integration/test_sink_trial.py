"""Sinks to try things out (K9): rows on the terminal, and in a view of the Spark session."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession
from tests.payments import Payments, good

from penstock.errors import SinkFailed


def test_rows_are_printed_as_json_and_the_rest_is_counted(
    payments: Payments, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark
    payments.spec["sinks"] = {"shown": {"from": "payments", "console": {"rows": 2}}}
    payments.send(*(good(n) for n in range(5)), b"{")
    payments.run()
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = [each["row"] for each in found if "row" in each]
    assert len(rows) + sum(each.get("more", 0) for each in found) == 5
    assert 0 < len(rows) < 5
    assert (found[0]["sink"], rows[0]["currency"]) == ("shown", "EUR")
    assert len(payments.dead()) == 1


def test_rows_are_in_a_view_that_grows_batch_by_batch_and_has_a_limit(payments: Payments, spark: SparkSession) -> None:
    payments.spec["rate"]["max_offsets"] = 2
    payments.spec["sinks"] = {"kept": {"from": "settled", "memory": {"table": "tried", "max_rows": 6}}}
    payments.send(*(good(n, status="VOID" if n == 3 else "SETTLED") for n in range(6)))
    payments.run()
    found = spark.sql("select payment_id, day, _kafka.offset from tried").collect()
    assert sorted(row["payment_id"] for row in found) == ["p-0", "p-1", "p-2", "p-4", "p-5"]
    payments.send(good(6))
    payments.run()
    assert spark.table("tried").count() == 6
    payments.send(good(7))
    with pytest.raises(SinkFailed, match="would have"):
        payments.run()
