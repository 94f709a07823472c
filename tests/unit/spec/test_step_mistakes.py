"""Mistakes in rules, steps and references that `check` finds without an engine, with their line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.spec.specs import GOOD

from penstock.spec import sql_names
from penstock.spec.load import load, read

Write = Callable[..., Path]

SPEC = """\
name: payments
kafka: {bootstrap: "localhost:9092"}
source:
  topics:
    payments:
      value:
        format: json
        schema:
          fields: {id: string, amount: "decimal(12,2)", day: date, tags: "map<string,int>", at: "struct<city:string>"}
contract:
  payments:
    - {name: rule, RULE}
references:
  rates: {file: {path: rates.csv, format: csv, schema: {fields: {code: string, rate: double}}}, refresh: 1h}
transform:
  - {view: made, STEP}
  - {view: later, sql: select * from made}
sinks:
  lake: {from: made, delta: {path: lake}}
"""
RULE, STEP = "not_null: id", "sql: select * from payments"


def spec(rule: str = RULE, step: str = STEP) -> str:
    return SPEC.replace("RULE", rule).replace("STEP", step)


@pytest.mark.parametrize(
    "rule",
    [
        "not_null: [id, at.city]",
        "range: {field: amount, min: 0.01, max: 100}",
        "range: {field: day, min: '2026-01-01', or_null: true}",
        r"regex: {field: id, matches: '[A-Z]{3}-\d+(?<x>a)?+'}",
        "one_of: {field: id, values: [a, b]}",
        "unique: id",
        "unique: [id, at.city]",
        "not_null: _kafka.key",
    ],
)
def test_short_form_is_a_rule(write: Write, rule: str) -> None:
    assert load(write(spec(rule))).contract["payments"][0].text


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        ("not_null: idd", "not_null", "no field 'idd'; did you mean 'id'?"),
        ("not_null: [id, at.town]", "not_null", "no field 'at.town'"),
        ("range: {field: amount}", "range", "needs `min`, `max` or both"),
        ("range: {field: amount, min: 2, max: 1}", "range", "nothing is between 2 and 1"),
        ("range: {field: amount, min: a}", "range.min", "'a' is no value of 'amount', which is decimal(12,2)"),
        ("range: {field: day, min: 2026-13-01}", "range.min", "is no value of 'day'"),
        ("range: {field: amount, min: .inf}", "range", "finite"),
        ("regex: {field: amount, matches: a}", "regex.field", "'amount' is not text but decimal(12,2)"),
        ("regex: {field: id, matches: '(a'}", "regex.matches", "not a regular expression"),
        ("one_of: {field: amount, values: [a]}", "one_of.values[0]", "'a' is no value of 'amount'"),
        ("one_of: {field: id, values: []}", "one_of.values", "must not be empty"),
        ("unique: tags", "unique", "maps cannot be compared"),
        ("rule: a > 0, not_null: id", "", "a rule needs exactly one of"),
        ("otherwise: drop", "", "a rule needs exactly one of"),
    ],
)
def test_rule_that_cannot_be_meant(write: Write, rule: str, path: str, text: str) -> None:
    pipeline, mistakes = read(write(spec(rule)))
    assert pipeline is None
    assert [(m.line, m.path) for m in mistakes] == [(12, f"contract.payments[0].{path}".rstrip("."))], mistakes
    assert text in str(mistakes[0])


@pytest.mark.parametrize(
    ("step", "path", "text"),
    [
        ("sql: select * from paiments", "sql", "no view 'paiments'; did you mean 'payments'?"),
        ("sql: select * from payments join made using (id)", "sql", "view 'made' is made from itself"),
        ("sql: select * from LATER", "sql", "view 'LATER' is defined after 'made', which uses it"),
        ("python: {function: 'steps:add', from: nope}", "python.from", "no view 'nope'"),
        ("python: {function: 'steps:ad', from: payments}", "python.function", "no function 'ad' in steps.py"),
        (
            "python: {function: 'steps:add', from: [payments, rates]}",
            "python.function",
            "takes 1 view, `from` names 2",
        ),
        ("python: {function: 'gone:add', from: payments}", "python.function", "no module 'gone'"),
        ("python: {function: 'broken:add', from: payments}", "python.function", "broken.py:1: not Python"),
        ("python: {function: 'steps.add', from: payments}", "python.function", "module:function"),
        ("enrich: {from: payments, reference: rate, on: id}", "enrich.reference", "no reference 'rate'"),
        ("enrich: {from: payments, reference: rates, on: id}", "enrich.on", "has no column 'id'"),
        ("enrich: {from: payments, reference: rates, on: {zz: code}}", "enrich.on", "has no field 'zz'"),
        ("enrich: {from: made, reference: rates, on: {id: code}}", "enrich.from", "made from itself"),
        (
            "enrich: {from: payments, reference: rates, on: {id: code}, columns: {rate: _kafka}}",
            "enrich.columns",
            "Penstock's own",
        ),
        ("sql: select 1, enrich: {from: payments, reference: rates, on: {id: code}}", "", "exactly one of"),
    ],
)
def test_step_that_cannot_run(write: Write, step: str, path: str, text: str) -> None:
    write("def add(payments):\n    return payments\n", "steps.py")
    write("def add(:\n", "broken.py")
    pipeline, mistakes = read(write(spec(step=step)))
    assert pipeline is None
    assert [(m.line, m.path) for m in mistakes] == [(16, f"transform[0].{path}".rstrip("."))], mistakes
    assert text in str(mistakes[0])


@pytest.mark.parametrize(
    "step",
    [
        "python: {function: 'steps:add', from: payments}",
        "python: {function: 'json:loads', from: payments}",
        "enrich: {from: payments, reference: rates, on: {id: code}, missing: null}",
        "enrich: {from: payments, reference: rates, on: {id: code}, missing: 'null'}",
        "enrich: {from: payments, reference: rates, on: {id: code}, columns: [rate], prefix: r_, missing: dead-letter}",
        "sql: select * from payments join rates on id = code",
        "sql: select * from Payments",
    ],
)
def test_step_that_can_run(write: Write, step: str) -> None:
    write("def add(payments):\n    raise SystemExit  # checked, not run\n", "steps.py")
    write("raise SystemExit\n", "json.py" if "json" not in step else "other.py")
    pipeline, mistakes = read(write(spec(step=step)))
    assert pipeline is not None, mistakes


KAFKA = "kafka: {topic: out, "


@pytest.mark.parametrize(
    ("sink", "path", "text"),
    [
        ("delta: {path: p, upsert: {key: [id, idd]}}", "delta.upsert.key[1]", "no column 'idd'; did you mean 'id'?"),
        ("postgres: {url: u, table: t, upsert: {key: [id], order_by: n}}", "postgres.upsert.order_by", "column 'n'"),
        ("delta: {path: p, partition_by: [day, Day]}", "delta.partition_by[1]", "did you mean 'day'?"),
        ("parquet: {path: p, partition_by: [n]}", "parquet.partition_by[0]", "allowed: id, amount, day, tags, at"),
        ("iceberg: {ICE, partition_by: ['bucket(16, n)']}", "iceberg.partition_by[0]", "column 'n'"),
        ("iceberg: {ICE, upsert: {key: [n]}}", "iceberg.upsert.key[0]", "column 'n'"),
        (KAFKA + "key: {format: string, column: at.town}}", "kafka.key.column", "no column 'at.town'"),
        (KAFKA + "value: {format: json, columns: [id, n]}}", "kafka.value.columns[1]", "column 'n'"),
        (KAFKA + "headers: n}", "kafka.headers", "column 'n'"),
        (KAFKA + "headers: id}", "kafka.headers", "'id' is string"),
        (KAFKA + "partition: n}", "kafka.partition", "column 'n'"),
        ("kafka: {topic_column: n}", "kafka.topic_column", "column 'n'"),
    ],
)
def test_column_that_the_view_of_a_sink_does_not_have(write: Write, sink: str, path: str, text: str) -> None:
    pipeline, mistakes = read(write(with_sink(sink)))
    assert pipeline is None
    assert [(m.line, m.path) for m in mistakes] == [(19, f"sinks.lake.{path}")], mistakes
    assert text in str(mistakes[0])
    assert read(write(with_sink(sink, view="made")))[0] is not None  # what SQL makes only the engine knows


@pytest.mark.parametrize(
    "sink",
    [
        "postgres: {url: u, table: t, upsert: {key: [_kafka_topic, _kafka_partition, id], order_by: _kafka_offset}}",
        "iceberg: {ICE, partition_by: [days(day), id]}",
        KAFKA + "key: {format: bytes, column: _kafka.key}, headers: _kafka.headers}",
        KAFKA + "key: {format: string, column: AT.city}, headers: tags}",
        KAFKA + "value: {format: string, column: _deleted}, partition: '`id`'}",
    ],
)
def test_columns_that_the_view_of_a_sink_has(write: Write, sink: str) -> None:
    pipeline, mistakes = read(write(with_sink(sink)))
    assert pipeline is not None, mistakes


def with_sink(sink: str, view: str = "payments") -> str:
    catalog = "table: a.b, catalog: {type: hadoop, warehouse: w}"
    return spec().replace("from: made, delta: {path: lake}", f"from: {view}, {sink}".replace("ICE", catalog))


def test_name_in_sql_may_be_a_table_where_the_engine_has_a_catalog(write: Write) -> None:
    text = GOOD.replace("from payments", "from accounts")
    assert read(write(text))[0] is None
    assert read(write(text + "spark: {conf: {spark.sql.catalogImplementation: hive}}\n"))[0] is not None
    assert read(write(text + 'spark: {master: "spark://host:7077"}\n'))[0] is not None


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select a from b", ["b"]),
        ("SELECT * FROM `b` -- from c\n JOIN d ON 'from e' = x", ["b", "d"]),
        ("with c as (select 1), d (x) as (select * from e) select * from c join d", ["e"]),
        ("select extract(year from day), trim(both 'x' from y) from z", ["z"]),
        ("select a is distinct from b, substring(c from 2) from d", ["d"]),
        ("select * from (select * from a) x, b", ["a"]),
        ("select * from range(10) join explode(x)", []),
        ("select * from catalog.table join delta.`/path`", []),
        ("select (select max(x) from a), exists (select 1 from b) from c", ["a", "b", "c"]),
        ("select * from ${table}", []),
        ("from a |> where x > 1", []),
        ("select a || b, c::int /* from d */ from e", ["e"]),
        ("select * from values (1), (2) as t(a)", []),
        ("select * from a lateral view explode(b) t as c", ["a"]),
        ("select 'it''s from x' from y", ["y"]),
    ],
)
def test_views_that_a_query_surely_reads(sql: str, names: list[str]) -> None:
    assert sorted(sql_names.names(sql)) == names


def test_password_of_a_reference_is_no_literal(write: Write) -> None:
    table = "rates: {jdbc: {url: 'jdbc:postgresql://db/x', table: rates, user: u, password: hunter2}}"
    text = spec().replace(next(line for line in SPEC.splitlines() if "rates: {file" in line).strip(), table)
    pipeline, mistakes = read(write(text))
    assert pipeline is None
    assert [m.code for m in mistakes] == ["literal-secret"]
    assert "hunter2" not in str(mistakes)
