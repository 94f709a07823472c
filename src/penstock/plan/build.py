"""From a spec to the parts that run it: inlets, sinks, dead letters. The only place that knows every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

from penstock.batch.budget import TOGETHER, Spending
from penstock.batch.first_records import FirstRecords
from penstock.batch.output import Outlet
from penstock.batch.run import Assembly
from penstock.batch.source_view import Inlet
from penstock.batch.stateful.flow import flow
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.contract.verdict import Contract
from penstock.deadletters.store import dead_letters
from penstock.decode.formats import Place, Prepared, prepare
from penstock.decode.readers import Readers
from penstock.decode.stage import Decode
from penstock.encode.stage import Encoding
from penstock.errors import ANEW
from penstock.kafka.connection import client_config, spark_options
from penstock.record import Batch
from penstock.registry.client.registry import SchemaRegistry, settings_of
from penstock.registry.client.rehearsal import PatientRegistry
from penstock.registry.client.schema import GivenUp, Lookup
from penstock.sinks.contract import Sink
from penstock.sinks.delta.append import DeltaSink
from penstock.sinks.delta.maintenance import Maintenance, Schedule
from penstock.sinks.delta.upsert import DeltaUpsertSink
from penstock.sinks.iceberg.catalog import HadoopCatalog, JdbcCatalog
from penstock.sinks.iceberg.sink import IcebergSink
from penstock.sinks.kafka.exactly_once import KafkaSink
from penstock.sinks.kafka.stock import StockKafkaSink
from penstock.sinks.parquet.sink import ParquetSink
from penstock.sinks.postgres.sink import PostgresSink
from penstock.sinks.tryout import ConsoleSink, MemorySink
from penstock.source.topics import TopicWatch
from penstock.spec import sinks as spec
from penstock.spec.formats import AnyFormat, FromRegistry
from penstock.spec.model import Pipeline
from penstock.spec.real_time import batch_of
from penstock.spec.references import located, resolve
from penstock.transform.reference.copies import Copies
from penstock.transform.reference.sources import TableSources
from penstock.transform.reference.tables import Tables
from penstock.transform.state_limits import gets_all, time_rules_of
from penstock.transform.steps import Transform


def assembly(pipeline: Pipeline, at: Home | None = None, accepted: Iterable[str] = ()) -> Assembly:
    """The parts of a pipeline, on its own checkpoint or on a backfill's."""
    at = at or Home.of(pipeline)
    ledger = Ledger(at.ledger)
    last = ledger.last()
    allowed = pipeline.dead_letters.allowed
    following, steps = readers(pipeline), transform(pipeline, tables(pipeline, at))
    registering = lru_cache(lambda: PatientRegistry(settings_of(pipeline), Home.of(pipeline).schemas))
    fixed = batch_of(pipeline.trigger) is not None or SparkLog(at.spark).stateful
    return Assembly(
        pipeline=pipeline,
        transform=steps,
        flow=flow(pipeline, steps, SparkLog(at.spark), at.path),
        readers=following,
        inlets=inlets(pipeline, following),
        began=last.start if last else pipeline.source.start_text(),
        make_inlets=lambda: inlets(pipeline, following),
        outlets=outlets(pipeline, registering),
        registering=registering if _registers(pipeline) else None,
        dead_letters=dead_letters(pipeline),
        log=SparkLog(at.spark),
        ledger=ledger,
        topics=TopicWatch(
            client_config(pipeline), pipeline.source, last.topics if last else {}, ANEW if fixed else None
        ),
        accepted=sorted(accepted),
        budget=Spending.since(allowed, ledger.recent(TOGETHER)) if allowed else None,
        first_records=None if pipeline.dead_letters.budget else FirstRecords.since(pipeline, ledger.entries()),
    )


def _registers(pipeline: Pipeline) -> bool:
    written = [how for sink in pipeline.sinks.values() if sink.kafka for how in (sink.kafka.key, sink.kafka.value)]
    return any(getattr(how, "register_", False) for how in written)


def transform(pipeline: Pipeline, references: Tables | None = None) -> Transform:
    """Without `references` the copies are used that the pipeline has, and none are made."""
    found = references or tables(pipeline, None, Home.of(pipeline))
    return Transform(tuple(pipeline.transform), pipeline.base, found)


def tables(pipeline: Pipeline, at: Home | None, known: Home | None = None) -> Tables:
    """`at`: where copies are kept. `known`: where there are some that are only read."""
    mine, seen = (Copies(each.references) if each else None for each in (at, known))
    committed = SparkLog(at.spark).committed if at else lambda: None
    return Tables(pipeline, TableSources(pipeline, lambda: readers(pipeline)), mine, seen, committed)


def readers(
    pipeline: Pipeline, registry: Callable[[], SchemaRegistry] | None = None, kept: Path | None = None
) -> Readers:
    """`registry` and `kept`: asked, and written to, instead of the spec's registry and the pipeline's home."""
    kinds = [kind for sink in pipeline.sinks.values() for kind in (sink.delta, sink.parquet, sink.iceberg) if kind]
    add = any(kind.evolve is not None for kind in kinds)
    return Readers(registry or _registry(pipeline), kept or Home.of(pipeline).schemas, add=add)


def inlets(pipeline: Pipeline, following: Readers | None = None) -> list[Inlet]:
    """How each view is read, with the schemas of now."""
    reading = following or readers(pipeline)
    return [inlet(pipeline, view, reading) for view in pipeline.source.reads()]


