"""From a spec to the parts that run it: inlets, sinks, dead letters. The only place that knows every kind."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.decode.formats import Place, Prepared, prepare
from penstock.decode.stage import Decode
from penstock.kafka.connection import client_config
from penstock.kafka.schema_registry import SchemaRegistry, settings_of
from penstock.route.dead_letter import DeadLetters
from penstock.route.kafka_topic import DeadLetterTopics
from penstock.route.table import DeadLetterTable
from penstock.runtime.assemble import Assembly
from penstock.runtime.inlet import Inlet
from penstock.runtime.topics import TopicWatch
from penstock.sink.contract import Sink
from penstock.sink.delta import DeltaSink
from penstock.spec.formats import AnyFormat, FromRegistry
from penstock.spec.model import Pipeline
from penstock.spec.references import resolve
from penstock.transform.contract import Contract

_DEAD_LETTERS = "dead-letters"  # how errors and the table's history name the dead-letter table


def home(pipeline: Pipeline) -> Home:
    return Home(_path(pipeline, pipeline.checkpoint or f".penstock/{pipeline.name}"))


def backfill_home(pipeline: Pipeline, name: str) -> Home:
    return Home(home(pipeline).path / "backfill" / name)


def backfills(pipeline: Pipeline) -> list[str]:
    directory = home(pipeline).path / "backfill"
    return sorted(d.name for d in directory.iterdir() if d.is_dir()) if directory.is_dir() else []


def assembly(pipeline: Pipeline, at: Home | None = None, accepted: Iterable[str] = ()) -> Assembly:
    """The parts of a pipeline, on its own checkpoint or on a backfill's."""
    at = at or home(pipeline)
    ledger = Ledger(at.ledger)
    last = ledger.last()
    return Assembly(
        pipeline=pipeline,
        inlets=inlets(pipeline),
        sinks=sinks(pipeline),
        dead_letters=dead_letters(pipeline),
        log=SparkLog(at.spark),
        ledger=ledger,
        topics=TopicWatch(client_config(pipeline), pipeline.source, last.topics if last else {}),
        accepted=sorted(accepted),
    )


def inlets(pipeline: Pipeline) -> list[Inlet]:
    source, made = pipeline.source, []
    topics = {source.view_of(topic): topic for topic in source.topics}

    @lru_cache
    def registry() -> SchemaRegistry:
        return SchemaRegistry(settings_of(pipeline), home(pipeline).schemas)

    for view, read in source.reads().items():
        topic = topics.get(view)

        def prepared(part: str, how: AnyFormat, topic: str | None = topic) -> Prepared:
            return prepare(how, Place(pipeline.base, f"{topic}-{part}" if topic else None, registry))

        key = prepared("key", read.key) if read.key else None
        decode = Decode(topic, read, prepared("value", read.value), key)
        rules = tuple(pipeline.contract.get(view, ()))
        stop = isinstance(read.value, FromRegistry) and read.value.unreadable == "stop"
        contract = Contract(view, rules, read.value.tombstones == "drop", stop)
        made.append(Inlet(view, decode, contract, alone=len(source.reads()) == 1))
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
