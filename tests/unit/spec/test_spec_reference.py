"""The JSON Schema and the reference page say what the model says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from penstock.spec import reference, shape
from penstock.spec.load import load, read

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "payments" / "payments.yaml"
SCHEMA = reference.json_schema()


def accepts(schema: dict[str, Any], value: Any) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


def plain(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_json_schema_names_its_dialect_and_its_title() -> None:
    assert SCHEMA["$schema"].startswith("https://json-schema.org/")
    assert SCHEMA["title"] == "Penstock pipeline"


@pytest.mark.parametrize("text", [EXAMPLE.read_text(), reference.EXAMPLE], ids=["example", "reference"])
def test_json_schema_accepts_a_good_spec(text: str) -> None:
    assert accepts(SCHEMA, plain(text))


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(sinkz={}),
        lambda spec: spec.pop("name"),
        lambda spec: spec["source"].update(start="middle"),
        lambda spec: spec["source"]["topics"]["payments"]["value"].update(schema_="x"),
        lambda spec: spec["source"]["topics"]["payments"]["value"].update(schema=["x"]),
        lambda spec: spec["source"]["topics"]["payments"]["value"].update(schema={"fields": {"a": 1}}),
        lambda spec: spec["rate"].update(max_offsets="50000"),
        lambda spec: spec.update(trigger="continous"),
        lambda spec: spec.update(trigger={"every": 10}),
        lambda spec: spec.update(dead_letters={}),
        lambda spec: spec["sinks"]["lake"].update(from_="settled"),
        lambda spec: spec["kafka"]["topics"]["payments"].update(partitions=0),
    ],
)
def test_json_schema_and_check_refuse_the_same(change: Change, tmp_path: Path) -> None:
    spec = plain(EXAMPLE.read_text())
    change(spec)
    assert not accepts(SCHEMA, spec)
    file = tmp_path / "spec.yaml"
    YAML(typ="safe", pure=True).dump(spec, file)
    assert read(file)[0] is None


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(trigger={"every": "10s"}),
        lambda spec: spec.update(trigger="available-now"),
        lambda spec: spec["source"]["topics"]["payments"]["value"].update(schema={"fields": {"a": "int"}}),
        lambda spec: spec["source"]["topics"]["payments"]["value"].update(
            schema={"fields": {"a": {"type": "struct", "fields": {"b": "array<int>", "c": {"type": "date"}}}}}
        ),
        lambda spec: spec["kafka"]["topics"]["payments"].update(config={"a": 0.5, "b": True, "c": "x", "d": 1}),
    ],
)
def test_json_schema_and_check_take_every_short_form(change: Change, tmp_path: Path) -> None:
    spec = plain(EXAMPLE.read_text())
    change(spec)
    assert accepts(SCHEMA, spec)
    file = tmp_path / "spec.yaml"
    YAML(typ="safe", pure=True).dump(spec, file)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "payment.yaml").write_text("fields: {amount: double}")
    assert load(file).name == "payments"


def test_reference_page_in_docs_is_current() -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    assert page == reference.markdown(), "run: penstock schema --reference > docs/reference.md"


def test_reference_page_has_every_part_and_every_key_with_a_description() -> None:
    page = reference.markdown()
    for part in reference.parts():
        assert f"\n## {part.__name__}\n" in page
        assert part.__doc__
        for name, field in part.model_fields.items():
            assert field.description, f"{part.__name__}.{name} has no description"
        for key in shape.keys(part):
            assert f"\n| `{key}` | " in page


def test_reference_page_begins_with_a_spec_that_loads(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(reference.EXAMPLE)
    assert load(file).name == "payments"
