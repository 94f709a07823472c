"""From a spec to the parts that run it: inlets, sinks, dead letters. The only place that knows every kind."""

from __future__ import annotations

from pathlib import Path

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.kafka.connection import client_config
from penstock.route.dead_letter import DeadLetters
from penstock.route.kafka_topic import DeadLetterTopics
from penstock.route.table import DeadLetterTable
from penstock.runtime.assemble import Assembly
from penstock.runtime.inlet import Inlet
from penstock.sink.contract import Sink
from penstock.sink.delta import DeltaSink
from penstock.spec.load import schema_of
from penstock.spec.model import Pipeline
from penstock.spec.references import resolve
from penstock.transform.contract import Contract

_DEAD_LETTERS = "dead-letters"  # name of the dead-letter table among the sinks; ends every id it leaves in a table


def home(pipeline: Pipeline) -> Home:
    return Home(_path(pipeline, pipeline.checkpoint or f".penstock/{pipeline.name}"))


def assembly(pipeline: Pipeline) -> Assembly:
    at = home(pipeline)
    return Assembly(
        pipeline=pipeline,
        inlets=inlets(pipeline),
        sinks=sinks(pipeline),
        dead_letters=dead_letters(pipeline),
        log=SparkLog(at.spark),
        ledger=Ledger(at.ledger),
    )


def inlets(pipeline: Pipeline) -> list[Inlet]:
    made = []
    for topic, settings in pipeline.source.topics.items():
        view = pipeline.source.view_of(topic)
        rules = tuple(pipeline.contract.get(view, ()))
        contract = Contract(view, rules, settings.value.tombstones == "drop")
        struct = schema_of(pipeline, topic).struct()
        made.append(Inlet(topic, view, settings, struct, contract, alone=len(pipeline.source.topics) == 1))
    return made


def sinks(pipeline: Pipeline) -> dict[str, Sink]:
    return {
        name: DeltaSink(name, _path(pipeline, sink.delta.path), tuple(sink.delta.partition_by))
        for name, sink in pipeline.sinks.items()
    }


def dead_letters(pipeline: Pipeline) -> DeadLetters:
    to = pipeline.dead_letters
    if to.delta:
        return DeadLetterTable(DeltaSink(_DEAD_LETTERS, _path(pipeline, to.delta.path)), pipeline.name)
    assert to.kafka is not None  # the model allows exactly one of the two
    return DeadLetterTopics(client_config(pipeline), pipeline.name, to.kafka.topic, tuple(pipeline.source.topics))


def _path(pipeline: Pipeline, text: str) -> Path:
    return pipeline.base / resolve(text, pipeline.base)
