"""Stateful steps with what else a pipeline has and meets: sinks in Kafka, tables, records that fail, crashes."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.committed import committed
from tests.payments import Heard, Payments, good

from penstock import failpoint
from penstock.errors import EngineFailed
from penstock.lifecycle.preview import plan
from penstock.testing import case
from penstock.transform.sql import columns_behind

pytestmark = pytest.mark.usefixtures("spark")

ONCE: dict[str, Any] = {"from": "payments", "key": ["payment_id"], "time": "event_time", "within": "10m"}
EPOCHS: dict[str, Any] = {"from": "events", "time": "at"}


def test_rows_without_repetitions_reach_kafka_once_from_several_partitions(payments: Payments) -> None:
    """Rows leave the step in the task of their key, which has rows of every input partition."""
    out, name = f"{payments.topic}-out", f"out-{uuid.uuid4().hex[:8]}"  # other tests share the broker
    payments.create(out)
    payments.spec |= {
        "contract": {},
        "transform": [{"view": "once", "deduplicate": ONCE}, {"view": "some", "sql": "select * from once"}],
        "sinks": {name: {"from": "some", "kafka": {"topic": out, "value": {"format": "json"}}}},
        "rate": {"max_offsets": 30},
    }
    [sink] = [route for route in plan(payments.pipeline).routes if route.name == name]
    assert sink.mode == "exactly-once-by-batch"
    assert "keeps state by key" in str(sink.why)
    for turn in range(2):  # the second time most of them are in another partition
        for group in range(6):
            payments.send(*(good(n) for n in range(group, 40, 6)), key=f"{group + turn}".encode())
        payments.run()
    found = Counter(json.loads(seen.value or b"")["payment_id"] for seen in committed(payments.bootstrap, out))
    assert found == Counter(json.loads(good(n))["payment_id"] for n in range(40))
    report = payments.verify()
    assert report.complete, report.findings


def rated(payments: Payments, **rates: int) -> dict[str, Any]:
    """A step that looks payments up in a table, which is written too."""
    lines = "\n".join(f"{code},{rate}" for code, rate in rates.items())
    (payments.directory / "rates.csv").write_text(f"code,rate\n{lines}\n")
    columns = {"fields": {"code": "string", "rate": "int"}}
    payments.spec["references"] = {"rates": {"file": {"path": "rates.csv", "format": "csv", "schema": columns}}}
    return {"view": "rated", "enrich": {"from": "payments", "reference": "rates", "on": {"currency": "code"}}}


def test_record_that_a_step_behind_a_look_up_fails_on_is_set_aside_and_the_books_add_up(payments: Payments) -> None:
    payments.spec |= {
        "contract": {},
        "transform": [
            rated(payments, EUR=2, XXX=0),
            {"view": "shared", "sql": "select *, 100 / rate as share from rated"},
            {"view": "once", "deduplicate": {**ONCE, "from": "shared"}},
        ],
        "sinks": {"lake": {"from": "once", "delta": {"path": "lake"}}},
    }
    payments.send(good(1), good(2, currency="XXX"), good(3), good(1))
    heard = Heard()
    payments.run(watch=heard)
    assert [text.split(";")[0] for text in heard.warnings] == ["batch 0: a step or a condition fails on some record"]
    assert Counter(row["payment_id"] for row in payments.rows()) == Counter(["p-1", "p-3"])
    assert {row["share"] for row in payments.rows()} == {50.0}
    [letter] = payments.dead()
    assert "DIVIDE_BY_ZERO" in letter.reason
    report = payments.verify()
    assert report.complete, report.findings


def test_stream_goes_on_with_its_table_after_a_crash(payments: Payments, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start finds a batch that has begun, and plans with its copy of the table; those after it need it too."""
    payments.spec |= {
        "contract": {},
        "transform": [rated(payments, EUR=2), {"view": "once", "deduplicate": {**ONCE, "from": "rated"}}],
        "sinks": {"lake": {"from": "once", "delta": {"path": "lake"}}},
        "rate": {"max_offsets": 4},
    }
    payments.send(*(good(n) for n in range(4)))

    def crash(place: str, batch: int, rows: Any) -> None:
        if place == "after-sinks":
            raise RuntimeError("as if it was killed")

    with monkeypatch.context() as patched, pytest.raises(EngineFailed):
        patched.setattr(failpoint, "reach", crash)
        payments.run()
    (payments.directory / "rates.csv").write_text("code,rate\nEUR,3\n")
    payments.send(*(good(n) for n in range(4, 20)))
    payments.run()
    assert {row["payment_id"]: row["rate"] for row in payments.rows()} == {f"p-{n}": 2 for n in range(20)}
    report = payments.verify()
    assert report.complete, report.findings
    payments.send(good(20))
    payments.run()  # a start that finds no such batch reads the table anew
    assert {row["rate"] for row in payments.rows() if row["payment_id"] == "p-20"} == {3}


