"""`penstock registry` as people and scripts run it, on a real registry."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from penstock.local.registry import LocalRegistry

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
SPEC = """\
name: orders
kafka: {{bootstrap: "localhost:9092"}}
{registry}
source: {{topics: {{orders: {{value: {{format: json, schema: {{fields: {{a: int}}}}}}}}}}}}
sinks: {{lake: {{from: orders, delta: {{path: lake}}}}}}
"""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
COUNTED = {**ORDER, "fields": [*ORDER["fields"], {"name": "count", "type": "int"}]}
OPTIONAL = {**ORDER, "fields": [*ORDER["fields"], {"name": "count", "type": "int", "default": 0}]}


@pytest.fixture
def spec(registry: LocalRegistry, tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(SPEC.format(registry=f'registry: {{url: "{registry.url}"}}'))
    return path


@pytest.fixture
def subject() -> str:
    return f"cli-{uuid.uuid4().hex[:8]}-value"


def run(*words: str | Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [PENSTOCK, "registry", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


def data(*words: str | Path) -> tuple[int, dict[str, Any]]:
    status, out, err = run(*words, "--json")
    assert err == ""
    return status, json.loads(out)


def written(directory: Path, name: str, schema: object) -> Path:
    path = directory / name
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return path


def test_schema_is_registered_listed_and_shown(spec: Path, subject: str, tmp_path: Path) -> None:
    file = written(tmp_path, "order.avsc", ORDER)
    status, made = data("register", spec, "--subject", subject, "--schema", file)
    assert (status, made["subject"], made["type"], made["last_version"]) == (0, subject, "AVRO", 1)
    newer = written(tmp_path, "newer.txt", OPTIONAL)
    status, out, err = run("register", spec, "--subject", subject, "--schema", newer, "--type", "avro")
    assert (status, err) == (0, "")
    second = int(out.removeprefix(f"{subject}: registered as version 2, id "))
    assert second != made["id"]
    again = data("register", spec, "--subject", subject, "--schema", file)[1]
    assert (again["id"], made["new"], again["new"]) == (made["id"], True, False)

    status, listed = data("ls", spec)
    assert status == 0
    assert {"subject": subject, "versions": [1, 2], "type": "AVRO", "id": second} in listed["subjects"]
    _, out, _ = run("ls", spec, "--subject", subject)
    assert [line.split() for line in out.splitlines()] == [
        [subject, "AVRO", "versions", "1", "id", str(made["id"])],
        [subject, "AVRO", "versions", "2", "id", str(second)],
    ]

    assert json.loads(run("show", spec, "--id", str(made["id"]))[1]) == ORDER
    assert json.loads(run("show", spec, "--subject", subject)[1]) == OPTIONAL
    _, shown = data("show", spec, "--subject", subject, "--version", "1")
    assert (shown["subject"], shown["version"], shown["id"]) == (subject, 1, made["id"])
    assert json.loads(shown["schema"]) == ORDER


def test_protobuf_is_registered_with_references_and_shown_with_them(spec: Path, subject: str, tmp_path: Path) -> None:
    money = written(tmp_path, "money.proto", 'syntax = "proto3";\nmessage Money { int64 units = 1; }\n')
    text = 'syntax = "proto3";\nimport "money.proto";\nmessage Bill { Money total = 1; }\n'
    bill = written(tmp_path, "bill.proto", text)
    used = f"money-{subject}"
    assert data("register", spec, "--subject", used, "--schema", money)[0] == 0
    for target in (used, f"{used}:1"):
        words = ["--subject", subject, "--schema", bill, "--reference", f"money.proto={target}"]
        assert data("register", spec, *words)[0] == 0
        assert data("check", spec, *words) == (
            0,
            {"subject": subject, "compatible": True, "mode": "BACKWARD", "reasons": []},
        )
    _, shown = data("show", spec, "--subject", subject)
    assert [(each["name"], each["schema"]) for each in shown["references"]] == [("money.proto", money.read_text())]
    _, out, _ = run("show", spec, "--subject", subject)
    assert out.startswith(text)
    assert "# money.proto (id " in out and "message Money" in out


def test_incompatible_schema_exits_1_from_check_and_is_refused_by_register(
    spec: Path, subject: str, tmp_path: Path
) -> None:
    file = written(tmp_path, "order.avsc", ORDER)
    run("register", spec, "--subject", subject, "--schema", file)
    counted = written(tmp_path, "counted.avsc", COUNTED)
    asked = ["--subject", subject, "--schema", counted]
    assert data("check", spec, *asked) == (
        1,
        {"subject": subject, "compatible": False, "mode": "BACKWARD", "reasons": ["count at /fields/1"]},
    )
    status, out, _ = run("check", spec, *asked)
    assert status == 1
    assert out == f"{counted} is NOT compatible with {subject} (BACKWARD)\n  count at /fields/1\n"

    status, _, err = run("register", spec, *asked)
    assert status == 2
    assert "error[schema-incompatible]" in err
    assert "count at /fields/1" in err
    assert f"next:  penstock registry mode {spec} --subject {subject}" in err

    assert run("mode", spec, "none", "--subject", subject) == (0, f"{subject}: NONE\n", "")
    assert data("check", spec, *asked)[0] == 0
    assert run("register", spec, *asked)[0] == 0


def test_mode_that_this_registry_cannot_keep_for_a_subject_is_refused_and_the_way_out_works(
    spec: Path, subject: str, registry: LocalRegistry
) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    versions = [Schema(descriptor(fields), "PROTOBUF") for fields in (["id"], ["id", "name"])]
    client.register_schema(subject, versions[0])
    status, _, err = run("mode", spec, "none", "--subject", subject)
    assert status == 2
    assert f"subject '{subject}' cannot have the mode NONE by itself" in err
    assert f"next:  penstock registry mode {spec} NONE" in err
    try:
        assert run("mode", spec, "none")[0] == 0
        assert run("mode", spec, "none", "--subject", subject)[0] == 0
        client.register_schema(subject, versions[1])
    finally:
        assert run("mode", spec, "backward")[0] == 0
    assert client.get_versions(subject) == [1, 2]


def descriptor(fields: list[str]) -> str:
    """A schema as confluent-kafka's serializer registers it."""
    file = FileDescriptorProto(name="order.proto", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, name in enumerate(fields, 1):
        message.field.add(name=name, number=number, type="TYPE_STRING", label="LABEL_OPTIONAL")
    return base64.b64encode(file.SerializeToString()).decode()


def test_mode_is_shown_and_set_for_one_subject_and_leaves_the_global_one(
    spec: Path, subject: str, tmp_path: Path
) -> None:
    run("register", spec, "--subject", subject, "--schema", written(tmp_path, "order.avsc", ORDER))
    assert run("mode", spec)[1] == "global: BACKWARD\n"
    assert data("mode", spec, "full_transitive", "--subject", subject) == (
        0,
        {"subject": subject, "mode": "FULL_TRANSITIVE"},
    )
    assert run("mode", spec, "--subject", subject)[1] == f"{subject}: FULL_TRANSITIVE\n"
    assert run("mode", spec)[1] == "global: BACKWARD\n"


def test_errors_have_a_code_a_cause_and_the_next_command(spec: Path, subject: str, tmp_path: Path) -> None:
    file = written(tmp_path, "order.avsc", ORDER)
    run("register", spec, "--subject", subject, "--schema", file)
    mistyped = subject.replace("cli", "cly")
    broken = written(tmp_path, "broken.avsc", "{nope")
    for words, status, code in (
        (["show", spec, "--subject", mistyped], 3, "subject-missing"),
        (["check", spec, "--subject", mistyped, "--schema", file], 3, "subject-missing"),
        (["mode", spec, "FULL", "--subject", mistyped], 3, "subject-missing"),
        (["show", spec, "--subject", subject, "--version", "7"], 3, "schema-missing"),
        (["show", spec, "--id", "2000000000"], 3, "schema-missing"),
        (["register", spec, "--subject", subject, "--schema", broken], 2, "schema-invalid"),
        (["register", spec, "--subject", subject, "--schema", tmp_path / "none.avsc"], 2, "bad-argument"),
        (["register", spec, "--subject", subject, "--schema", spec], 2, "bad-argument"),
        (["register", spec, "--subject", subject, "--schema", file, "--type", "xml"], 2, "bad-argument"),
        (["check", spec, "--subject", subject, "--schema", file, "--reference", "x"], 2, "bad-argument"),
        (["mode", spec, "SIDEWAYS"], 2, "bad-argument"),
        (["show", spec], 2, "bad-argument"),
        (["show", spec, "--id", "1", "--version", "1"], 2, "bad-argument"),
    ):
        found, said = data(*words)
        assert (found, said["error"]["code"]) == (status, code), (words, said)
        assert said["error"]["cause"] or code == "bad-argument", said
        if status == 3:
            assert said["error"]["next"].startswith(f"penstock registry ls {spec}"), said
    assert f"did you mean '{subject}'?" in run("show", spec, "--subject", mistyped)[2]


def test_spec_without_a_registry_and_a_registry_that_is_away_are_told_apart(tmp_path: Path) -> None:
    spec = tmp_path / "orders.yaml"
    spec.write_text(SPEC.format(registry=""))
    status, _, err = run("ls", spec)
    assert (status, "error[spec-invalid]: the spec names no schema registry" in err) == (2, True)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    block = f'registry: {{url: "http://127.0.0.1:{port}", timeout: 1s, token: "${{env:REGISTRY_TOKEN}}"}}'
    spec.write_text(SPEC.format(registry=block))
    status, _, err = run("ls", spec)
    assert (status, "error[reference-missing]" in err) == (2, True)
    status, _, err = run("ls", spec, REGISTRY_TOKEN="tok-987654321")
    assert (status, "error[registry-unreachable]" in err) == (3, True)
    assert "next:  penstock up --registry" in err
    assert "tok-987654321" not in err
