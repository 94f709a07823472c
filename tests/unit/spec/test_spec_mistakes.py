"""Every mistake has its line, its path, its code and what is allowed instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.unit.spec.specs import GOOD, schema_of, short

from penstock.spec.load import load, read

Write = Callable[..., Path]


VALUE = "source.topics.payments.value"


class Bad(NamedTuple):
    """`old` in GOOD replaced by `new`, and the one mistake that must come of it."""

    old: str
    new: str
    line: int
    path: str
    code: str
    text: str


BAD = [
    Bad("sinks:", "sinkz:", 14, "sinkz", "unknown-key", "did you mean 'sinks'?"),
    Bad("bootstrap:", "zzz: 1\n  bootstrap:", 4, "kafka.zzz", "unknown-key", "allowed: bootstrap, topics"),
    Bad("format: json", "format: jsonn", 9, VALUE + ".format", "not-allowed", "mean 'json'?"),
    Bad("        format: json\n", "", 8, VALUE + ".format", "missing-key", "'format' is missing"),
    Bad("from: settled", "from: setled", 16, "sinks.lake.from", "names", "did you mean 'settled'?"),
    Bad("name: payments", "name: Payments", 2, "name", "bad-name", "lower case letters"),
    Bad("name: payments", "name: 007", 2, "name", "wrong-type", 'write "007" in quotes'),
    Bad("name: payments", "name:", 2, "name", "wrong-type", "found nothing"),
    Bad("penstock: 1", "penstock: 2", 1, "penstock", "wrong-type", "expected '1', found the number 2"),
    Bad("localhost:9092", "[a, b]", 4, "kafka.bootstrap", "wrong-type", "expected text, found a list"),
    Bad(
        "transform:\n",
        "transform:\n  - {sql: select 1}\n",
        12,
        "transform[0].view",
        "missing-key",
        "'view' is missing",
    ),
    Bad("amount: double", "amount: dubble", 10, VALUE + ".schema.fields.amount", "bad-type", "mean 'double'"),
    Bad(
        "format: json\n",
        "format: json\n        version: 2\n",
        10,
        VALUE + ".version",
        "names",
        "`version` does nothing beside `schema`",
    ),
    Bad(
        "format: json\n",
        "format: json\n        unreadable: stop\n",
        10,
        VALUE + ".unreadable",
        "names",
        "these records do not name a schema",
    ),
    Bad("{amount: double}", "[]", 10, VALUE + ".schema.fields", "wrong-type", "expected a mapping"),
    Bad(
        "{fields: {amount: double}}",
        "[1]",
        10,
        VALUE + ".schema",
        "wrong-type",
        "text or a mapping with 'fields'",
    ),
    Bad("{fields: {amount: double}}", "{}", 10, VALUE + ".schema.fields", "missing-key", "missing"),
    Bad("{fields: {amount: double}}", "nope.yaml", 10, VALUE + ".schema", "schema-unreadable", "no such file"),
    Bad(
        "amount: double",
        "a: {type: decimal(12,2)}",
        10,
        VALUE + ".schema.fields.a.2)",
        "unknown-key",
        "quote it",
    ),
    Bad(
        "format: json\n",
        "format: json\n        wire: raw\n",
        10,
        VALUE + ".wire",
        "unknown-key",
        "of format json; allowed",
    ),
    Bad("        schema: {fields: {amount: double}}\n", "", 8, VALUE, "names", "or a `schema`"),
    Bad(
        "transform:\n",
        "  start: 2026-11-01T00:00:00Z\ntransform:\n",
        11,
        "source.start",
        "not-allowed",
        'write {timestamp: "2026-11-01T00:00:00Z"}',
    ),
    Bad(
        "transform:\n",
        "  start: {timestamp: 1700000005}\ntransform:\n",
        11,
        "source.start.timestamp",
        "bad-time",
        "write milliseconds, 1700000005000",
    ),
    Bad("amount: double", "_Kafka: int", 10, VALUE + ".schema.fields._Kafka", "names", "own column"),
    Bad("amount", "'a\"b'", 10, VALUE + '.schema.fields.a"b', "names", "all but control characters, '\"' and '\\'"),
    Bad(
        "delta: {path: lake/payments}",
        "iceberg: {table: a.b, catalog: {type: rest}}",
        17,
        "sinks.lake.iceberg.catalog.type",
        "not-allowed",
        "'rest' is not allowed; allowed: hadoop, jdbc",
    ),
    Bad(
        "delta: {path: lake/payments}",
        "iceberg: {table: a.b, catalog: {warehouse: w}}",
        17,
        "sinks.lake.iceberg.catalog.type",
        "missing-key",
        "'type' is missing",
    ),
    Bad(
        "delta: {path: lake/payments}",
        "iceberg: {table: a.b, catalog: {type: hadoop, warehouse: w, uri: u}}",
        17,
        "sinks.lake.iceberg.catalog.uri",
        "unknown-key",
        "of type hadoop; allowed: type, warehouse, name",
    ),
    Bad(
        "delta: {path: lake/payments}",
        "iceberg: {table: b, catalog: {type: hadoop, warehouse: w}}",
        17,
        "sinks.lake.iceberg.table",
        "bad-name",
        "namespace.name, of letters",
    ),
    Bad("sinks:", "trigger: continous\nsinks:", 14, "trigger", "not-allowed", "did you mean 'continuous'?"),
    Bad(
        "sinks:",
        "trigger: 5\nsinks:",
        14,
        "trigger",
        "wrong-type",
        "'real-time' or a mapping with 'every'",
    ),
    Bad("sinks:", "trigger: {every: 5}\nsinks:", 14, "trigger.every", "bad-duration", "500ms, 10s"),
    Bad("sinks:", "trigger: {evry: 5s, every: 5s}\nsinks:", 14, "trigger.evry", "unknown-key", "mean 'every'"),
    Bad("sinks:", "rate: {max_offsets: 0}\nsinks:", 14, "rate.max_offsets", "out-of-range", "at least 1"),
    Bad(
        "sinks:",
        "rate: {max_offsets: '5'}\nsinks:",
        14,
        "rate.max_offsets",
        "wrong-type",
        "write 5 without quotes",
    ),
    Bad("sinks:", "dead_letters: {}\nsinks:", 14, "dead_letters", "one-kind", "exactly one of"),
    Bad("sinks:", "contract:\n  paymnts: []\nsinks:", 15, "contract.paymnts", "names", "mean 'payments'?"),
    Bad(
        "sinks:\n",
        "sinks:\n  'Bad Name': {from: settled, delta: {path: x}}\n",
        15,
        "sinks.Bad Name",
        "bad-name",
        "lower case",
    ),
    Bad(
        "sinks:\n",
        "sinks:\n  o: {from: settled, delta: {path: ./lake/payments}}\n",
        18,
        "sinks.lake.delta.path",
        "names",
        "same table",
    ),
    Bad(
        "sinks:",
        "dead_letters: {kafka: {topic: payments}}\nsinks:",
        14,
        "dead_letters.kafka.topic",
        "names",
        "read again",
    ),
    Bad(
        "transform:\n",
        "transform:\n  - {view: Payments, sql: x}\n",
        12,
        "transform[0].view",
        "names",
        "defined twice",
    ),
    Bad("name: payments", "name: payments\nname: other", 3, "name", "duplicate-key", "first on line 2"),
    Bad("sinks:", "checkpoint: ${env:}\nsinks:", 14, "checkpoint", "bad-reference", "${env:NAME}"),
    Bad("sinks:", "checkpoint: a/${foo:x}\nsinks:", 14, "checkpoint", "bad-reference", "${file:path}"),
    Bad("sinks:", "checkpoint: $ENV{HOME}\nsinks:", 14, "checkpoint", "bad-reference", "write ${env:HOME}"),
    Bad("sinks:", "checkpoint: $HOME\nsinks:", 14, "checkpoint", "bad-reference", "write ${env:HOME}"),
    Bad(
        "sinks:",
        "spark: {conf: {spark.ssl.keyPassword: hunter2}}\nsinks:",
        14,
        "spark.conf.spark.ssl.keyPassword",
        "literal-secret",
        "secrets only as",
    ),
    Bad(
        "sinks:",
        "spark: {conf: {x: '-Dpassword=hunter2'}}\nsinks:",
        14,
        "spark.conf.x",
        "literal-secret",
        "secrets only as",
    ),
    Bad(
        "sinks:",
        "spark: {conf: {kafka.sasl.jaas.config: '${env:HOME}'}}\nsinks:",
        14,
        "spark.conf.kafka.sasl.jaas.config",
        "literal-secret",
        "refused",
    ),
    Bad(
        "sinks:",
        "spark: {conf: {spark.executor.extraJavaOptions: '-Da=${env:HOME}'}}\nsinks:",
        14,
        "spark.conf.spark.executor.extraJavaOptions",
        "exposed-secret",
        "command line of every executor",
    ),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.code}-{bad.path}")
def test_one_mistake_gives_exactly_one_message_at_its_line(write: Write, bad: Bad) -> None:
    assert bad.old in GOOD
    pipeline, found = read(write(GOOD.replace(bad.old, bad.new, 1)))
    assert pipeline is None
    assert short(found) == [(bad.line, bad.path, bad.code)]
    assert bad.text in str(found[0])
    assert "hunter2" not in str(found[0])


def test_the_column_is_where_the_wrong_value_begins(write: Write) -> None:
    file = write(GOOD.replace("format: json", "format: jsonn"))
    _, [mistake] = read(file)
    where = "source.topics.payments.value.format"
    assert str(mistake) == f"{file}:9:17: {where}: 'jsonn' is not allowed; did you mean 'json'?"


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("- a\n", 1, "wrong-type"),
        ("just text\n", 1, "wrong-type"),
        ("a: 1\nb: c: d\n", 2, "syntax"),
        ("a:\n\tb: 1\n", 2, "syntax"),
        ("a: [1\n", 2, "syntax"),
        ('a: 1\nb: "\\UFFFFFFFF"\n', 2, "syntax"),
        ("a: 1\nb: \x01\n", 2, "syntax"),
        ("a: &a [*a]\n", 1, "alias"),
        ("a: *b\n", 1, "alias"),
        ("a: " + "[" * 60 + "]" * 60, 1, "too-deep"),
        ("x" * 1_000_001, 1, "too-large"),
        (b"a: 1\nb: \xff\n", 1, "spec-unreadable"),
    ],
)
def test_a_file_that_is_no_mapping_of_yaml_is_one_mistake(
    write: Write, text: str | bytes, line: int, code: str
) -> None:
    pipeline, found = read(write(text))
    assert pipeline is None
    assert [(m.line, m.code) for m in found] == [(line, code)]


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("name: payments", "name: !secret payments", 2, "tag"),
        ("name: payments", "<<: {}\nname: payments", 2, "merge-key"),
        ("name: payments", "? [a]\n: b\nname: payments", 2, "key"),
        ("    delta: {path: lake/payments}\n", "    delta: {path: x}\n---\nb: 1\n", 18, "documents"),
    ],
)
def test_yaml_beyond_plain_data_is_a_mistake(write: Write, old: str, new: str, line: int, code: str) -> None:
    _, found = read(write(GOOD.replace(old, new, 1)))
    assert [(m.line, m.code) for m in found] == [(line, code)]


def test_alias_bomb_is_refused_before_it_grows(write: Write) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    _, found = read(write(bomb))
    assert [m.code for m in found] == ["alias"]


def test_an_alias_used_once_stands_for_its_anchor(write: Write) -> None:
    text = GOOD.replace("{path: lake/payments}", "&table {path: lake/payments}")
    pipeline, found = read(write(text + "  copy:\n    from: payments\n    delta: *table\n"))
    assert pipeline is None
    assert short(found) == [(17, "sinks.copy.delta.path", "names")]


def test_words_of_yaml_1_1_are_text(write: Write) -> None:
    schema = "{fields: {on: string, no: string, yes: {type: string, required: true}, 1: int}}"
    pipeline = load(write(GOOD.replace("{fields: {amount: double}}", schema)))
    assert list(schema_of(pipeline, "payments").fields) == ["on", "no", "yes", "1"]


def test_mistakes_of_a_schema_file_carry_its_own_name_and_lines(write: Write) -> None:
    schema = write("fields:\n  a: string\n  b: {type: strng}\n  _error: int\n", "schemas/s.yaml")
    file = write(GOOD.replace("{fields: {amount: double}}", "schemas/s.yaml"))
    _, found = read(file)
    assert [(m.file, *short([m])[0]) for m in found] == [(str(schema), 3, "fields.b.type", "bad-type")]
    schema.write_text("fields:\n  a: string\n  _error: int\n")
    _, found = read(file)
    assert short(found) == [(3, "fields._error", "names")]


@pytest.mark.parametrize(
    ("rate", "paths"),
    [
        ("{max_offsets: 10, min_offsets: 5, max_delay: 1m}", []),
        ("{max_offsets: 10, target_batch: 10s, floor: 5, ceiling: 20, by_restart: true}", []),
        ("{max_offsets: 10, min_offsets: 11}", ["rate.min_offsets"]),
        ("{max_delay: 1m}", ["rate.max_delay"]),
        ("{max_offsets: 10, floor: 11, target_batch: 1s}", ["rate.floor"]),
        ("{max_offsets: 10, ceiling: 9, target_batch: 1s}", ["rate.ceiling"]),
        ("{floor: 5, ceiling: 1000000, by_restart: true}", ["rate.floor", "rate.ceiling", "rate.by_restart"]),
    ],
)
def test_limits_of_a_batch_must_agree(write: Write, rate: str, paths: list[str]) -> None:
    found = read(write(GOOD.replace("sinks:", f"rate: {rate}\nsinks:", 1)))[1]
    assert sorted(m.path for m in found) == sorted(paths)


def test_sql_may_hold_dollar_braces_of_its_own(write: Write) -> None:
    assert read(write(GOOD.replace("select * from payments", "\"select '${2}' from payments\"")))[1] == []
