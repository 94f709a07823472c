"""A file and Python code make the same pipeline; what cannot be loaded says why."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.spec.specs import GOOD, schema_of

from penstock.errors import SpecInvalid, SpecUnreadable
from penstock.spec.fields import Field, Schema
from penstock.spec.formats import JsonFormat
from penstock.spec.load import load
from penstock.spec.model import (
    DeadLetters,
    DeadLetterTopic,
    Every,
    Kafka,
    Pipeline,
    Rate,
    Rule,
    Step,
    TopicSettings,
)
from penstock.spec.sinks import DeltaTable, Sink
from penstock.spec.source import Source, Topic

Write = Callable[..., Path]

EXAMPLE = Path(__file__).parents[3] / "examples" / "payments" / "payments.yaml"


def test_load_raises_with_all_mistakes_as_facts(write: Write) -> None:
    file = write(GOOD.replace("format: json", "format: jsonn").replace("name: payments", "name: 5"))
    with pytest.raises(SpecInvalid) as raised:
        load(file)
    facts = raised.value.facts["mistakes"]
    assert isinstance(facts, list)
    assert [fact["code"] for fact in facts] == ["wrong-type", "not-allowed"]
    assert raised.value.next_command == f"penstock check {file}"


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_load_of_what_is_no_file_is_unreadable(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecUnreadable):
        load(tmp_path / name)


def test_the_example_says_the_same_in_yaml_and_in_python() -> None:
    written = load(EXAMPLE)
    made = Pipeline(
        name="payments",
        kafka=Kafka(bootstrap="${env:KAFKA_BOOTSTRAP}", topics={"payments": TopicSettings(partitions=4)}),
        source=Source(
            topics={"payments": Topic(value=JsonFormat(format="json", schema_="schemas/payment.yaml"))},
            start="earliest",
            on_data_loss="fail",
        ),
        contract={"payments": [Rule(name="positive", rule="amount > 0", otherwise="dead-letter")]},
        transform=[
            Step(
                view="settled",
                sql="select *, to_date(event_time) as day from payments where status <> 'VOID'",
            )
        ],
        sinks={"lake": Sink(from_="settled", delta=DeltaTable(path="lake/payments", partition_by=["day"]))},
        dead_letters=DeadLetters(kafka=DeadLetterTopic(topic="payments.DLT")),
        rate=Rate(max_offsets=60_000),
    )
    assert written == made
    assert written != made.model_copy(update={"trigger": Every(every="10s")})
    assert written.base == EXAMPLE.parent


def test_schema_of_opens_the_file_for_yaml_and_python_alike() -> None:
    pipeline = load(EXAMPLE)
    made = Pipeline.model_validate(pipeline.model_dump()).at(EXAMPLE.parent)
    assert schema_of(made, "payments") == schema_of(pipeline, "payments")
    fields = schema_of(pipeline, "payments").fields
    assert fields["amount"] == Field(type="decimal(12,2)", required=True)
    assert schema_of(pipeline, "payments").struct().members[6].type.ddl() == "struct<`name`:string,`country`:string>"


def test_schema_of_names_the_mistakes_of_the_schema_file(write: Write) -> None:
    write("fields: {a: strng}", "s.yaml")
    pipeline = Pipeline(
        name="p",
        kafka=Kafka(bootstrap="b"),
        source=Source(topics={"t": Topic(value=JsonFormat(format="json", schema_="s.yaml"))}),
        sinks={"x": Sink(from_="t", delta=DeltaTable(path="x"))},
    ).at(write("").parent)
    with pytest.raises(SpecInvalid) as raised:
        schema_of(pipeline, "t")
    assert "did you mean 'string'?" in str(raised.value.cause)


def test_schema_file_of_a_thousand_columns_loads(write: Write) -> None:
    rows = "".join(f"  column_{i}: {{type: 'decimal(12,2)', required: true}}\n" for i in range(1000))
    write("fields:\n" + rows, "wide.yaml")
    began = time.perf_counter()
    pipeline = load(write(GOOD.replace("{fields: {amount: double}}", "wide.yaml")))
    assert len(schema_of(pipeline, "payments").fields) == 1000
    # Not a benchmark: quadratic work would take minutes.
    assert time.perf_counter() - began < 30


def test_python_schema_takes_the_short_form() -> None:
    assert Schema.model_validate({"fields": {"a": "int"}}) == Schema(fields={"a": Field(type="int")})
