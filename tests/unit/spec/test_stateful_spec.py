"""Stateful steps in a spec: what `check` refuses, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from ruamel.yaml import YAML

from penstock.spec.load import read
from penstock.spec.stateful import bounds
from penstock.spec.stateful_check import feeding, late_view_names
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
STATE = {"from": "events", "key": ["key"], "fields": {"key": "string"}, "processor": "quiet:Quiet"}
UPSERT = {"delta": {"path": "lake", "upsert": {"key": ["window_start", "key"]}}}


def mistakes(
    tmp_path: Path,
    steps: list[dict[str, Any]],
    trigger: Any = "continuous",
    more: dict[str, Any] | None = None,
    at: Any = "timestamp",
    **sinks: Any,
) -> list[tuple[str, str]]:
    """Path and message of every mistake."""
    value = {"format": "json", "schema": {"fields": {"key": "string", "at": at}}}
    spec = {
        "name": "stateful",
        "kafka": {"bootstrap": "localhost:9092"},
        "source": {"topics": {"events": {"value": value}, "others": {"value": value}}},
        "transform": steps,
        "trigger": trigger,
        "sinks": sinks or {"lake": {"from": steps[-1]["view"], "delta": {"path": "lake"}}},
        **(more or {}),
    }
    file = tmp_path / "spec.yaml"
    YAML().dump(spec, file)
    _, found = read(file)
    assert all(mistake.line > 1 for mistake in found)
    return [(mistake.path, "; ".join(filter(None, (mistake.message, mistake.hint)))) for mistake in found]


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


@pytest.mark.parametrize(
    ("step", "path", "text"),
    [
        ({"deduplicate": {**FIRST, "key": ["key", "kex"]}}, "deduplicate.key[1]", "view 'events' has no field 'kex'"),
        ({"window": {**WINDOW, "time": "key"}}, "window.time", "'key' is string, and not a timestamp; allowed: at"),
        ({"window": {**WINDOW, "by": ["zip"]}}, "window.by[0]", "view 'events' has no field 'zip'; allowed: key, at"),
        ({"window": {**WINDOW, "time": "then"}}, "window.time", "view 'events' has no field 'then'; allowed: at"),
        ({"state": {**STATE, "key": ["kex"]}}, "state.key[0]", "view 'events' has no field 'kex'; did you mean 'key'?"),
        ({"join": {**JOIN, "right": {**JOIN["right"], "time": "t"}}}, "join.right.time", "'others' has no field 't'"),
    ],
)  # fmt: skip
def test_fields_that_the_source_view_of_a_step_does_not_have(
    tmp_path: Path, step: dict[str, Any], path: str, text: str
) -> None:
    (tmp_path / "quiet.py").write_text("class Quiet: ...")
    [(found, said)] = mistakes(tmp_path, [{"view": "made", **step}])
    assert found == f"transform[0].{path}"
    assert text in said


@pytest.mark.parametrize("epoch", ["s", "ms", "us"])
@pytest.mark.parametrize(
    "step",
    [
        {"window": WINDOW},
        {"deduplicate": FIRST},
        {"join": JOIN},
        {"state": {**STATE, "time": "at", "late_after": "1m"}},
    ],
    ids=["window", "deduplicate", "join", "state"],
)
def test_timestamp_that_is_written_as_a_number_is_an_event_time(
    tmp_path: Path, step: dict[str, Any], epoch: str
) -> None:
    (tmp_path / "quiet.py").write_text("class Quiet: ...")
    at = {"type": "timestamp", "epoch": epoch}
    assert mistakes(tmp_path, [{"view": "made", **step}], at=at) == []
    [(path, text)] = mistakes(tmp_path, [{"view": "made", **step}], at={**at, "type": "timestamp_ntz"})[:1]
    assert (path.endswith(".time"), text) == (True, "'at' is timestamp_ntz, and not a timestamp")


def test_fields_of_a_view_that_sql_makes_are_not_for_check_to_judge(tmp_path: Path) -> None:
    steps = [{"view": "some", "sql": "select key as zip, at as then from events"}]
    step = {"view": "d", "deduplicate": {**FIRST, "from": "some", "key": ["zip"], "time": "then"}}
    assert mistakes(tmp_path, [*steps, step]) == []
    reserved = {"view": "d", "deduplicate": {**FIRST, "key": ["_key", "key"]}}
    assert mistakes(tmp_path, [reserved]) == []


def cleaned(step: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {k: v for k, v in value.items() if v is not ...} if isinstance(value, dict) else value
        for name, value in step.items()
    }


@pytest.mark.parametrize(
    ("processor", "text"),
    [
        ("quiet.py:Quiet", "no module 'quiet.py'; a file is named as a module: quiet:Quiet"),
        ("loud:Loud", "no module 'loud'"),
        ("quiet:Quit", "no class 'Quit' in quiet.py; did you mean 'Quiet'?"),
        ("quiet", "`module:Class`"),
        ("quiet:quiet", "quiet.py:8: 'quiet' is a function, and a processor is a class; did you mean 'Quiet'?"),
        ("quiet:Quiet", ""),
        ("jobs.quiet:Quiet", ""),
        ("json:JSONDecoder", ""),  # what an installed one is, the engine says
    ],
)
def test_class_of_a_state_step_is_looked_for_without_running_it(tmp_path: Path, processor: str, text: str) -> None:
    for file in (tmp_path / "quiet.py", tmp_path / "jobs" / "quiet.py"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("raise SystemExit\n\n\nclass Quiet:\n    pass\n\n\ndef quiet():\n    pass\n")
    found = mistakes(tmp_path, [{"view": "s", "state": {**STATE, "processor": processor}}])
    assert [path for path, _ in found] == (["transform[0].state.processor"] if text else [])
    assert all(text in message for _, message in found), found


def test_timers_of_the_clock_need_to_be_told_how_often_to_look_at_it(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("class Idle:\n    pass\n")
    steps = [{"view": "s", "state": {**STATE, "processor": "idle:Idle", "timers": "processing"}}]
    [(path, text)] = mistakes(tmp_path, steps)
    assert (path, "`trigger: {every: 10s}`" in text) == ("transform[0].state.timers", True)
    assert mistakes(tmp_path, steps, trigger={"every": "10s"}) == []
    assert mistakes(tmp_path, steps, trigger="available-now") == []


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


def test_first_step_bounds_event_times_ahead_of_the_clock_and_others_do_not(tmp_path: Path) -> None:
    bounded = Step.model_validate({"view": "w", "window": {**WINDOW, "ahead": "2h"}})
    plain = Step.model_validate({"view": "w", "window": WINDOW})
    assert bounds(plain.stateful) == "at is at most 1h ahead of the clock"
    assert bounds(bounded.stateful) == "at is at most 2h ahead of the clock"
    assert bounded.text == plain.text  # state is known by it, and goes on with another bound
    unbound = {name: value for name, value in WINDOW.items() if name != "late_after"} | {"ahead": "2h"}
    chain = [{"view": "d", "deduplicate": FIRST}, {"view": "w", "window": {**unbound, "from": "d"}}]
    [(path, text)] = mistakes(tmp_path, chain)
    assert (path, text) == ("transform[1].window.ahead", "has no effect: the watermark is that of 'd'")
    assert bounds(Step.model_validate(chain[1]).stateful) == ""
    steps = [{"view": "w", "window": {**unbound, "emit": "complete"}}]
    [(path, text)] = mistakes(tmp_path, steps, out={"from": "w", "console": {}})
    assert (path, "there is no watermark" in text) == ("transform[0].window.ahead", True)


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


def test_step_that_joins_what_stays_inside_the_stream_with_what_comes_out_is_refused(tmp_path: Path) -> None:
    steps = [
        {"view": "d", "deduplicate": FIRST},
        {"view": "large", "sql": "select * from d where key > 'm'"},
        cleaned({"view": "w", "window": {**WINDOW, "from": "large", "late_after": ...}}),
        {"view": "both", "sql": "select * from w join large using (key)"},
    ]
    [(path, text)] = mistakes(tmp_path, steps)
    assert path == "transform[3]"
    assert text == "'large' stays inside the stream: only 'w' comes out of it"


def test_late_rows_are_a_view_of_the_first_step(tmp_path: Path) -> None:
    steps = [{"view": "w", "window": WINDOW}]
    sink = {"from": "w", "delta": {"path": "a"}}
    assert mistakes(tmp_path, steps, one=sink, two={"from": "w_late", "delta": {"path": "b"}}) == []
    [(path, text)] = mistakes(tmp_path, steps, one=sink, two={"from": "w_lat", "delta": {"path": "b"}})
    assert path == "sinks.two.from"
    assert text == "no view 'w_lat'; did you mean 'w_late'?"
    twice = [*steps, {"view": "w_late", "sql": "select 1"}]
    assert "which is there" in dict(mistakes(tmp_path, twice, one=sink))["transform[0].view"]


CLASS = {"from": "events", "key": ["key"], "processor": "quiet:Quiet", "fields": {"n": "int"}}


@pytest.mark.parametrize(
    ("step", "drops", "views"),
    [
        ({"window": WINDOW}, True, ["w_late"]),
        ({"window": {**WINDOW, "emit": "complete"}}, False, []),
        ({"join": JOIN}, True, ["w_late_left", "w_late_right"]),
        ({"state": {**CLASS, "timers": "event", "time": "at", "late_after": "1m"}}, True, ["w_late"]),
        ({"state": {**CLASS, "time": "at", "late_after": "1m"}}, False, ["w_late"]),
        ({"state": CLASS}, False, []),
    ],
    ids=[
        "window",
        "window that never closes",
        "join",
        "timers in event time",
        "no timers, rows without time",
        "no time",
    ],
)
def test_step_has_a_view_of_what_it_misses(step: dict[str, Any], drops: bool, views: list[str]) -> None:
    made = Step.model_validate({"view": "w", **step})
    assert made.stateful is not None
    assert made.stateful.drops_late is drops
    assert late_view_names([made]) == views


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


@pytest.mark.parametrize(
    ("emit", "sink", "where", "refused"),
    [
        ("update", UPSERT, "n < 30", True),
        ("complete", UPSERT, "key = 'a' and N < 30", True),
        ("update", UPSERT, "key = 'a'", False),
        ("update", {"console": {}}, "n < 30", False),
        ("complete", {"memory": {"table": "t"}}, "n < 30", False),
        ("append", UPSERT, "n < 30", False),
    ],
)
def test_condition_on_what_changes_would_leave_old_rows_in_the_sink(
    tmp_path: Path, emit: str, sink: dict[str, Any], where: str, refused: bool
) -> None:
    steps = [{"view": "w", "window": {**WINDOW, "emit": emit}}]
    found = mistakes(tmp_path, steps, lake={"from": "w", "where": where, **sink})
    assert [path for path, _ in found] == ["sinks.lake.where"] * refused
    if refused:
        assert found[0][1].endswith(f"select *, ({where}) is not true as _deleted from w")


def test_windows_that_follow_each_other_are_final(tmp_path: Path) -> None:
    hours = {"from": "w", "time": "window_time", "size": "1h", "columns": {"n": "sum(n)"}}
    steps = [{"view": "w", "window": {**WINDOW, "emit": "update"}}, {"view": "hours", "window": hours}]
    [(path, text)] = mistakes(tmp_path, steps)
    assert path == "transform[0].window.emit"
    assert "rows must be final" in text


@pytest.mark.parametrize(("time", "refused"), [("window_end", True), ("window_start", True), ("window_time", False)])
def test_event_time_of_a_window_over_windows_is_the_one_with_a_watermark(
    tmp_path: Path, time: str, refused: bool
) -> None:
    hours = {"from": "w", "time": time, "size": "1h", "columns": {"n": "sum(n)"}}
    found = mistakes(tmp_path, [{"view": "w", "window": WINDOW}, {"view": "hours", "window": hours}])
    assert [path for path, _ in found] == ["transform[1].window.time"] * refused
    assert all("`window_time`" in text for _, text in found)


def test_steps_that_no_state_is_made_of_are_not_in_the_stream() -> None:
    steps = [
        Step.model_validate(step)
        for step in (
            {"view": "kept", "sql": "select * from events"},
            {"view": "aside", "sql": "select * from events where key = 'a'"},
            {"view": "w", "window": {**WINDOW, "from": "kept"}},
        )
    ]
    found, views = feeding(steps, ["events"])
    assert [step.view for step in found] == ["kept", "w"]
    assert views == {"events", "kept"}


RATES = {"file": {"path": "rates.csv", "format": "csv", "schema": {"fields": {"key": "string", "rate": "double"}}}}


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ({"enrich": {"from": "events", "reference": "rates", "on": ["key"]}}, ".enrich.reference"),
        ({"sql": "select events.* from events left join rates using (key)"}, ".sql"),
        ({"sql": "with r as (select * from `RATES`) select events.* from events, r"}, ".sql"),
        ({"python": {"from": ["events", "rates"], "function": "steps:joined"}}, ".python.from"),
        ({"sql": "select *, 'rates' as word, events.rates -- rates\nfrom events"}, None),
    ],
)
def test_table_that_is_refreshed_is_not_read_before_a_stateful_step(
    tmp_path: Path, step: dict[str, Any], where: str | None
) -> None:
    (tmp_path / "steps.py").write_text("def joined(events, rates):\n    return events\n")
    (tmp_path / "rates.csv").write_text("key,rate\na,1\n")
    steps = [{"view": "rated", **step}, {"view": "w", "window": {**WINDOW, "from": "rated"}}]
    found = mistakes(tmp_path, steps, more={"references": {"rates": {**RATES, "refresh": "1h"}}})
    assert [path for path, _ in found] == ([f"transform[0]{where}"] if where else []), found
    assert all("'rates' has `refresh`" in text for _, text in found)
    assert mistakes(tmp_path, steps, more={"references": {"rates": RATES}}) == []
    behind = [{"view": "w", "window": WINDOW}, {"view": "rated", "sql": "select w.* from w join rates using (key)"}]
    assert mistakes(tmp_path, behind, more={"references": {"rates": {**RATES, "refresh": "1h"}}}) == []


@pytest.fixture
def quiet(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "quiet.py").write_text("class Quiet:\n    pass\n")
    return {**STATE, "processor": "quiet:Quiet"}


@pytest.mark.parametrize(
    ("first", "time"), [({"deduplicate": FIRST}, "at"), ({"window": WINDOW}, "window_time"), ({"join": JOIN}, "at")]
)
def test_timers_in_event_time_follow_another_stateful_step(
    tmp_path: Path, quiet: dict[str, Any], first: dict[str, Any], time: str
) -> None:
    """The watermark is that of the first step, so the second says no `late_after`."""
    state = {**quiet, "from": "first", "timers": "event", "time": time}
    assert mistakes(tmp_path, [{"view": "first", **first}, {"view": "s", "state": state}]) == []
    [(path, text)] = mistakes(
        tmp_path, [{"view": "first", **first}, {"view": "s", "state": {**state, "late_after": "1m"}}]
    )
    assert (path, "the watermark is that of 'first'" in text) == ("transform[1].state.late_after", True)


def test_state_that_comes_first_says_how_late_rows_may_be(tmp_path: Path, quiet: dict[str, Any]) -> None:
    [(path, text)] = mistakes(tmp_path, [{"view": "s", "state": {**quiet, "timers": "event", "time": "at"}}])
    assert (path, "lacks `late_after`" in text) == ("transform[0].state", True)
    [(path, text)] = mistakes(tmp_path, [{"view": "s", "state": {**quiet, "timers": "event"}}])
    assert "`timers: event` needs `time`" in text


def test_no_stateful_step_follows_a_class_wherever_it_is(tmp_path: Path, quiet: dict[str, Any]) -> None:
    steps: list[dict[str, Any]] = [
        {"view": "d", "deduplicate": FIRST},
        {"view": "s", "state": {**quiet, "from": "d"}},
        {"view": "w", "window": {**WINDOW, "from": "s", "late_after": ...}},
    ]
    for chain in (steps, [{"view": "s", "state": quiet}, {**steps[2], "window": {**WINDOW, "from": "s"}}]):
        found = dict(mistakes(tmp_path, [cleaned(step) for step in chain]))
        assert "no other stateful step can follow it" in found[f"transform[{len(chain) - 1}]"]


def test_rule_that_compares_records_is_refused_before_a_stateful_step(tmp_path: Path) -> None:
    rules = {"contract": {"events": [{"name": "once", "unique": "key"}]}}
    steps = [
        {"view": "some", "sql": "select * from events"},
        {"view": "w", "window": {**WINDOW, "from": "some"}},
        {"view": "beside", "sql": "select * from others"},
    ]
    [(path, text)] = mistakes(tmp_path, steps, more=rules, lake={"from": "w", "delta": {"path": "lake"}})
    assert (path, "use a `deduplicate` step" in text) == ("contract.events[0].unique", True)
    beside = {"contract": {"others": [{"name": "once", "unique": "key"}]}}
    assert mistakes(tmp_path, steps, more=beside, lake={"from": "w", "delta": {"path": "lake"}}) == []