def test_record_that_fails_before_a_look_up_that_buries_does_not_stop_the_pipeline(payments: Payments) -> None:
    look_up = rated(payments, EUR=2)["enrich"]
    payments.spec |= {
        "contract": {},
        "transform": [
            {"view": "large", "sql": "select * from payments where 100 / (amount - 1) < 1000"},
            {"view": "rated", "enrich": {**look_up, "from": "large", "missing": "dead-letter"}},
        ],
        "sinks": {
            "lake": {"from": "rated", "delta": {"path": "lake"}},
            "all": {"from": "payments", "delta": {"path": "all"}},
        },
    }
    payments.send(good(1), good(2, amount=1), good(3, currency="XXX"), good(4))
    payments.run()
    assert Counter(row["payment_id"] for row in payments.rows()) == Counter(["p-1", "p-4"])
    reasons = sorted(letter.reason for letter in payments.dead())
    assert len(reasons) == 2
    assert "DIVIDE_BY_ZERO" in reasons[0]
    assert "has no row for currency = XXX" in reasons[1]
    report = payments.verify()
    assert report.complete, report.findings


def test_specs_with_modules_of_one_name_are_tested_together(tmp_path: Path) -> None:
    """In one application, whose workers can import one module of a name."""
    for which in ("one", "two"):
        home = tmp_path / which
        home.mkdir()
        text = f"""
        from pyspark.sql import functions as F


        @F.udf("string")
        def word(key):
            return "{which}"


        def said(rows):
            return rows.withColumn("said", word("key"))
        """
        (home / "words_of_tests.py").write_text(textwrap.dedent(text))
        spec = {
            "name": which,
            "kafka": {"bootstrap": "nowhere:9092"},
            "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": {"key": "string"}}}}}},
            "transform": [{"view": "made", "python": {"from": "t", "function": "words_of_tests:said"}}],
            "sinks": {"out": {"from": "made", "console": {}}},
        }
        YAML().dump(spec, home / "spec.yaml")
        cases = [
            {
                "name": "a word",
                "given": {"t": [{"value": {"key": "a"}}]},
                "expect": {"sinks": {"out": [{"key": "a", "said": which}]}},
            }
        ]
        YAML().dump({"cases": cases}, home / "spec.test.yaml")
    for which in ("one", "two", "one"):
        assert [result.text() for result in case.run(tmp_path / which / "spec.yaml")] == [""]


def test_case_of_complete_output_sees_what_a_table_in_memory_holds(tmp_path: Path) -> None:
    window = {"from": "t", "time": "at", "size": "1m", "by": ["key"], "columns": {"n": "count(*)"}, "emit": "complete"}
    fields = {"key": "string", "at": "timestamp"}
    spec = {
        "name": "whole",
        "kafka": {"bootstrap": "nowhere:9092"},
        "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": fields}}}}},
        "transform": [{"view": "counts", "window": window}],
        "sinks": {"out": {"from": "counts", "memory": {"table": "whole"}}},
    }
    YAML().dump(spec, tmp_path / "spec.yaml")
    given = [{"t": [{"value": {"key": "a", "at": "2026-11-01T10:00:00Z"}}]} for _ in range(2)]
    cases = [{"name": "twice", "given": given, "expect": {"sinks": {"out": [{"key": "a", "n": 2}]}}}]
    YAML().dump({"cases": cases}, tmp_path / "spec.test.yaml")
    assert [result.text() for result in case.run(tmp_path / "spec.yaml")] == [""]


