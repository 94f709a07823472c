"""A name of Spark's, wherever it stands in a spec, is answered with the key that says it here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML
from tests.unit.spec.specs import GOOD, short

from penstock.errors import SpecInvalid
from penstock.spec import reference, shape, spark_options
from penstock.spec.case_load import read_tests
from penstock.spec.load import read
from penstock.spec.mistake import Path as Place
from penstock.spec.model import Pipeline

Write = Callable[..., Path]
SCHEMA = reference.json_schema()
TARGETS = sorted({target for targets in spark_options.KEYS.values() for target in targets})


def below(part: dict[str, Any], step: str | int) -> list[dict[str, Any]]:
    """What the JSON Schema allows one step down."""
    if "$ref" in part:
        return below(SCHEMA["$defs"][part["$ref"].rsplit("/", 1)[1]], step)
    found = [each for way in (*part.get("anyOf", ()), *part.get("oneOf", ())) for each in below(way, step)]
    if isinstance(step, int):
        return [*found, *([part["items"]] if "items" in part else [])]
    if step.startswith("<"):
        named = [part.get("additionalProperties"), *part.get("patternProperties", {}).values()]
        return [*found, *(each for each in named if isinstance(each, dict))]
    return [*found, *([part["properties"][step]] if step in part.get("properties", {}) else [])]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_a_key_of_the_schema(target: str) -> None:
    here = [SCHEMA]
    place = spark_options.steps(target)
    for step in place:
        here = [each for part in here for each in below(part, step)]
        assert here, f"{target}: no {step}"
    if value := target.partition(": ")[2]:
        fields = [shape.keys(part).get(str(place[-1])) for part in shape.parts_at(Pipeline, place[:-1])]
        data = YAML(typ="safe", pure=True).load(value)
        assert [TypeAdapter(each).validate_python(data, strict=True) for each in fields if each]


def test_every_documented_option_of_the_kafka_source_and_sink_and_method_of_the_stream_writer_is_known() -> None:
    documented = (
        "assign subscribe subscribePattern kafka.bootstrap.servers startingTimestamp startingOffsetsByTimestamp "
        "startingOffsets endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss "
        "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger "
        "minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix kafka.group.id "
        "includeHeaders startingOffsetsByTimestampStrategy topic group.id auto.offset.reset key.deserializer "
        "value.deserializer key.serializer value.serializer enable.auto.commit interceptor.classes "
        "outputMode trigger processingTime availableNow once continuous realTime checkpointLocation queryName "
        "partitionBy clusterBy foreach foreachBatch toTable"
    )
    assert set(documented.split()) <= {*spark_options.KEYS, *spark_options.NO_KEY}
    for name in documented.split():
        assert spark_options.meant(name, (name,), ())


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "hint"),
    [
        ("source:\n", "startingOffsets: earliest\nsource:\n", 5, "startingOffsets", "did you mean 'source.start'?"),
        ("source:\n", "source:\n  startingOffsets: x\n", 6, "source.startingOffsets", "did you mean 'start'?"),
        ("source:\n", "source:\n  starting_offsets: x\n", 6, "source.starting_offsets", "did you mean 'start'?"),
        ("source:\n", "source:\n  STARTINGOFFSETS: x\n", 6, "source.STARTINGOFFSETS", "did you mean 'start'?"),
        ("source:\n", "source:\n  startingOffset: x\n", 6, "source.startingOffset", "did you mean 'start'?"),
        ("source:\n", "source:\n  endingOffsets: x\n", 6, "source.endingOffsets", "--from POSITION --to POSITION"),
        ("source:\n", "source:\n  groupIdPrefix: x\n", 6, "source.groupIdPrefix", "no key here: the checkpoint holds"),
        ("source:\n", "source:\n  topic: x\n", 6, "source.topic", "did you mean 'topics'?"),
        (
            "source:\n",
            "source:\n  options: {startingOffsets: x, maxOffsetsPerTrigger: 5, a: b}\n",
            6,
            "source.options",
            "did you mean 'start' (startingOffsets), 'rate.max_offsets' (maxOffsetsPerTrigger)?",
        ),
        (
            "    payments:\n",
            "    maxOffsetsPerTrigger: 5\n    payments:\n",
            7,
            "source.topics.maxOffsetsPerTrigger",
            "did you mean 'rate.max_offsets'?",
        ),
        (
            "      value:\n",
            "      includeHeaders: true\n      value:\n",
            8,
            "source.topics.payments.includeHeaders",
            "did you mean 'kafka_columns: [headers]'?",
        ),
        (
            "bootstrap: ",
            "kafka.bootstrap.servers: ",
            4,
            "kafka.kafka.bootstrap.servers",
            "did you mean 'bootstrap'?",
        ),
        (
            "bootstrap: localhost:9092",
            "bootstrap: h:1\n  kafka.security.protocol: SSL",
            5,
            "kafka.kafka.security.protocol",
            "settings of Kafka's clients cannot be given",
        ),
        ("bootstrap: localhost:9092", "bootstrap: h:1\n  acks.x: 1", 5, "kafka.acks.x", "cannot be given"),
        ("kafka:\n  bootstrap: ", "kafka.bootstrap.servers: ", 3, "kafka.bootstrap.servers", "'kafka.bootstrap'"),
        (
            "    from: settled\n",
            "    from: settled\n    trigger: {once: true}\n",
            17,
            "sinks.lake.trigger",
            "did you mean 'trigger' at the top of the spec?",
        ),
        (
            "    from: settled\n",
            "    from: settled\n    checkpointLocation: x\n",
            17,
            "sinks.lake.checkpointLocation",
            "did you mean 'checkpoint' at the top of the spec?",
        ),
        (
            "  lake:\n",
            "  checkpointLocation: x\n  lake:\n",
            15,
            "sinks.checkpointLocation",
            "did you mean 'checkpoint'",
        ),
        ("path: lake", "partitionBy: [a], path: lake", 17, "sinks.lake.delta.partitionBy", "mean 'partition_by'?"),
        (
            "    from: settled\n",
            "    from: settled\n    outputMode: append\n",
            17,
            "sinks.lake.outputMode",
            "did you mean 'transform[].window.emit' or 'transform[].state.emit'?",
        ),
        (
            "transform:\n",
            "trigger: {availableNow: true}\ntransform:\n",
            11,
            "trigger.availableNow",
            "did you mean 'trigger: available-now'?",
        ),
        (
            "transform:\n",
            "trigger: {processingTime: 10 seconds}\ntransform:\n",
            11,
            "trigger.processingTime",
            "did you mean 'every'?",
        ),
        ("transform:\n", "trigger: once\ntransform:\n", 11, "trigger", "did you mean 'available-now'?"),
    ],
)
def test_a_name_of_spark_is_one_mistake_with_the_key_that_says_it(
    old: str, new: str, line: int, path: str, hint: str, write: Write
) -> None:
    pipeline, mistakes = read(write(GOOD.replace(old, new, 1)))
    assert pipeline is None
    about = [mistake for mistake in mistakes if (mistake.line, mistake.path) == (line, path)]
    assert any(hint in (mistake.hint or "") for mistake in about), mistakes
    assert about == mistakes


@pytest.mark.parametrize("name", [*spark_options.KEYS, *spark_options.NO_KEY])
def test_it_is_told_at_every_place_of_a_spec(name: str, write: Write) -> None:
    places: list[Place] = [
        (),
        ("kafka",),
        ("source",),
        ("source", "topics", "payments"),
        ("source", "topics", "payments", "value"),
        ("transform", 0),
        ("sinks", "lake"),
        ("sinks", "lake", "delta"),
        ("rate",),
        ("trigger",),
        ("spark",),
        ("observe",),
        ("dead_letters",),
    ]
    for place in places:
        data = YAML(typ="safe", pure=True).load(GOOD)
        inside = data
        for step in place:
            inside = inside[step] if isinstance(step, int) else inside.setdefault(step, {})
        if name in inside:
            continue  # `path` of Delta, say
        inside[name] = "x"
        file = write("")
        with file.open("w") as opened:
            YAML(typ="safe", pure=True).dump(data, opened)
        hints = [mistake.hint or "" for mistake in read(file)[1] if mistake.path.endswith(name)]
        known = name in shape.keys(Pipeline) and place == ()
        assert known or any("did you mean" in hint or "has no key here" in hint for hint in hints), place


def test_an_option_among_the_settings_of_spark_does_nothing_and_is_told(write: Write) -> None:
    text = GOOD + "spark: {conf: {maxOffsetsPerTrigger: 5, kafka.group.id: a, spark.sql.shuffle.partitions: 4}}\n"
    pipeline, warnings = read(write(text))
    assert pipeline is not None
    where = "spark.conf."
    assert short(warnings) == [
        (18, where + "maxOffsetsPerTrigger", "no-effect"),
        (18, where + "kafka.group.id", "no-effect"),
    ]
    assert warnings[0].hint == "did you mean 'rate.max_offsets'?"


def test_a_file_of_tests_knows_no_names_of_spark(write: Write) -> None:
    write(GOOD, "p.yaml")
    with pytest.raises(SpecInvalid) as refused:
        read_tests(write("cases: []\nstartingOffsets: earliest\n", "p.test.yaml"))
    assert "unknown key 'startingOffsets'; allowed: " in str(refused.value.cause)