def inlet(pipeline: Pipeline, view: str, reading: Readers) -> Inlet:
    source = pipeline.source
    read = source.reads()[view]
    topic = next((topic for topic in source.topics if source.view_of(topic) == view), None)

    def lookup() -> Lookup:
        registry = reading.registry()
        return GivenUp(registry.by_id, registry.kept) if reading.given_up else registry.by_id

    def prepared(part: str, how: AnyFormat) -> Prepared:
        return prepare(how, Place(pipeline.base, f"{topic}-{part}" if topic else None, reading.schema, lookup))

    key = prepared("key", read.key) if read.key else None
    decode = Decode(topic, read, prepared("value", read.value), key)
    rules = (*pipeline.contract.get(view, ()), *time_rules_of(pipeline, view))
    contract = Contract(view, rules, read.value.tombstones == "drop", _stops(read.value), _stops(read.key))
    return Inlet(view, decode, contract, alone=len(source.reads()) == 1)


def _stops(how: AnyFormat | None) -> bool:
    return isinstance(how, FromRegistry) and how.unreadable == "stop"


def _registry(pipeline: Pipeline) -> Callable[[], SchemaRegistry]:
    """One for all who ask. Raises SpecInvalid when the spec names none."""
    return lru_cache(lambda: SchemaRegistry(settings_of(pipeline), Home.of(pipeline).schemas))


def outlets(pipeline: Pipeline, registry: Callable[[], SchemaRegistry] | None = None) -> list[Outlet]:
    """`registry`: the one that sinks take schemas from, and register them in, instead of the spec's."""
    asked = registry or _registry(pipeline)
    return [Outlet(_sink(pipeline, name, sink, asked), sink.from_, sink.where) for name, sink in pipeline.sinks.items()]


def _sink(pipeline: Pipeline, name: str, sink: spec.Sink, registry: Callable[[], SchemaRegistry]) -> Sink:
    match sink:
        case spec.Sink(delta=spec.DeltaTable() as to):
            return _delta(pipeline, name, to)
        case spec.Sink(parquet=spec.ParquetFiles() as to):
            return ParquetSink(name, located(to.path, pipeline.base), tuple(to.partition_by), to.evolve is not None)
        case spec.Sink(iceberg=spec.IcebergTable() as to):
            key, order_by = _key(to.upsert)
            catalog = _catalog(pipeline, to.catalog)
            return IcebergSink(name, to.table, catalog, tuple(to.partition_by), key, order_by, to.evolve is not None)
        case spec.Sink(postgres=spec.PostgresTable() as to):
            return PostgresSink(name, resolve(to.url, pipeline.base), to.table, *_key(to.upsert))
        case spec.Sink(console=spec.Console() as to):
            return ConsoleSink(name, to.rows)
        case spec.Sink(memory=spec.MemoryTable() as to):
            return MemorySink(name, to.table, to.max_rows, whole=gets_all(pipeline, sink.from_))
        case spec.Sink(kafka=spec.KafkaTopic() as to):
            encoding, config = Encoding(name, to, pipeline.base, registry), client_config(pipeline)
            if to.guarantee == "at-least-once":
                return StockKafkaSink(name, config, spark_options(pipeline), encoding)
            sources = tuple(pipeline.source.topics)
            return KafkaSink(name, config, encoding, to.guarantee, sources, to.origin, to.transaction_timeout)
    raise AssertionError(sink)


def _delta(pipeline: Pipeline, name: str, to: spec.DeltaTable) -> Sink:
    place, evolve = located(to.path, pipeline.base), to.evolve is not None
    upkeep = None
    if to.optimize or to.vacuum:
        schedule = Schedule(
            optimize_every=to.optimize.every if to.optimize else None,
            vacuum_every=to.vacuum.every if to.vacuum else None,
            keep=to.vacuum.keep if to.vacuum else spec.Vacuum.model_fields["keep"].default,
            target_size=to.optimize.target_mb * 1_000_000 if to.optimize and to.optimize.target_mb else None,
            at_most=to.at_most,
        )
        upkeep = Maintenance(place, schedule)
    if to.upsert is None:
        return DeltaSink(name, place, tuple(to.partition_by), evolve, upkeep)
    return DeltaUpsertSink(name, place, *_key(to.upsert), tuple(to.partition_by), evolve, upkeep)


def _catalog(pipeline: Pipeline, to: spec.IcebergHadoop | spec.IcebergJdbc) -> HadoopCatalog | JdbcCatalog:
    warehouse = located(to.warehouse, pipeline.base)
    if isinstance(to, spec.IcebergHadoop):
        return HadoopCatalog(warehouse, to.name)

    def later(text: str) -> Callable[[], str]:
        return lambda: resolve(text, pipeline.base)

    user, password = (None if text is None else later(text) for text in (to.user, to.password))
    return JdbcCatalog(later(to.uri), warehouse, user, password, to.name)


def _key(upsert: spec.Upsert | None) -> tuple[tuple[str, ...], str | None]:
    return (tuple(upsert.key), upsert.order_by) if upsert else ((), None)


def holders(pipeline: Pipeline, batch: Batch) -> list[str]:
    """Who holds some of a batch that did not end. With the lock held: whoever could still add to it is fenced."""
    found = [f"sink '{outlet.sink.name}'" for outlet in outlets(pipeline) if outlet.sink.holds(batch)]
    if dead_letters(pipeline).written(batch) is not None:
        found.append("the dead letters")
    return found


def hold_some(holders: list[str]) -> str:
    return f"{' and '.join(holders)} hold{'s' * (len(holders) == 1)} some of it"