@pytest.mark.parametrize(
    ("step", "made", "late"),
    [
        (
            {"window": {**EPOCHS, "late_after": "60s", "size": "60s", "by": ["key"], "columns": {"n": "count(*)"}}},
            [{"key": "a", "n": 2}],
            ["late"],
        ),
        ({"deduplicate": {**EPOCHS, "within": "60s", "key": ["key"]}}, [{"key": key} for key in "axy"], ["late"]),
        (
            {
                "join": {
                    "left": {**EPOCHS, "late_after": "60s"},
                    "right": {"from": "others", "time": "at", "late_after": "60s"},
                    "on": ["key"],
                    "within": "50s",
                    "columns": {"key": "events.key"},
                }
            },
            [{"key": key} for key in "aaaxy"],
            ["late_left", "late_right"],
        ),
        (
            {
                "state": {
                    **EPOCHS,
                    "late_after": "60s",
                    "key": ["key"],
                    "processor": "tests.stateful_processors:Quiet",
                    "fields": {"key": "string", "n": "int"},
                    "timers": "event",
                }
            },
            [{"key": "a", "n": 2}],
            ["late"],
        ),
    ],
    ids=["window", "deduplicate", "join", "state"],
)
def test_event_time_of_a_step_can_be_a_number(
    tmp_path: Path, step: dict[str, Any], made: list[dict[str, Any]], late: list[str]
) -> None:
    """In the stream and in the batch: the watermark it makes closes, forgets and tells late records."""
    value = {"format": "json", "schema": {"fields": {"key": "string", "at": {"type": "timestamp", "epoch": "ms"}}}}
    topics = {name: {"value": value} for name in ("events", "others")}
    sinks = {"out": {"from": "made", "console": {}}}
    sinks |= {name: {"from": f"made_{name}", "console": {}} for name in late}
    spec = {
        "name": "numbers",
        "kafka": {"bootstrap": "nowhere:9092"},
        "source": {"topics": topics if "join" in step else {"events": topics["events"]}},
        "transform": [{"view": "made", **step}],
        "sinks": sinks,
    }
    YAML().dump(spec, tmp_path / "spec.yaml")
    began = 1_700_000_000_000
    batches = [[("a", 0), ("a", 1_000)], [("x", 600_000)], [("y", 600_000)], [("b", 2_000)]]
    given = [
        {name: [{"value": {"key": key, "at": began + at}} for key, at in batch] for name in spec["source"]["topics"]}  # type: ignore[index]
        for batch in batches
    ]
    expect = {"sinks": {"out": made, **{name: [{"key": "b"}] for name in late}}}
    YAML().dump({"cases": [{"name": "numbers", "given": given, "expect": expect}]}, tmp_path / "spec.test.yaml")
    assert [result.text() for result in case.run(tmp_path / "spec.yaml")] == [""]


@pytest.mark.parametrize(
    ("sql", "where", "refused"),
    [
        ("select *, n < 3 as small from w", "small", True),
        ("select *, n + 1 as more from w where n > 0", "more < 3 and account = 'a'", True),
        ("select *, upper(account) as who, n < 3 as small from w", "who = 'A'", False),
    ],
)
def test_condition_on_what_sql_makes_of_changing_columns_is_refused_before_the_start(
    payments: Payments, sql: str, where: str, refused: bool
) -> None:
    """Or a row that no longer meets it would stay in the table as it was."""
    window = {"from": "payments", "time": "event_time", "late_after": "1m", "size": "1m", "by": ["account"]}
    table = {"path": "lake", "upsert": {"key": ["account", "window_start"]}}
    payments.spec |= {
        "contract": {},
        "transform": [
            {"view": "w", "window": {**window, "columns": {"n": "count(*)"}, "emit": "update"}},
            {"view": "u", "sql": sql},
        ],
        "sinks": {"lake": {"from": "u", "where": where, "delta": table}},
    }
    problems = plan(payments.pipeline).problems
    assert [problem.code for problem in problems] == ["step-failed"] * refused
    if refused:
        assert "another 'n'" in str(problems[0].cause)
        assert f"({where}) is not true as _deleted from u" in str(problems[0].next_command)


def test_columns_of_a_condition_are_followed_through_joins_and_views(spark: Any) -> None:
    source = spark.createDataFrame([], "k string, n bigint, other bigint")
    source.createOrReplaceTempView("behind_source")
    spark.sql("select *, n * 2 as twice from behind_source").createOrReplaceTempView("behind_twice")
    spark.createDataFrame([], "code string, rate int").createOrReplaceTempView("behind_rates")
    joined = spark.sql("select t.*, rate from behind_twice t left join behind_rates on k = code")
    assert columns_behind(joined, "twice > 3", source) == {"n"}
    assert columns_behind(joined, "rate > 3 and k = 'a'", source) == {"k"}
