"""A plan as words: within 80 columns, with nothing in it that a terminal would obey."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import main, output
from penstock.errors import TopicMissing
from penstock.kafka.differences import Difference
from penstock.lifecycle.changes import Change
from penstock.lifecycle.preview import Engine, Plan
from penstock.plan.outline import Path as Way
from penstock.plan.outline import Route, SourceTopic, Target
from penstock.record import OffsetRange
from penstock.registry.client.rehearsal import Registration
from penstock.source.position import Standing, Waiting
from penstock.spec.model import Budget, Rule, TopicSettings
from penstock.spec.steps import Step

main.register()
from penstock.cli.plan import document, show  # noqa: E402  commands are registered once


@pytest.fixture
def made() -> Plan:
    long = "select " + ", ".join(f"column_{n}" for n in range(30)) + "\n  from payments"
    return Plan(
        pipeline="payments",
        checkpoint=".penstock/payments",
        path=Way(
            None,
            [SourceTopic("payments", 40, "json", "string", "payments"), SourceTopic("away", 0, "avro", None, "away")],
            [("payments", Rule(name="positive", rule="amount > 0"))],
            [Step(view="wide", sql=long)],
            Budget(share=0.001),
        ),
        routes=[
            Route(
                "out",
                "wide",
                "a > 1",
                Target("kafka", "out"),
                "exactly-once by batch: …",
                "exactly-once-by-batch",
                "why",
            ),
            Route("dead letters", None, None, Target("kafka", "{topic}.DLT"), None),
        ],
        engine=Engine(None, ["core"], 7, 5, 12.5),
        running=123,
        schemas=[Registration("out-value", "AVRO", None), Registration("out-key", "AVRO", 7)],
        missing_topics={"away": TopicSettings(partitions=2, config={"retention.ms": 5})},
        differences=[
            Difference("payments", "partitions", "40", "50"),
            Difference("payments", "retention.ms", "9", "5", "force", "Kafka deletes"),
            Difference("payments", "replication", "1", "3", "left", "it is moved elsewhere"),
        ],
        standing=Standing(
            "earliest",
            "q",
            5,
            5,
            [OffsetRange("payments", 0, 1, 9)],
            [Waiting("payments", n, 0, 1, 9) for n in range(40)],
        ),
        changes=[Change("sink-added", "out", "gets the rows of the next batch and later ones")],
        warnings=["`start: latest` has no effect"],
        unchecked=["positions"],
        problems=[
            TopicMissing("no topic '\x1b[31maway'", cause="gone " * 30, next_command="penstock apply " + "f" * 90)
        ],
    )


def test_page_fits_80_columns_but_for_the_command_to_copy(made: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    show(made, Path("payments.yaml"))
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if len(line) > 80] == ["    next:  penstock apply " + "f" * 90]
    assert "\x1b" not in said
    for text in (
        "it is running: process 123",
        "topic payments (40 partitions): json, key string -> view payments",
        "topic away (missing): avro -> view away",
        "sink out: wide where a > 1 -> kafka out",
        "stops when more than 0.1 % of the records die, and at least 100 records",
        "by batch, not by partition: why",
        "dead letters: none can be given yet, see below",
        "schema out-value (AVRO): new: the run will register it",
        "schema out-key (AVRO): there, id 7",
        "jars: 7 (core), 5 downloaded; 2 to download (12.5 MB)",
        "topic payments: partitions is 40, the spec says 50; `penstock apply\n      payments.yaml` changes it",
        "only `penstock apply\n      payments.yaml --force` changes it: Kafka deletes",
        "replication is 1, the spec says 3; left as it is: it is moved\n      elsewhere",
        "goes on after 5 batches; lag 320 offsets",
        "batch 5 is running now",
        "payments: 32 more partitions, lag 256",
        "sink out was added: it gets the rows of the next batch and later ones",
        "cannot start: 1 problem",
    ):
        assert text in said, text


def test_document_is_json_and_says_the_same(made: Plan) -> None:
    found = json.loads(json.dumps(document(made), default=str))
    assert found["could_start"] is False
    assert found["start"]["lag"] == 320
    assert found["start"]["partitions"][0] == {
        "topic": "payments", "partition": 0, "first": 0, "next": 1, "end": 9, "lag": 8,
    }  # fmt: skip
    assert found["topics"]["missing"] == [
        {"topic": "away", "partitions": 2, "replication": 1, "config": {"retention.ms": "5"}}
    ]
    assert found["problems"][0]["code"] == "topic-missing"
    assert output.clean(found["problems"][0]["what"]) == "no topic '\\x1b[31maway'"
