"""From a spec to the parts that run it: inlets, sinks, dead letters. The only place that knows every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.decode.formats import Place, Prepared, prepare
from penstock.decode.stage import Decode
from penstock.encode.stage import Encoding
from penstock.kafka.connection import client_config, spark_options
from penstock.kafka.schema_registry import SchemaRegistry, settings_of
from penstock.route.dead_letter import DeadLetters
from penstock.route.kafka_topic import DeadLetterTopics
from penstock.route.table import DeadLetterTable
from penstock.runtime.assemble import Assembly
from penstock.runtime.inlet import Inlet
from penstock.runtime.outlet import Outlet
from penstock.runtime.topics import TopicWatch
from penstock.sink.contract import Sink
from penstock.sink.delta import DeltaSink
from penstock.sink.kafka.exactly_once import KafkaSink
from penstock.sink.kafka.stock import StockKafkaSink
from penstock.spec import sinks as spec
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
        outlets=outlets(pipeline),
        dead_letters=dead_letters(pipeline),
        log=SparkLog(at.spark),
        ledger=ledger,
        topics=TopicWatch(client_config(pipeline), pipeline.source, last.topics if last else {}),
        accepted=sorted(accepted),
    )


def inlets(pipeline: Pipeline) -> list[Inlet]:
    source, made = pipeline.source, []
    topics = {source.view_of(topic): topic for topic in source.topics}

    registry = _registry(pipeline)

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


def _registry(pipeline: Pipeline) -> Callable[[], SchemaRegistry]:
    """One for all who ask. Raises SpecInvalid when the spec names none."""
    return lru_cache(lambda: SchemaRegistry(settings_of(pipeline), home(pipeline).schemas))


def outlets(pipeline: Pipeline) -> list[Outlet]:
    return [Outlet(_sink(pipeline, name, sink), sink.from_, sink.where) for name, sink in pipeline.sinks.items()]


def _sink(pipeline: Pipeline, name: str, sink: spec.Sink) -> Sink:
    match sink:
        case spec.Sink(delta=spec.DeltaTable() as to):
            return DeltaSink(name, _path(pipeline, to.path), tuple(to.partition_by), to.evolve is not None)
        case spec.Sink(kafka=spec.KafkaTopic() as topic):
            encoding = Encoding(name, topic, pipeline.base, _registry(pipeline))
            config = client_config(pipeline)
            if topic.guarantee == "at-least-once":
                return StockKafkaSink(name, config, spark_options(pipeline), encoding)
            return KafkaSink(name, config, encoding, topic.guarantee, tuple(pipeline.source.topics), topic.origin)
    raise AssertionError(sink)


def dead_letters(pipeline: Pipeline) -> DeadLetters:
    to = pipeline.dead_letters
    if to.delta:
        return DeadLetterTable(DeltaSink(_DEAD_LETTERS, _path(pipeline, to.delta.path)), pipeline.name)
    assert to.kafka is not None  # the model allows exactly one of the two
    return DeadLetterTopics(client_config(pipeline), pipeline.name, to.kafka.topic, tuple(pipeline.source.topics))


def _path(pipeline: Pipeline, text: str) -> Path:
    return pipeline.base / resolve(text, pipeline.base)
