"""The `registry:` block: what it takes, what it refuses, and that its references are resolved late."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from penstock.errors import ReferenceMissing, SpecInvalid
from penstock.registry.client.registry import RegistrySettings, settings_of
from penstock.spec import reference
from penstock.spec.load import load, read
from penstock.spec.registry import Registry

SPEC = """\
name: orders
kafka: {bootstrap: "b:9092"}
source: {topics: {orders: {value: {format: json, schema: {fields: {a: int}}}}}}
sinks: {lake: {from: orders, delta: {path: lake}}}
"""
Write = Callable[..., Path]
JSON_SCHEMA = {"$defs": reference.json_schema()["$defs"], "$ref": "#/$defs/Registry"}


def with_block(write: Write, block: str) -> Path:
    return write(SPEC + f"registry: {block}\n")


def test_references_are_resolved_when_the_settings_are_made_and_not_before(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("t0p\n", "secret.txt")
    block = '{url: "${env:R_URL}/", user: me, password: "${file:secret.txt}", timeout: 2500ms}'
    pipeline = load(with_block(write, block))
    assert "t0p" not in repr(pipeline)
    with pytest.raises(ReferenceMissing):
        settings_of(pipeline)
    monkeypatch.setenv("R_URL", "https://host:8081")
    made = settings_of(pipeline)
    assert made == RegistrySettings("https://host:8081", user="me", password="t0p", timeout=2.5)
    assert "t0p" not in repr(made)


def test_token_and_default_time_out(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R_TOKEN", "abc")
    made = settings_of(load(with_block(write, '{url: "http://h", token: "${env:R_TOKEN}"}')))
    assert made == RegistrySettings("http://h", token="abc", timeout=10)


def test_spec_without_a_registry_says_so_when_one_is_needed(write: Write) -> None:
    with pytest.raises(SpecInvalid) as raised:
        settings_of(load(write(SPEC)))
    assert "registry" in (raised.value.next_command or "")


@pytest.mark.parametrize("key", ["password", "token"])
@pytest.mark.parametrize("literal", ["hunter2", "12345", "$hunter2"])
def test_literal_secret_is_a_mistake_and_is_not_repeated(write: Write, key: str, literal: str) -> None:
    user = "user: me, " if key == "password" else ""
    pipeline, mistakes = read(with_block(write, f"{{url: http://h, {user}{key}: {literal}}}"))
    assert pipeline is None
    assert "literal-secret" in {mistake.code for mistake in mistakes}
    assert {mistake.path for mistake in mistakes} == {f"registry.{key}"}
    if literal != "$hunter2":  # a name of a variable, as shells write it: the hint has it
        assert literal not in " ".join(map(str, mistakes))


def test_login_inside_the_url_is_a_mistake(write: Write) -> None:
    _, mistakes = read(with_block(write, '{url: "http://me:hunter2@h"}'))
    assert [mistake.code for mistake in mistakes] == ["literal-secret"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "missing-key"),
    ({"url": ""}, "empty"),
    ({"url": "http://h", "user": "me"}, "one-kind"),
    ({"url": "http://h", "password": "${env:P}"}, "one-kind"),
    ({"url": "http://h", "user": "me", "password": "${env:P}", "token": "${env:T}"}, "one-kind"),
    ({"url": "http://h", "timeout": 10}, "bad-duration"),
    ({"url": "http://h", "timeouts": "10s"}, "unknown-key"),
]


@pytest.mark.parametrize(("block", "code"), REFUSED, ids=[str(sorted(block)) + code for block, code in REFUSED])
def test_check_python_and_the_json_schema_refuse_the_same(write: Write, block: dict[str, Any], code: str) -> None:
    pipeline, mistakes = read(with_block(write, json.dumps(block)))
    assert pipeline is None
    errors = {mistake.code for mistake in mistakes if mistake.level == "error"}
    assert errors == {code}, mistakes
    with pytest.raises(ValidationError):
        Registry.model_validate(block)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(block, JSON_SCHEMA)


TAKEN: list[dict[str, Any]] = [
    {"url": "http://h"},
    {"url": "http://h", "user": "me", "password": "${env:P}", "timeout": "1m"},
    {"url": "http://h", "token": "${env:T}"},
]


@pytest.mark.parametrize("block", TAKEN, ids=lambda block: str(sorted(block)))
def test_check_and_the_json_schema_take_the_same(write: Write, block: dict[str, Any]) -> None:
    pipeline, mistakes = read(with_block(write, json.dumps(block)))
    assert pipeline is not None, mistakes
    assert pipeline.registry == Registry.model_validate(block)
    jsonschema.validate(block, JSON_SCHEMA)
