"""What a pipeline in real-time mode cannot have is a mistake of the spec, with its line, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from penstock.spec.load import read

EXAMPLE = Path(__file__).parents[3] / "examples" / "real-time"


def mistakes(tmp_path: Path, change: Any) -> list[tuple[str, int, str]]:
    spec = YAML().load(EXAMPLE / "spec.yaml")
    change(spec)
    (tmp_path / "schemas").symlink_to(EXAMPLE / "schemas")
    YAML().dump(spec, tmp_path / "spec.yaml")
    _, found = read(tmp_path / "spec.yaml")
    return [(each.path, each.line, each.message) for each in found if each.level == "error"]


def test_the_example_qualifies_also_with_shorter_batches(tmp_path: Path) -> None:
    assert mistakes(tmp_path, lambda spec: spec.update(trigger={"real_time": "10s"})) == []


@pytest.mark.parametrize(
    ("change", "path", "why"),
    [
        (lambda s: s.update(rate={"max_offsets": 1000}), "rate.max_offsets", "nothing limits"),
        (lambda s: s.update(rate={"target_batch": "10s"}), "rate.target_batch", "nothing limits"),
        (lambda s: s["source"].update(min_partitions=4), "source.min_partitions", "one task"),
        (lambda s: s["sinks"]["large"].update(kafka=None, delta={"path": "x"}), "sinks.large.delta", "Kafka topics"),
        (lambda s: s["sinks"]["large"]["kafka"].pop("guarantee"), "sinks.large.kafka", "at-least-once"),
        (
            lambda s: s["sinks"]["large"]["kafka"].update(guarantee="exactly-once"),
            "sinks.large.kafka.guarantee",
            "at-least-once",
        ),
        (
            lambda s: s["sinks"]["large"]["kafka"].update(value={"format": "avro", "schema": "x", "wire": "raw"}),
            "sinks.large.kafka.value",
            "Python workers",
        ),
        (lambda s: s["contract"]["payments"][0].update(otherwise="stop"), "contract.payments[0].otherwise", "`stop`"),
        (lambda s: s.update(dead_letters={"delta": {"path": "x"}}), "dead_letters.delta", "Kafka"),
        (
            lambda s: s.update(dead_letters={"kafka": {}, "budget": {"share": 0.1}}),
            "dead_letters.budget",
            "budget",
        ),
        (
            lambda s: s["source"]["topics"].update(other={"value": {"format": "string"}}),
            "source.topics.other",
            "one topic",
        ),
        (
            lambda s: s["source"]["topics"]["payments"]["value"].update(format="csv"),
            "source.topics.payments.value",
            "csv is decoded in Python",
        ),
        (
            lambda s: s["transform"].append(
                {"view": "p", "python": {"from": "payments", "function": "penstock.spec.load:read"}}
            ),
            "transform[1].python",
            "needs a Python worker",
        ),
        (
            lambda s: s["transform"][0].update(
                sql=None, deduplicate={"from": "payments", "key": ["account"], "time": "event_time", "within": "1m"}
            ),
            "transform[0].deduplicate",
            "without state",
        ),
        (
            lambda s: s["transform"][0].update(
                sql=None,
                state={
                    "from": "payments",
                    "key": ["account"],
                    "processor": "json:JSONDecoder",
                    "fields": {"n": "int"},
                },
            ),
            "transform[0].state",
            "without state",
        ),
    ],
)
def test_what_real_time_mode_has_no_way_for_is_refused_with_its_line(
    tmp_path: Path, change: Any, path: str, why: str
) -> None:
    found = mistakes(tmp_path, change)
    assert [(where, why in text) for where, _, text in found] == [(path, True)], found
    assert found[0][1] > 1 and "not in real-time mode" in found[0][2]


def test_a_batch_that_is_too_short_is_refused(tmp_path: Path) -> None:
    [(path, _, text)] = mistakes(tmp_path, lambda spec: spec.update(trigger={"real_time": "100ms"}))
    assert path.startswith("trigger") and "at least 1s" in text
