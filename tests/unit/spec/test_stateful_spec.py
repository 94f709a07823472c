"""Stateful steps in a spec: what `check` refuses, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from penstock.spec.load import read
from penstock.spec.steps import Step

WINDOW = {
    "from": "events",
    "time": "at",
    "late_after": "10m",
    "size": "1m",
    "by": ["key"],
    "columns": {"n": "count(*)"},
}
FIRST = {"from": "events", "time": "at", "within": "10m", "key": ["key"]}
JOIN = {
    "left": {"from": "events", "time": "at", "late_after": "1m"},
    "right": {"from": "others", "time": "at", "late_after": "1m"},
    "on": ["key"],
    "within": "1h",
    "columns": {"key": "events.key"},
}
UPSERT = {"delta": {"path": "lake", "upsert": {"key": ["window_start", "key"]}}}


def mistakes(tmp_path: Path, steps: list[dict[str, Any]], **sinks: Any) -> list[tuple[str, str]]:
    """Path and message of every mistake."""
    value = {"format": "json", "schema": {"fields": {"key": "string", "at": "timestamp"}}}
    spec = {
        "name": "stateful",
        "kafka": {"bootstrap": "localhost:9092"},
        "source": {"topics": {"events": {"value": value}, "others": {"value": value}}},
        "transform": steps,
        "sinks": sinks or {"lake": {"from": steps[-1]["view"], "delta": {"path": "lake"}}},
    }
    file = tmp_path / "spec.yaml"
    YAML().dump(spec, file)
    _, found = read(file)
    assert all(mistake.line > 1 for mistake in found)
    return [(mistake.path, mistake.message) for mistake in found]


@pytest.mark.parametrize(
    "steps",
    [
        [{"view": "w", "window": WINDOW}],
        [{"view": "w", "window": {**WINDOW, "slide": "30s"}}],
        [{"view": "w", "window": {**WINDOW, "size": ..., "session": "5m"}}],
        [{"view": "d", "deduplicate": FIRST}, {"view": "w", "window": {**WINDOW, "from": "d", "late_after": ...}}],
        [{"view": "j", "join": JOIN}],
        [{"view": "w", "window": WINDOW}, {"view": "large", "sql": "select * from w where n > 10"}],
    ],
)
def test_good_steps(tmp_path: Path, steps: list[dict[str, Any]]) -> None:
    assert mistakes(tmp_path, [cleaned(step) for step in steps]) == []


def cleaned(step: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {k: v for k, v in value.items() if v is not ...} if isinstance(value, dict) else value
        for name, value in step.items()
    }


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"session": "5m"}, "exactly one of: size, session"),
        ({"slide": "2m"}, "rows would be left out"),
        ({"size": None, "session": "5m", "emit": "update"}, "`emit: append` only"),
        ({"columns": {"window_end": "max(at)"}}, "is a column of the window already"),
    ],
)
def test_window_that_is_none(change: dict[str, Any], text: str) -> None:
    window = {name: value for name, value in {**WINDOW, **change}.items() if value is not None}
    with pytest.raises(ValidationError, match=text):
        Step.model_validate({"view": "w", "window": window})


def test_first_step_says_how_late_records_may_be_and_others_do_not(tmp_path: Path) -> None:
    without = {name: value for name, value in WINDOW.items() if name != "late_after"}
    [(path, text)] = mistakes(tmp_path, [{"view": "w", "window": without}])
    assert path == "transform[0].window"
    assert "lacks `late_after`" in text
    chain = [{"view": "d", "deduplicate": FIRST}, {"view": "w", "window": {**WINDOW, "from": "d"}}]
    [(path, text)] = mistakes(tmp_path, chain)
    assert path == "transform[1].window.late_after"
    assert "the watermark is that of 'd'" in text


def test_two_chains_in_one_pipeline_are_refused(tmp_path: Path) -> None:
    steps = [{"view": "w", "window": WINDOW}, {"view": "d", "deduplicate": {**FIRST, "from": "others"}}]
    [(path, text)] = [found for found in mistakes(tmp_path, steps) if "chain" in found[1]]
    assert path == "transform[1].deduplicate"
    assert "make two pipelines" in text


def test_sink_over_a_view_inside_the_stream_is_refused(tmp_path: Path) -> None:
    window = {"view": "w", "window": {**WINDOW, "from": "d", "late_after": ...}}
    steps = [{"view": "d", "deduplicate": FIRST}, cleaned(window)]
    sinks = {"one": {"from": "w", "delta": {"path": "a"}}, "two": {"from": "d", "delta": {"path": "b"}}}
    [(path, text)] = mistakes(tmp_path, steps, **sinks)
    assert path == "sinks.two.from"
    assert "only 'w'" in text


def test_late_rows_are_a_view_of_the_first_step(tmp_path: Path) -> None:
    steps = [{"view": "w", "window": WINDOW}]
    sink = {"from": "w", "delta": {"path": "a"}}
    assert mistakes(tmp_path, steps, one=sink, two={"from": "w_late", "delta": {"path": "b"}}) == []
    [(path, text)] = mistakes(tmp_path, steps, one=sink, two={"from": "w_lat", "delta": {"path": "b"}})
    assert path == "sinks.two.from"
    assert text == "no view 'w_lat'"
    twice = [*steps, {"view": "w_late", "sql": "select 1"}]
    assert "which is there" in dict(mistakes(tmp_path, twice, one=sink))["transform[0].view"]


@pytest.mark.parametrize(
    ("emit", "sink", "text"),
    [
        ("update", {"delta": {"path": "lake"}}, "the sink appends"),
        ("update", {"parquet": {"path": "lake"}}, "the sink appends"),
        ("update", {"kafka": {"topic": "out"}}, "the sink appends"),
        ("update", {"delta": {"path": "lake", "upsert": {"key": ["key"]}}}, "lacks window_start"),
        ("update", {"delta": {"path": "lake", "upsert": {"key": ["window_start"]}}}, "lacks key"),
        ("update", {"delta": {"path": "x", "upsert": {"key": ["window_end", "key", "n"]}}}, "changes from row to row"),
        ("update", {"memory": {"table": "t"}}, "use `emit: complete`"),
        ("complete", {"delta": {"path": "lake"}}, "the sink appends"),
        ("update", UPSERT, None),
        ("update", {"console": {}}, None),
        ("complete", {"memory": {"table": "t"}}, None),
        ("complete", UPSERT, None),
    ],
)
def test_output_mode_against_the_sink(tmp_path: Path, emit: str, sink: dict[str, Any], text: str | None) -> None:
    found = mistakes(tmp_path, [{"view": "w", "window": {**WINDOW, "emit": emit}}], lake={"from": "w", **sink})
    if text is None:
        assert found == []
    else:
        [(path, said)] = found
        assert path == "sinks.lake.from"
        assert text in said


def test_windows_that_follow_each_other_are_final(tmp_path: Path) -> None:
    hours = {"from": "w", "time": "window_time", "size": "1h", "columns": {"n": "sum(n)"}}
    steps = [{"view": "w", "window": {**WINDOW, "emit": "update"}}, {"view": "hours", "window": hours}]
    [(path, text)] = mistakes(tmp_path, steps)
    assert path == "transform[0].window.emit"
    assert "rows must be final" in text
