"""`penstock plan` on a real broker, engine and registry: it says what `run` would do, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.payments import Payments, good
from typer.testing import CliRunner

from penstock.checkpoint.home import Home
from penstock.cli.main import app, register
from penstock.kafka import admin
from penstock.local.registry import LocalRegistry
from penstock.registry.client.http import RegistrySettings
from penstock.registry.client.registry import SchemaRegistry

pytestmark = pytest.mark.usefixtures("spark")

Planned = Callable[..., dict[str, Any]]


@pytest.fixture
def planned(payments: Payments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """The document of `penstock plan --json`. Whatever a test asks for, nothing may be written."""
    register()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def ask(*words: str, expect: int = 0) -> dict[str, Any]:
        file = str(payments.file)
        before = everything(payments)
        done = CliRunner().invoke(app, ["plan", file, "--json", *words], catch_exceptions=False)
        assert done.exit_code == expect, done.output
        assert everything(payments) == before
        assert list(scratch.glob("penstock-plan-*")) == []
        found: dict[str, Any] = json.loads(done.stdout)
        assert found["could_start"] is (expect == 0)
        return found

    return ask


def everything(payments: Payments) -> object:
    """Topics with their ids, groups, files with their times, subjects: what a plan could have changed."""
    files = {str(f): (f.stat().st_mtime_ns, f.stat().st_size) for f in payments.directory.rglob("*") if f.is_file()}
    directories = {str(f) for f in payments.directory.rglob("*") if f.is_dir() and "scratch" not in f.parts}
    url = payments.spec.get("registry", {}).get("url")
    subjects = {}
    if url:
        with SchemaRegistry(RegistrySettings(url)) as registry:
            subjects = {subject: registry.versions(subject) for subject in registry.subjects()}
    return admin.topics(payments.config), admin.groups(payments.config), files, directories, subjects


def codes(found: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in found["problems"]]


def route(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["routes"] if each["name"] == name)


def to_kafka(payments: Payments, name: str, from_: str = "settled", **kafka: Any) -> None:
    topic = kafka.setdefault("topic", f"{payments.topic}-out")
    payments.create(topic)
    payments.spec["sinks"][name] = {"from": from_, "kafka": kafka}


def test_healthy_pipeline_before_its_first_run_and_after_it(payments: Payments, planned: Planned) -> None:
    payments.send(*(good(n) for n in range(30)))
    before = planned()
    assert list(before) == [
        "pipeline", "could_start", "checkpoint", "running", "path", "routes", "schemas", "engine", "topics", "start",
        "changes", "warnings", "unchecked", "problems",
    ]  # fmt: skip
    assert before["path"]["topics"] == [
        {"topic": payments.topic, "partitions": 3, "format": "json", "key": None, "view": "payments"}
    ]
    assert [rule["name"] for rule in before["path"]["rules"]] == ["positive"]
    assert [step["view"] for step in before["path"]["steps"]] == ["settled"]
    assert route(before, "lake")["target"] == {"kind": "delta", "to": "lake"}
    assert route(before, "lake")["guarantee"].startswith("exactly-once: one Delta commit per batch")
    assert route(before, "dead letters")["guarantee"].startswith("exactly-once: one Kafka transaction per batch")
    assert before["engine"]["java"] in (17, 21)
    assert before["engine"]["groups"] == ["core", "delta"]
    assert before["engine"]["jars"] == before["engine"]["downloaded"] > 5
    start = before["start"]
    assert (start["query"], start["committed"], start["start"], start["lag"]) == (None, 0, "earliest", 30)
    assert [(p["partition"], p["next"]) for p in start["partitions"]] == [(0, 0), (1, 0), (2, 0)]
    assert (before["warnings"], before["unchecked"], before["problems"], before["running"]) == ([], [], [], None)

    payments.run()
    payments.send(good(30), good(31))
    payments.spec["source"]["start"] = "latest"
    with Home.of(payments.pipeline).held():  # as while it runs
        after = planned()
    start = after["start"]
    assert start["query"] == json.loads((payments.home / "spark" / "metadata").read_text())["id"]
    assert start["committed"] >= 1
    assert (start["lag"], sum(p["next"] for p in start["partitions"]), start["replay"]) == (2, 30, None)
    assert [text for text in after["warnings"] if "`start: latest` has no effect" in text]
    assert after["running"] == os.getpid()


def test_start_positions_are_offsets_of_every_partition(payments: Payments, planned: Planned) -> None:
    payments.send(*(good(n) for n in range(30)))
    payments.spec["source"]["start"] = "latest"
    assert planned()["start"]["lag"] == 0
    payments.spec["source"]["start"] = {"timestamp": "2026-01-01T00:00:00Z", "no_such_record": "latest"}
    at_a_time = planned()["start"]
    assert (at_a_time["lag"], {p["next"] for p in at_a_time["partitions"] if p["end"]}) == (30, {0})
    payments.spec["source"]["start"] = {"timestamp": "2100-01-01T00:00:00Z"}
    assert codes(planned(expect=4)) == ["start-not-there"]
    payments.spec["source"]["start"] = {"offsets": {payments.topic: {0: 500}}}
    beyond = planned(expect=4)
    assert codes(beyond) == ["start-not-there"]
    assert f"{payments.topic}-0: offset 500 is wanted, Kafka holds 0 to " in beyond["problems"][0]["cause"]


def test_missing_topics_and_topics_that_differ_are_named_with_their_settings(
    payments: Payments, planned: Planned
) -> None:
    to_kafka(payments, "out", topic=f"{payments.topic}-there")
    payments.spec["sinks"]["out"]["kafka"]["topic"] = f"{payments.topic}-away"
    payments.spec["dead_letters"] = {"kafka": {"topic": "{topic}.dead"}}
    payments.spec["kafka"]["topics"] = {
        payments.topic: {"partitions": 4, "config": {"retention.ms": 1234, "cleanup.policy": "delete"}},
        f"{payments.topic}-away": {"partitions": 2},
    }
    found = planned(expect=3)
    assert [(t["topic"], t["partitions"]) for t in found["topics"]["missing"]] == [
        (f"{payments.topic}-away", 2),
        (f"{payments.topic}.dead", 1),
    ]
    assert [(d["setting"], d["found"], d["spec"], d["fate"]) for d in found["topics"]["differences"]] == [
        ("partitions", "3", "4", "change"),
        ("retention.ms", "604800000", "1234", "force"),
    ]
    assert codes(found) == ["topic-missing", "topic-missing"]
    assert {p["next"] for p in found["problems"]} == {f"penstock apply {payments.file}"}
    payments.spec["source"]["topics"][f"{payments.topic}-gone"] = {"value": {"format": "string"}}
    missing = planned(expect=3)
    assert f"{payments.topic}-gone" in missing["problems"][0]["what"]
    assert [t["partitions"] for t in missing["path"]["topics"]] == [3, 0]
    assert len(missing["start"]["partitions"]) == 3  # of the topic that is there


def test_kafka_sinks_say_how_they_write_and_why_not_otherwise(payments: Payments, planned: Planned) -> None:
    payments.spec["transform"].append(
        {"view": "totals", "sql": "select account, sum(amount) as n from settled group by 1"}
    )
    to_kafka(payments, "plain")
    to_kafka(payments, "grouped", from_="totals")
    to_kafka(payments, "asked", guarantee="exactly-once-by-batch")
    to_kafka(payments, "loose", guarantee="at-least-once")
    found = planned()
    assert [(r["name"], r["mode"], r["why"]) for r in found["routes"]] == [
        ("lake", None, None),
        (
            "plain",
            "exactly-once-by-partition",
            "the rows of one input partition stay in one task, and say where they came from",
        ),
        (
            "grouped",
            "exactly-once-by-batch",
            "its steps join, group, sort or limit rows, or look for them in a subquery",
        ),
        ("asked", "exactly-once-by-batch", "the spec asks for it"),
        ("loose", "at-least-once", "the spec asks for it"),
        ("dead letters", None, None),
    ]
    assert route(found, "grouped")["guarantee"].startswith("exactly-once by batch: one transaction per batch")
    payments.spec["source"]["min_partitions"] = 8
    assert route(planned(), "plain")["why"].startswith("`min_partitions` and `max_records_per_partition` split")
    payments.spec["sinks"]["plain"]["kafka"]["guarantee"] = "exactly-once-by-partition"
    refused = planned(expect=2)
    assert codes(refused) == ["spec-invalid"]
    assert refused["problems"][0]["what"] == "sink 'plain' cannot write by partition"
    assert "min_partitions" in refused["problems"][0]["cause"]
    assert (route(refused, "plain")["guarantee"], route(refused, "grouped")["mode"]) == (None, "exactly-once-by-batch")


def test_every_mistake_that_needs_the_engine_is_named_and_no_consequence_of_one(
    payments: Payments, planned: Planned
) -> None:
    payments.spec["contract"]["payments"] += [
        {"name": "typo", "rule": "amuont > 0"},
        {"name": "fine", "rule": "currency is not null"},
        {"name": "other", "rule": "nothing.of.it = 1"},
    ]
    payments.spec["transform"] += [
        {"view": "broken", "sql": "select no_such_column from settled"},
        {"view": "after", "sql": "select * from broken"},
        {"view": "sound", "sql": "select account from settled"},
    ]
    payments.spec["sinks"] |= {
        "lake": {"from": "settled", "delta": {"path": "lake", "partition_by": ["dya"]}},
        "none": {"from": "after", "delta": {"path": "none", "partition_by": ["x"]}},
        "picky": {"from": "sound", "where": "no_such = 1", "delta": {"path": "picky"}},
        "good": {"from": "sound", "delta": {"path": "good", "partition_by": ["account"]}},
    }
    found = planned(expect=5)
    assert [(p["code"], p["what"].split(" is not ")[0].split(" names ")[0]) for p in found["problems"]] == [
        ("step-failed", "rule 'typo' of contract 'payments'"),
        ("step-failed", "rule 'other' of contract 'payments'"),
        ("step-failed", "step 'broken'"),
        ("spec-invalid", "`partition_by` of sink 'lake'"),
        ("step-failed", "`where` of sink 'picky'"),
    ]
    assert all(problem["cause"] and problem["next"] for problem in found["problems"])


def test_tables_and_checkpoints_that_do_not_belong_together_are_problems_and_nothing_is_set_aside(
    payments: Payments, planned: Planned
) -> None:
    payments.send(good(1))
    payments.run()
    payments.spec["checkpoint"] = "new"
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.nowhere"}}
    other = planned(expect=4)
    assert codes(other) == ["table-of-another-query", "topic-missing"]
    assert "--accept table-of-another-query" in other["problems"][0]["next"]
    assert codes(planned("--accept", "table-of-another-query", expect=3)) == ["topic-missing"]

    del payments.spec["checkpoint"], payments.spec["dead_letters"]
    shutil.move(payments.home / "ledger", payments.directory / "kept")
    gone = planned(expect=4)
    assert codes(gone) == ["ledger-missing"]
    assert gone["unchecked"] == ["what sinks hold, positions: checkpoint and ledger do not agree"]
    shutil.move(payments.directory / "kept", payments.home / "ledger")
    shutil.rmtree(payments.home / "spark")
    assert codes(planned(expect=4)) == ["checkpoint-missing"]
    anew = planned("--accept", "checkpoint-missing", "--accept", "table-of-another-query")
    assert "a new query begins" in anew["warnings"][0]
    assert (anew["start"]["query"], anew["start"]["lag"]) == (None, 1)


def test_batch_that_was_not_committed_and_what_changed_since_the_ledger_are_shown(
    payments: Payments, planned: Planned
) -> None:
    extra = f"{payments.topic}-b"
    for topic in (extra, f"{extra}.DLT"):
        payments.create(topic)
    payments.spec["source"]["topics"][extra] = {"view": "other", "value": {"format": "string"}}
    payments.spec["sinks"]["texts"] = {"from": "other", "delta": {"path": "texts"}}
    payments.send(good(1))
    payments.run()
    newest = max(int(f.name) for f in (payments.home / "spark" / "commits").iterdir() if f.name.isdigit())
    (payments.home / "spark" / "commits" / str(newest)).unlink()
    again = planned()["start"]
    assert (again["replay"], again["committed"], again["lag"]) == (newest, newest, 1)
    assert [(r["topic"], r["end"] - r["start"]) for r in again["replayed"]] == [(payments.topic, 1)]

    del payments.spec["source"]["topics"][extra], payments.spec["sinks"]["texts"]
    payments.spec["sinks"]["copy"] = {"from": "settled", "delta": {"path": "copy"}}
    changed = planned(expect=4)
    assert [(c["what"], c["name"]) for c in changed["changes"]] == [
        ("topic-removed", extra),
        ("sink-added", "copy"),
        ("sink-removed", "texts"),
    ]
    assert codes(changed) == ["offsets-vanished"]  # Spark takes the removed topic for lost
    payments.spec["source"]["on_data_loss"] = "continue"
    assert extra in planned()["warnings"][0]


def test_files_that_a_running_batch_stages_for_a_parquet_sink_are_left_alone(
    payments: Payments, planned: Planned
) -> None:
    payments.spec["sinks"] = {"files": {"from": "settled", "parquet": {"path": "files"}}}
    payments.send(good(1))
    payments.run()
    query = json.loads((payments.home / "spark" / "metadata").read_text())["id"].rpartition("-")[2]
    staged = payments.directory / ".files.penstock" / f"payments-{query}" / "1-now"
    staged.mkdir(parents=True)
    (staged / "part-0.parquet").write_bytes(b"half")
    assert planned()["unchecked"] == ["what sink 'files' holds: its directory is looked at by the run"]


def test_schema_that_a_run_would_register_is_compared_and_not_registered(
    payments: Payments, registry: LocalRegistry, planned: Planned
) -> None:
    subject = f"{payments.topic}-out-value"
    payments.spec["registry"] = {"url": registry.url}
    to_kafka(payments, "out", value={"format": "avro", "register": True, "columns": ["account", "status"]})
    assert planned()["schemas"] == [{"subject": subject, "kind": "AVRO", "id": None}]
    payments.send(good(1))
    payments.run()
    with SchemaRegistry(RegistrySettings(registry.url)) as client:
        number = client.latest(subject).schema.id
    assert planned()["schemas"] == [{"subject": subject, "kind": "AVRO", "id": number}]
    payments.spec["sinks"]["out"]["kafka"]["value"]["columns"] = ["account", "status", "currency"]
    assert planned()["schemas"] == [{"subject": subject, "kind": "AVRO", "id": None}]  # another version, and allowed
    payments.spec["transform"].append({"view": "odd", "sql": "select *, 1 as status2, _kafka.offset as o from settled"})
    payments.spec["transform"].append({"view": "odder", "sql": "select account, o as status from odd"})
    payments.spec["sinks"]["out"]["from"] = "odder"
    payments.spec["sinks"]["out"]["kafka"]["value"]["columns"] = ["account", "status"]
    refused = planned(expect=2)
    assert codes(refused) == ["schema-incompatible"]
    assert subject in refused["problems"][0]["what"]
    payments.spec["source"]["topics"][payments.topic]["value"] = {"format": "avro"}
    payments.spec["dead_letters"] = {"kafka": {"topic": f"{payments.topic}.nowhere"}}
    assert codes(planned(expect=3)) == ["subject-missing", "topic-missing"]


def test_every_subject_that_is_missing_is_named_and_a_registry_that_is_away_is_said(
    payments: Payments, registry: LocalRegistry, planned: Planned
) -> None:
    for topic in ("-b", "-b.DLT"):
        payments.create(f"{payments.topic}{topic}")
    payments.spec["registry"] = {"url": registry.url, "timeout": "500ms"}
    topics = payments.spec["source"]["topics"]
    payments.spec["contract"], payments.spec["transform"] = {}, []
    payments.spec["sinks"]["lake"] = {"from": "payments", "delta": {"path": "lake"}}
    topics[payments.topic]["value"] = {"format": "avro"}
    topics[f"{payments.topic}-b"] = {"value": {"format": "avro"}, "view": "b"}
    missing = [problem["what"] for problem in planned(expect=3)["problems"] if problem["code"] == "subject-missing"]
    assert [f"{payments.topic}-value" in missing[0], f"{payments.topic}-b-value" in missing[1]] == [True, True]
    with SchemaRegistry(RegistrySettings(registry.url)) as client:
        record = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}'
        for topic in (payments.topic, f"{payments.topic}-b"):
            client.register(f"{topic}-value", "AVRO", record)
    payments.run()  # which writes the schemas down
    registry.pause()
    try:
        done = CliRunner().invoke(app, ["plan", str(payments.file), "--json"], catch_exceptions=False)
    finally:
        registry.resume()
    found = json.loads(done.stdout)
    assert found["could_start"], found
    assert any("the schema registry cannot be reached" in each for each in found["unchecked"]), found["unchecked"]


def test_command_in_a_process_of_its_own_prints_a_page_and_leaves_no_file(payments: Payments) -> None:
    payments.send(good(1))
    file, before = str(payments.file), everything(payments)
    done = payments.cli("plan", file)
    assert everything(payments) == before
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "could start"
    assert "  no checkpoint yet: begins at `earliest`; lag 1 offset" in done.stdout.splitlines()
    assert max(len(line) for line in done.stdout.splitlines() if str(payments.directory) not in line) <= 80

    (payments.directory / "functions.py").write_text("def odd(rows):\n    return rows.select('nowhere', '_kafka')\n")
    payments.spec["contract"]["payments"].append({"name": "odd", "rule": "amount + 1"})
    payments.spec["transform"].append({"view": "odd", "python": {"function": "functions:odd", "from": "payments"}})
    payments.spec["sinks"]["odd"] = {"from": "odd", "delta": {"path": "odd"}}
    wrong = payments.cli("plan", str(payments.file), expect=5)
    assert wrong.stdout.splitlines()[-1] == "cannot start: 2 problems"
    assert wrong.stderr == ""  # PySpark would log a Java stack for each
