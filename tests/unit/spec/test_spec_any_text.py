"""Whatever a file holds is a pipeline or a list of mistakes, and what is written out reads back equal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from penstock.spec.duration import parse, text
from penstock.spec.load import load, read
from penstock.spec.model import Pipeline
from penstock.spec.secrets import shows_secret

EXAMPLE = (Path(__file__).parents[3] / "examples" / "payments" / "payments.yaml").read_text()

# Pieces that mean something to YAML or to the spec, so that random text gets past the first line.
PIECES = st.sampled_from(
    [
        *"{}[]:,-?*&!|>'\"%@`#~ \t\n",
        *(
            "\n  ",
            "\n    ",
            "- ",
            ": ",
            "---\n",
            "%YAML 1.1\n",
            "&a ",
            "*a",
            "!!int ",
            "<<",
            "\\u",
            '"\\ud800"',
        ),
        *("name", "penstock", "source", "topics", "value", "schema", "fields", "trigger", "every", "sinks"),
        *(
            "from",
            "delta",
            "path",
            "10s",
            "1",
            "-0",
            "0x1f",
            "1e999",
            ".nan",
            "null",
            "true",
            "no",
            "${env:X}",
        ),
        *("$X", "array<", "struct<a:", "decimal(", "é", "\ufeff", "\u2028", "😀"),
    ]
)


def check(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spec.yaml"
        file.write_bytes(content)
        pipeline, mistakes = read(file)
    assert isinstance(pipeline, Pipeline) or any(m.level == "error" for m in mistakes)
    for mistake in mistakes:
        assert mistake.line >= 1
        assert mistake.column >= 1
        assert mistake.line <= content.decode("utf-8-sig", "replace").count("\n") + content.count(b"\r") + 10
        assert str(mistake).startswith(str(file))


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_pipeline_or_mistakes(content: bytes) -> None:
    check(content)


@settings(max_examples=200)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_of_yaml_pieces_is_a_pipeline_or_mistakes(content: str) -> None:
    check(content.encode("utf-8"))


@settings(max_examples=200)
@given(st.integers(0, len(EXAMPLE)), st.integers(0, 30), st.lists(PIECES, max_size=4).map("".join))
def test_the_example_with_a_hole_is_a_pipeline_or_mistakes(at: int, gone: int, new: str) -> None:
    check((EXAMPLE[:at] + new + EXAMPLE[at + gone :]).encode("utf-8"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["fields", "type", "every", "topic", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=100)
@given(
    st.sampled_from(
        [
            ("name",),
            ("kafka",),
            ("kafka", "bootstrap"),
            ("kafka", "topics"),
            ("kafka", "topics", "payments", "config"),
            ("source",),
            ("source", "topics"),
            ("source", "topics", "payments"),
            ("source", "topics", "payments", "value"),
            ("source", "topics", "payments", "value", "schema"),
            ("contract",),
            ("transform",),
            ("sinks",),
            ("sinks", "lake"),
            ("dead_letters",),
            ("rate",),
            ("trigger",),
            ("spark",),
        ]
    ),
    json_values,
)
def test_any_value_at_any_key_is_a_pipeline_or_mistakes(path: tuple[str, ...], value: Any) -> None:
    data = YAML(typ="safe", pure=True).load(EXAMPLE)
    here = data
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    check(json.dumps(data).encode())


names = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
views = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
words = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="$"), min_size=1, max_size=12
).filter(lambda word: not shows_secret(word))
durations = st.integers(1, 10**9 - 1).map(lambda number: f"{number}ms")
scalars = st.sampled_from(["string", "int", "bigint", "double", "decimal(9,2)", "timestamp", "array<string>", "binary"])
fields: st.SearchStrategy[Any] = st.recursive(
    scalars | st.builds(lambda kind, required: {"type": kind, "required": required}, scalars, st.booleans()),
    lambda inner: (
        st.dictionaries(views, inner, min_size=1, max_size=3).map(lambda f: {"type": "struct", "fields": f})
        | inner.map(lambda item: {"type": "array", "items": item})
        | inner.map(lambda item: {"type": "map", "values": item})
    ),
    max_leaves=6,
)
plain = st.integers(-(2**40), 2**40) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | words


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    topics = draw(st.lists(views, min_size=1, max_size=3, unique=True))
    steps = draw(st.lists(views.filter(lambda view: view not in topics), max_size=2, unique=True))
    sinks = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    rules = draw(st.lists(names, max_size=2, unique=True))
    schemas = st.dictionaries(views, fields, min_size=1, max_size=3).map(lambda given: {"fields": given})
    settings_of = st.dictionaries(st.sampled_from(["a.b", "c"]), plain, max_size=2)
    return Pipeline.model_validate(
        {
            "name": draw(names),
            "kafka": {"bootstrap": draw(words), "topics": {topics[0]: {"config": draw(settings_of)}}},
            "source": {
                "topics": {topic: {"value": {"format": "json", "schema": draw(schemas)}} for topic in topics},
                "start": draw(st.sampled_from(["earliest", "latest"])),
            },
            "contract": {topics[0]: [{"name": name, "rule": draw(words)} for name in rules]},
            "transform": [{"view": view, "sql": draw(words)} for view in steps],
            "sinks": {
                name: {"from": draw(st.sampled_from(topics + steps)), "delta": {"path": f"lake/{name}"}}
                for name in sinks
            },
            "dead_letters": draw(st.sampled_from([{"delta": {"path": "dead"}}, {"kafka": {}}])),
            "rate": {"max_offsets": draw(st.integers(1, 10**9))},
            "trigger": draw(
                st.sampled_from(["continuous", "available-now"]) | durations.map(lambda every: {"every": every})
            ),
            "spark": {"conf": draw(settings_of)},
        }
    )


@settings(max_examples=40)
@given(pipelines())
def test_a_pipeline_written_out_loads_equal(pipeline: Pipeline) -> None:
    data = pipeline.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "spec.yaml"
        file.write_text(json.dumps(data, indent=2))
        assert load(file) == pipeline


@given(st.integers(1, 10**9 - 1))
def test_a_duration_is_written_as_it_reads(milliseconds: int) -> None:
    duration = parse(f"{milliseconds}ms")
    assert parse(text(duration)) == duration
