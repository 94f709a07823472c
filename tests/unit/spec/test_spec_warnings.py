"""What `check` only warns of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.spec.specs import GOOD

from penstock.spec.load import read

Write = Callable[..., Path]


def test_unset_reference_is_a_warning_and_the_spec_is_good(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_NOT_SET", raising=False)
    file = write(GOOD.replace("localhost:9092", '"${env:PENSTOCK_NOT_SET}"'))
    pipeline, found = read(file)
    assert pipeline is not None
    assert [(m.line, m.code, m.level) for m in found] == [(4, "reference-unset", "warning")]
    monkeypatch.setenv("PENSTOCK_NOT_SET", "x")
    assert read(file)[1] == []


def test_settings_without_effect_are_warnings(write: Write) -> None:
    text = GOOD.replace("localhost:9092", "localhost:9092\n  topics: {paymens: {partitions: 2}}")
    pipeline, found = read(write(text))
    assert pipeline is not None
    assert [(m.line, m.path, m.level) for m in found] == [
        (5, "kafka.topics.paymens", "warning"),
    ]


def test_settings_of_a_topic_that_rows_are_looked_up_in_have_an_effect(write: Write) -> None:
    value = "{format: json, schema: {fields: {id: string}}}"
    table = f"references: {{accounts: {{kafka: {{topic: accounts, value: {value}}}}}}}"
    text = GOOD.replace("localhost:9092", "localhost:9092\n  topics: {accounts: {partitions: 2}}")
    assert read(write(f"{text}\n{table}\n"))[1] == []


def test_settings_of_topics_that_records_choose_have_an_effect(write: Write) -> None:
    text = GOOD.replace("localhost:9092", "localhost:9092\n  topics: {chosen: {partitions: 2}}")
    sink = "  many: {from: settled, kafka: {topic_column: status}}"
    assert read(write(text.rstrip() + f"\n{sink}\n"))[1] == []


@pytest.mark.parametrize(
    ("name", "level", "hint"),
    [
        ("retentin.ms", "error", "did you mean 'retention.ms'?"),
        ("retention_ms", "error", "did you mean 'retention.ms'?"),
        ("Retention.Ms", "error", "did you mean 'retention.ms'?"),
        ("mim.compaction.lag.ms", "warning", "did you mean 'min.compaction.lag.ms'?"),
        ("unclean.leader.elction.enable", "error", "did you mean 'unclean.leader.election.enable'?"),
        ("log.retention.ms", "error", "did you mean 'retention.ms'?"),
        ("diskless.enable", "warning", None),
    ],
)
def test_setting_that_kafka_does_not_know_is_a_mistake_where_it_is_surely_misspelled(
    write: Write, name: str, level: str, hint: str | None
) -> None:
    """A newer broker may know more than we do: what has a word that is not Kafka's is only warned of."""
    topics = f"topics: {{payments: {{config: {{retention.ms: 1, message.format.version: 3, {name}: 1}}}}}}"
    _, found = read(write(GOOD.replace("localhost:9092", f"localhost:9092\n  {topics}")))
    path = f"kafka.topics.payments.config.{name}"
    assert [(m.line, m.path, m.code, m.level, m.hint) for m in found] == [(5, path, "unknown-setting", level, hint)]
