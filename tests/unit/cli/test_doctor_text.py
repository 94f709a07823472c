"""What `doctor` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.observe_documents import DOCTOR

from penstock.cli import main
from penstock.doctor.facts import Facts, Recreated, Stuck
from penstock.doctor.rules import examine
from penstock.observe.lag import PartitionLag, measured
from penstock.spec.model import Pipeline

main.register()
from penstock.cli import doctor  # noqa: E402  commands are registered once

WAITS = PartitionLag("t", 0, 0, None, 700, None, False, 0.0)
STOPPED = Facts(
    running=False,
    lag=measured([WAITS], None),
    cap=1_000,
    adaptive=False,
    verdicts={("t", 0): "STOP", ("t", 1): "STOP", ("t", 2): "OK", ("t", 3): "OK"},
)
PAGE = """\
payments: not running, 700 offsets behind
critical[not-running]
  nothing runs this pipeline, and records wait
    - 700 offsets wait
    - no process holds the lock of its checkpoint
    fix: penstock run p.yaml
partitions: 2 STOP, nothing waits in 2
"""


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "payments",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"t": {"value": {"format": "string"}}}},
            "sinks": {"lake": {"from": "t", "delta": {"path": "lake"}}},
        }
    )


def test_no_partition_of_a_pipeline_that_does_not_run_is_called_well(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor.named(examine(STOPPED), Path("p.yaml"))
    doctor.show(pipeline, STOPPED, found)
    assert capsys.readouterr().out == PAGE
    told = json.loads(json.dumps(doctor.document(pipeline, STOPPED, found)))
    Draft202012Validator(DOCTOR).validate(told)
    assert [each["fix"] for each in told["findings"]] == ["penstock run p.yaml"]
    runs = replace(STOPPED, running=True, verdicts={("t", 0): "OK"})
    doctor.show(pipeline, runs, examine(runs))
    assert capsys.readouterr().out == "payments: running, 700 offsets behind\npartitions: 1 OK\nnothing is wrong\n"


def test_pipeline_that_waits_for_its_next_run_is_not_said_to_have_stopped(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    between = replace(STOPPED, rest="caught-up")
    doctor.show(pipeline, between, doctor.named(examine(between), Path("p.yaml")))
    assert capsys.readouterr().out == (
        "payments: not running, 700 offsets behind\n"
        "note[between-runs]\n"
        "  the last run caught up and exited; new records have arrived since\n"
        "    - 700 offsets wait\n"
        "    fix: penstock run p.yaml, when the next run is due\n"
        "partitions: records wait in 2, nothing waits in 2\n"
    )


def test_nothing_is_wrong_is_not_said_beside_a_stop(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    runs = replace(STOPPED, running=True, stuck=Stuck(7, 48.0))
    doctor.show(pipeline, runs, doctor.named(examine(runs), Path("p.yaml")))
    assert capsys.readouterr().out == (
        "payments: running, 700 offsets behind\n"
        "note[partition-stop]\n"
        "  nothing was committed for longer than the last commits took together, and records wait\n"
        "    - verdict STOP: t-0, t-1\n"
        "    - batch 7 was planned 48 s ago\n"
        "    fix: penstock events p.yaml --last 20\n"
        "partitions: 2 OK, 2 STOP\n"
    )


def test_topic_that_was_made_again_leaves_a_lag_that_is_at_least_that_of_the_others(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = replace(STOPPED, recreated=[Recreated("u", "it was a, now it is b", "penstock checkpoint seek FILE")])
    doctor.show(pipeline, facts, doctor.named(examine(facts), Path("p.yaml")))
    page = capsys.readouterr().out
    assert page.startswith("payments: not running, at least 700 offsets behind\ncritical[topic-recreated]\n")
    assert "    fix: penstock checkpoint seek p.yaml\n" in page
    assert doctor.document(pipeline, facts, [])["complete"] is False
