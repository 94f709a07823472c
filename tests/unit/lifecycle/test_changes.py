"""What a spec says otherwise than its checkpoint: each change with its effect, and whether a start goes on with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints import checkpoint, entry

from penstock.checkpoint import remembered
from penstock.checkpoint.home import Home
from penstock.lifecycle.changes import Change, against_checkpoint, changes
from penstock.spec.model import Pipeline

SPEC: dict[str, Any] = {
    "name": "payments",
    "kafka": {"bootstrap": "unused"},
    "source": {"topics": {"payments": {"value": {"format": "string"}}}},
    "transform": [{"view": "some", "sql": "select * from payments where value > 'a'"}],
    "sinks": {"lake": {"from": "some", "delta": {"path": "lake"}}},
}


def changed(stateful: bool = False, **now: Any) -> list[Change]:
    before = remembered.of(Pipeline.model_validate(SPEC))
    pipeline = Pipeline.model_validate({**SPEC, **now})
    topics = {name for name in ("payments", "other") if pipeline.source.reads_topic(name)}
    return changes(pipeline, entry(3), topics, before, stateful=stateful)


def said(found: list[Change]) -> list[tuple[str, str, bool]]:
    return [(each.what, each.name, each.compatible) for each in found]


def test_same_spec_has_no_changes() -> None:
    assert changed() == []


SOURCE = SPEC["source"]["topics"]["payments"]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"name": "other"}, [("pipeline-renamed", "other", False)]),
        ({"trigger": {"every": "10s"}}, [("option-changed", "trigger", True)]),
        ({"rate": {"max_offsets": 5}}, [("option-changed", "rate.max_offsets", True)]),
        ({"source": {**SPEC["source"], "start": "latest"}}, [("start-changed", "latest", True)]),
        (
            {"source": {"topics": {"payments": {**SOURCE, "partitions": [0]}}}},
            [("subscription-changed", "by partitions", True)],
        ),
        (
            {
                "source": {"pattern": {"match": "paym.*", "view": "payments", "value": {"format": "string"}}},
                "dead_letters": {"kafka": {"topic": "dead"}},
            },
            [("subscription-changed", "by pattern", True)],
        ),
        (
            {"sinks": {"lake": {"from": "some", "delta": {"path": "elsewhere"}}}},
            [("sink-moved", "lake", False)],
        ),
        (
            {"sinks": {"lake": {"from": "some", "kafka": {"topic": "out", "value": {"format": "json"}}}}},
            [("sink-moved", "lake", True)],
        ),
        (
            {"sinks": {"new": {"from": "some", "delta": {"path": "new"}}}},
            [("sink-added", "new", True), ("sink-removed", "lake", True)],
        ),
        (
            {"transform": [{"view": "some", "sql": "select * from payments"}]},
            [("step-changed", "some", True)],
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_change_is_named_and_judged(now: dict[str, Any], expected: list[tuple[str, str, bool]]) -> None:
    assert said(changed(**now)) == expected


def test_before_the_first_batch_has_ended_steps_are_compared_and_sinks_are_not() -> None:
    window = {"from": "payments", "time": "timestamp", "late_after": "1m", "size": "1m", "columns": {"n": "count(*)"}}
    now = {
        "transform": [{"view": "some", "window": window}],
        "sinks": {"lake": {"from": "some", "delta": {"path": "elsewhere"}}},
    }
    before = remembered.of(Pipeline.model_validate(SPEC))
    found = changes(Pipeline.model_validate({**SPEC, **now}), None, {"payments"}, before)
    assert said(found) == [("step-changed", "some", False)]


RULE = {"name": "positive", "rule": "value > '0'"}


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ([], [RULE], [("rule-added", "payments.positive", True)]),
        ([RULE], [], [("rule-removed", "payments.positive", True)]),
        ([RULE], [{**RULE, "rule": "value > '5'"}], [("rule-changed", "payments.positive", True)]),
        ([RULE], [{**RULE, "otherwise": "drop"}], [("rule-changed", "payments.positive", True)]),
        (
            [{"name": "known", "not_null": "value"}, RULE],
            [{"name": "known", "unique": "value"}, RULE],
            [("rule-changed", "payments.known", True)],
        ),
        ([RULE], [RULE], []),
    ],
)
def test_rule_that_is_another_one_is_named(
    then: list[Any], now: list[Any], expected: list[tuple[str, str, bool]]
) -> None:
    before = remembered.of(Pipeline.model_validate({**SPEC, "contract": {"payments": then}}))
    pipeline = Pipeline.model_validate({**SPEC, "contract": {"payments": now}})
    assert said(changes(pipeline, entry(3), {"payments"}, before)) == expected


def test_changed_rule_says_what_it_was() -> None:
    before = remembered.of(Pipeline.model_validate({**SPEC, "contract": {"payments": [RULE]}}))
    now = Pipeline.model_validate({**SPEC, "contract": {"payments": [{**RULE, "otherwise": "drop"}]}})
    [change] = changes(now, entry(3), {"payments"}, before)
    was = "value > '0', otherwise dead-letter"
    assert change.effect == f"is value > '0', otherwise drop, and was {was}; a batch that is planned runs with it"


def test_rules_that_an_older_version_did_not_remember_are_not_compared(tmp_path: Path) -> None:
    home, file = checkpoint(tmp_path / "home"), tmp_path / "home" / "spec.json"
    ruled = Pipeline.model_validate({**SPEC, "contract": {"payments": [RULE]}, "checkpoint": str(home.path)})
    remembered.write(home, ruled)
    assert against_checkpoint(ruled)[1:] == ([], [])
    file.write_text(json.dumps({name: of for name, of in json.loads(file.read_text()).items() if name != "rules"}))
    _, found, unchecked = against_checkpoint(ruled)
    assert (found, unchecked) == ([], ["rules: the pipeline was not started by this version yet"])


def test_topic_that_is_no_longer_read_stops_a_start_unless_the_spec_says_to_go_on() -> None:
    other = {"topics": {"other": {"value": {"format": "string"}, "view": "payments"}}}
    assert said(changed(source=other)) == [("topic-added", "other", True), ("topic-removed", "payments", False)]
    goes_on = changed(source={**other, "on_data_loss": "continue"})
    assert ("topic-removed", "payments", True) in said(goes_on)


def test_partition_that_is_no_longer_read_is_incompatible() -> None:
    spec = {**SPEC, "source": {"topics": {"payments": {**SOURCE, "partitions": [0, 1]}}}}
    before = remembered.of(Pipeline.model_validate(spec))
    now = Pipeline.model_validate({**SPEC, "source": {"topics": {"payments": {**SOURCE, "partitions": [0]}}}})
    found = changes(now, entry(3), {"payments"}, before)
    assert said(found) == [("partition-removed", "payments-1", False)]


def test_step_over_state_is_incompatible() -> None:
    found = changed(stateful=True, transform=[{"view": "some", "sql": "select * from payments"}])
    assert said(found) == [("step-changed", "some", False)]


def test_step_that_would_begin_its_state_in_the_middle_is_incompatible() -> None:
    once = {"view": "once", "deduplicate": {"from": "payments", "key": ["value"], "time": "at", "within": "1m"}}
    sink = {"from": "once", "delta": {"path": "once"}}
    found = changed(transform=[*SPEC["transform"], once], sinks={**SPEC["sinks"], "once": sink})
    assert said(found) == [("sink-added", "once", True), ("step-added", "once", False)]


def test_what_is_remembered_comes_back_and_holds_no_reference_to_a_secret(tmp_path: Path) -> None:
    sinks = {"db": {"from": "some", "postgres": {"url": "${env:DATABASE}", "table": "t"}}}
    pipeline = Pipeline.model_validate({**SPEC, "sinks": sinks})
    assert remembered.read(Home(tmp_path)) is None
    remembered.write(Home(tmp_path), pipeline)
    assert remembered.read(Home(tmp_path)) == remembered.of(pipeline)
    assert "DATABASE" not in (tmp_path / "spec.json").read_text()
    (tmp_path / "spec.json").write_text('{"of": "another version"}')
    assert remembered.read(Home(tmp_path)) is None
