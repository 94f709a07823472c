"""Rows of one key in several partitions: a step that keeps state meets them by their place, whichever task ends first.
So a batch that is run again, for a sink that does not hold it yet, makes of them what it made before."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.payments import Payments

from penstock.batch.stateful.flow import OWN_CHECK
from penstock.spark.write_errors import configured
from penstock.spec.stateful import Deduplicate
from penstock.transform import deduplicate

COPIES, PARTITIONS = 60, 3
SEEN = """
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor


    class Seen(StatefulProcessor):
        def init(self, handle):
            pass

        def handleInputRows(self, key, rows, timerValues):
            places = [f"{row['_kafka']['partition']}:{row['_kafka']['offset']}" for row in rows]
            yield Row(account=key[0], places=" ".join(places))

        def close(self):
            pass
"""


@pytest.fixture
def copies(payments: Payments) -> Payments:
    """Every payment in every partition, in the last one first; a batch has all of them."""
    payments.spec["contract"] = {}
    payments.spec["rate"]["max_offsets"] = 10 * COPIES
    for partition in reversed(range(PARTITIONS)):
        for number in range(COPIES):
            payments.put(number, partition)
    return payments


def made(payments: Payments, step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    payments.spec["transform"] = [{"view": "made", **step}]
    payments.spec["sinks"] = {"out": {"from": "made", "parquet": {"path": "out"}}}
    payments.run()
    yield from ds.dataset(payments.directory / "out", partitioning="hive").to_table().to_pylist()


@pytest.mark.usefixtures("spark")
def test_of_copies_in_several_partitions_the_first_by_place_is_kept(copies: Payments) -> None:
    once = {"from": "payments", "time": "event_time", "within": "1h", "key": ["payment_id"]}
    places = {row["payment_id"]: row["_kafka"]["partition"] for row in made(copies, {"deduplicate": once})}
    assert places == {f"p-{number}": 0 for number in range(COPIES)}


@pytest.mark.parametrize("names", [["a", "b"], ["tenant", "account", "order_id", "line", "kind"], ["a", "a"]])
def test_rows_are_moved_once_whatever_the_key(spark: Any, tmp_path: Path, names: list[str]) -> None:
    """The engine has an order of its own for keys of more than four columns."""
    columns = [
        "timestamp'2026-11-01' as at",
        *(f"string(id + {n}) as {name}" for n, name in enumerate(dict.fromkeys(names))),
    ]
    place = "named_struct('topic', 't', 'partition', 0, 'offset', id) as _kafka"
    spark.range(9).selectExpr(*columns, place).write.parquet(str(tmp_path / "in"))
    read = spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema).parquet(str(tmp_path / "in"))
    step = Deduplicate.model_validate({"from": "v", "key": names, "time": "at", "within": "1h"})
    with configured(spark, {OWN_CHECK: "false"}):
        made = deduplicate.rows("once", step, read, ordered=True).writeStream.format("noop").trigger(availableNow=True)
        query = made.option("checkpointLocation", str(tmp_path / "spark")).start()
        query.awaitTermination(60)
    plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    found = re.findall(r"(StreamingDeduplicateWithinWatermark|Sort|Exchange) ", plan)
    assert found == ["StreamingDeduplicateWithinWatermark", "Sort", "Exchange"], plan


@pytest.mark.usefixtures("spark")
def test_class_of_a_state_step_gets_the_rows_of_a_key_by_their_place(copies: Payments) -> None:
    (copies.directory / "seen.py").write_text(textwrap.dedent(SEEN))
    fields = {"account": "string", "places": "string"}
    state = {"from": "payments", "key": ["account"], "processor": "seen:Seen", "fields": fields}
    rows = list(made(copies, {"state": state}))
    assert sum(len(row["places"].split()) for row in rows) == COPIES * PARTITIONS
    for row in rows:
        places = [tuple(map(int, place.split(":"))) for place in row["places"].split()]
        assert places == sorted(places)
