"""`penstock check` and `penstock schema` as a user runs them: a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "payments" / "payments.yaml"
HEAVY = ("pyspark", "confluent_kafka", "pyarrow", "deltalake", "numpy", "py4j", "rich")


def penstock(*arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [Path(sys.executable).with_name("penstock"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "KAFKA_BOOTSTRAP": "localhost:9092"},
        check=False,
        timeout=60,
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done


def test_good_spec_is_named_with_its_topics_and_sinks() -> None:
    lines = penstock("check", str(EXAMPLE)).stdout.splitlines()
    assert lines == [f"{EXAMPLE}: ok: payments (topics: payments; sinks: lake)", "1 file, 0 mistakes"]


def test_two_files_with_mistakes_are_both_reported_and_exit_2(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(EXAMPLE.read_text().replace("schemas/payment.yaml", "p.yaml").replace("rate:", "rat:"))
    (tmp_path / "p.yaml").write_text("fields:\n  amount: duble\n")
    second.write_text("name: [\n")
    done = penstock("check", str(first), str(EXAMPLE), str(second), str(tmp_path / "c.yaml"), expected=2)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"{first}:17:1: rat: unknown key 'rat'; did you mean 'rate'?",
        f"{tmp_path / 'p.yaml'}:2:11: fields.amount: 'duble' is not a type; did you mean 'double'?",
        f"{second}:2:1: not YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
        f"{tmp_path / 'c.yaml'}:1:1: the file cannot be read: no such file or directory",
        f"{EXAMPLE}: ok: payments (topics: payments; sinks: lake)",
        "4 files, 4 mistakes",
    ]


def test_json_carries_every_mistake_and_the_same_exit_status(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: 5\n")
    answer = json.loads(penstock("check", "--json", str(bad), str(EXAMPLE), expected=2).stdout)
    assert answer["ok"] is False
    assert [file["ok"] for file in answer["files"]] == [False, True]
    codes = [mistake["code"] for mistake in answer["files"][0]["mistakes"]]
    assert answer["mistakes"] == len(codes)
    assert sorted(set(codes)) == ["missing-key", "wrong-type"]
    assert answer["files"][1]["topics"] == ["payments"]


def test_escape_sequences_of_a_spec_do_not_reach_the_terminal(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text('name: "\\e[31m"\n')
    assert "\x1b" not in penstock("check", str(bad), expected=2).stdout


def test_schema_prints_json_and_the_reference_page() -> None:
    assert json.loads(penstock("schema").stdout)["title"] == "Penstock pipeline"
    assert penstock("schema", "--reference").stdout == (ROOT / "docs" / "reference.md").read_text()


@pytest.mark.parametrize("command", [["check", str(EXAMPLE)], ["schema"], ["--help"]], ids=lambda c: c[0])
def test_no_engine_and_no_kafka_client_is_imported(command: list[str]) -> None:
    runner = (
        "import sys, atexit\n"
        "atexit.register(lambda: sys.stderr.write('\\n'.join(sys.modules)))\n"
        "from penstock.cli.main import main\n"
        f"sys.argv = ['penstock', *{command!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", runner], capture_output=True, text=True, check=True, timeout=60)
    imported = {name.partition(".")[0] for name in done.stderr.split()}
    assert "penstock" in imported
    assert imported.isdisjoint(HEAVY)


REGISTRY = """
name: orders
kafka: {{bootstrap: "localhost:9092"}}
{registry}
source:
  topics:
    orders: {{value: {{format: avro, schema: order.avsc{wire}}}}}
    lines: {{value: {{format: csv, schema: {{fields: {{n: "{type}"}}}}}}}}
sinks:
  out: {{from: lines, kafka: {{topic: out, value: {{format: protobuf, schema: out.proto{wire}}}}}}}
"""
RAW = ", wire: raw"
RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'


def test_formats_of_a_registry_need_one_and_csv_has_no_nested_types(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    (tmp_path / "order.avsc").write_text(RECORD)
    (tmp_path / "out.proto").write_text('syntax = "proto3"; message Out { int64 n = 1; }')
    spec.write_text(REGISTRY.format(registry="", wire="", type="array<int>"))
    said = penstock("check", str(spec), expected=2).stdout.splitlines()
    assert said == [
        f"{spec}:7:14: source.topics.orders.value: avro: its records carry the id of a schema in a registry, and the "
        "spec names none: add `registry: {url: ...}`, or `wire: raw` where they carry no id",
        f"{spec}:8:52: source.topics.lines.value.schema.fields.n: a field of a CSV line cannot be 'array<int>': it has "
        "no nested types",
        f"{spec}:10:49: sinks.out.kafka.value: protobuf: its records carry the id of a schema in a registry, and the "
        "spec names none: add `registry: {url: ...}`, or `wire: raw` where they carry no id",
        "1 file, 3 mistakes",
    ]
    spec.write_text(REGISTRY.format(registry="", wire=RAW, type="decimal(8,2)"))
    assert penstock("check", str(spec)).stdout.splitlines()[-1] == "1 file, 0 mistakes"
    spec.write_text(REGISTRY.format(registry='registry: {url: "http://localhost:1"}', wire="", type="int"))
    assert penstock("check", str(spec)).stdout.splitlines()[-1] == "1 file, 0 mistakes"


def test_what_is_in_schema_files_of_other_languages_is_checked_too(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text(REGISTRY.format(registry="", wire=RAW, type="int"))
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "R"}')
    (tmp_path / "out.proto").write_text("message Out { int65 n = 1; }")
    orders, out, total = penstock("check", str(spec), expected=2).stdout.splitlines()
    assert orders.startswith(f"{spec}:7:44: source.topics.orders.value.schema: the schema file 'order.avsc' cannot be")
    assert out.startswith(f"{spec}:10:76: sinks.out.kafka.value.schema: the schema file 'out.proto' cannot be used: ")
    assert total == "1 file, 2 mistakes"


def test_schema_to_write_with_is_one_file(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text(REGISTRY.format(registry="", wire=RAW, type="int"))
    (tmp_path / "order.avsc").write_text(RECORD)
    (tmp_path / "part.proto").write_text('syntax = "proto3"; message Part { int64 n = 1; }')
    importing = 'syntax = "proto3"; import "part.proto"; message Out { Part n = 1; }'
    (tmp_path / "out.proto").write_text(importing)
    out, _ = penstock("check", str(spec), expected=2).stdout.splitlines()
    assert out.endswith("it imports part.proto: a schema to write with must be one file, beside imports of google's")
    (tmp_path / "out.proto").write_text('syntax = "proto3"; // import "part.proto"\nmessage Out { int64 n = 1; }')
    assert penstock("check", str(spec)).stdout.splitlines()[-1] == "1 file, 0 mistakes"


def test_file_of_tests_is_checked_against_its_spec(tmp_path: Path) -> None:
    tests = tmp_path / "some.test.yaml"
    tests.write_text(f"spec: {EXAMPLE}\ncases:\n- {{name: a, given: {{payment: []}}, expect: {{}}}}\n")
    done = penstock("check", str(tests), expected=2)
    assert f"{tests}:3:21: cases[0].given.payment: the spec reads no topic 'payment'" in done.stdout


def test_key_that_a_format_a_sink_or_a_catalog_needs_is_missing(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text(
        """penstock: 1
name: a
kafka: {bootstrap: "localhost:1"}
source: {topics: {t: {value: {format: csv, delimiter: "ab"}, key: {format: csv}}, u: {value: {format: string}}}}
sinks:
  k: {from: t, kafka: {topic: o, key: {format: string}, value: {format: bytes}}}
  i: {from: u, iceberg: {table: x.y, catalog: {type: hadoop}}}
"""
    )
    *said, total = penstock("check", str(spec), expected=2).stdout.splitlines()
    assert [line.split(": ")[1] for line in said] == [
        "source.topics.t.value.schema",
        "source.topics.t.value.delimiter",
        "source.topics.t.key.schema",
        "sinks.k.kafka.key.column",
        "sinks.k.kafka.value.column",
        "sinks.i.iceberg.catalog.warehouse",
    ]
    assert total == "1 file, 6 mistakes"
