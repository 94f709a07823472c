"""What `penstock plan` says: what a run would do and guarantee, and everything that would stop it. Changes nothing.

The parts are those of a run, with what they would write turned aside: files go to a directory that is removed again
(the engine's log, the reader schemas that a start writes down), schemas to a registry that only looks them up. The lock
of the checkpoint is not taken, so that a pipeline can be planned while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from penstock.batch.run import Assembly
from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.home import Home
from penstock.checkpoint.scratch import set_aside
from penstock.errors import (
    BatchTooLarge,
    CheckpointMissing,
    JavaMissing,
    LedgerMissing,
    NotWritable,
    PenstockError,
    RegistryUnreachable,
    TopicMissing,
)
from penstock.kafka import admin, reshape
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import client_config
from penstock.kafka.differences import Difference
from penstock.lifecycle import diagnosis, preconditions, stream
from penstock.lifecycle.changes import Change, changes_of
from penstock.lifecycle.realtime import run as realtime
from penstock.lifecycle.realtime import same_mode
from penstock.plan import build, outline
from penstock.registry.client.registry import settings_of
from penstock.registry.client.rehearsal import Registration, RegistryRehearsal
from penstock.sinks.parquet.sink import ParquetSink
from penstock.source import position
from penstock.source.position import Standing
from penstock.spark import jars, java, session
from penstock.spec.formats import BytesFormat
from penstock.spec.model import Pipeline, TopicSettings
from penstock.spec.real_time import batch_of
from penstock.spec.topics import topics_to_make
from penstock.transform.reference.tables import TableFacts
from penstock.transform.state_limits import require_same_steps
from penstock.watch import Report, Watch, unheard

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    java: int | None  # major version; None where there is no suitable one
    groups: list[str]
    jars: int
    downloaded: int
    megabytes: float  # to be downloaded by the first run


@dataclass
class Plan:
    pipeline: str
    checkpoint: str
    path: outline.Path
    routes: list[outline.Route]
    engine: Engine
    running: int | None = None  # process id of a run that goes on
    references: list[TableFacts] = field(default_factory=list)  # those that could be read
    schemas: list[Registration] = field(default_factory=list)
    missing_topics: dict[str, TopicSettings] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    standing: Standing | None = None
    changes: list[Change] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    way: str | None = None  # how records get from decode to the sinks; None while something is wrong
    problems: list[PenstockError] = field(default_factory=list)


@dataclass
class _Findings(Watch):
    problems: list[PenstockError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    told: Report = unheard  # that the engine's start takes long

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def attempt(self, what: Callable[[], T]) -> T | None:
        try:
            return what()
        except PenstockError as error:
            self.problems.append(error)
            return None


def plan(pipeline: Pipeline, accept: Collection[str] = (), waiting: Report = unheard) -> Plan:
    """In the order of `supervise.run`, so that the first problem is the one that a run would end with."""
    home, config, accepted = Home.of(pipeline), client_config(pipeline), frozenset(accept)
    found = _Findings(told=waiting)
    running = position.running(home)
    registry = lru_cache(lambda: RegistryRehearsal(settings_of(pipeline)))
    with set_aside(pipeline, home) as aside:
        found.attempt(lambda: _require_writable(home))
        at = _guarded(pipeline, home, accepted, Home(Home.of(aside).path / "anew"), found)
        assembly = _assembly(aside, at or home, accept, found)
        if assembly:
            tables = build.tables(aside, Home.of(aside), at or home)
            tables.heard_by(found)
            steps = build.transform(aside, tables)
            assembly = replace(assembly, outlets=build.outlets(aside, registry), transform=steps)
        there = found.attempt(lambda: admin.topics(config))
        path = outline.path_of(pipeline, there)
        made = Plan(pipeline.name, str(home.path), path, [], _engine(pipeline), running)
        if there is None:
            found.unchecked.append("topics, what sinks and dead letters hold, positions: Kafka did not answer")
        else:
            made.missing_topics = {name: of for name, of in topics_to_make(pipeline).items() if name not in there}
            made.differences = reshape.compare(config, pipeline, there)
        if at is None:
            names = there.keys() if there is not None else pipeline.source.topics
            made.changes = changes_of(pipeline, home, (name for name in names if pipeline.source.reads_topic(name)))
            found.unchecked.append("what sinks hold, positions: checkpoint and ledger do not agree")
        topics = None
        if there is not None and at is not None and assembly is not None:
            topics = _compare_places(pipeline, assembly, there, home, found, made)
        if at is not None:
            found.attempt(lambda: require_same_steps(pipeline, at))
        if topics is not None and assembly is not None:
            _compare_positions(pipeline, assembly, topics, home, found, made)
        if assembly is not None:
            _settle(aside, assembly, made.engine, found, None if there is None else path.topics)
            made.way = assembly.way_in_words()
            made.references = tables.facts()
        made.routes = outline.routes_of(
            pipeline, assembly.outlets if assembly else [], assembly.dead_letters_guarantee if assembly else None
        )
        if batch_of(pipeline.trigger) is not None:
            made.way = realtime.WAY if made.way else None
            made.routes = [replace(route, guarantee=realtime.GUARANTEE, mode=None, why=None) for route in made.routes]
    if pipeline.registry and not any(isinstance(each, RegistryUnreachable) for each in found.problems):
        try:
            registry().subjects()
        except PenstockError as error:
            found.unchecked.append(f"schemas newer than those seen before: {error.what} ({error.cause})")
    made.schemas = list(registry().registrations.values()) if pipeline.registry else []
    made.problems = diagnosis.distinct(_without_log(found.problems, Home.of(aside), home))
    made.warnings, made.unchecked = found.warnings, found.unchecked
    return made


def _guarded(pipeline: Pipeline, home: Home, accepted: frozenset[str], anew: Home, found: _Findings) -> Home | None:
    """The checkpoint that a run would go on with; None where it would not."""

    def check() -> list[PenstockError]:
        try:  # accepted or not, the guard must not set the ledger aside now
            same_mode.check(home, pipeline)
            mended = {LedgerMissing.code} if same_mode.mendable(home) else set()
            preconditions.check(home, pipeline.name, (accepted | mended) - {CheckpointMissing.code})
            if BatchTooLarge.code not in accepted:
                Attempts(home).check(accepted)
        except PenstockError as error:
            return [error]
        return []

    wrong = _steady(home, check)
    if CheckpointMissing.code in accepted and any(isinstance(each, CheckpointMissing) for each in wrong):
        found.warn("a new query begins: the checkpoint is gone, and the ledger of the old one will be set aside")
        return anew
    found.problems += wrong
    return None if wrong else home


def _assembly(aside: Pipeline, at: Home, accept: Collection[str], found: _Findings) -> Assembly | None:
    """The parts of a run. Where a format's schema is not to be had, sinks and topics can still be looked at."""
    made = found.attempt(lambda: build.assembly(aside, at, accept))
    if made is None:
        found.problems += diagnosis.of_schemas(aside)
        found.unchecked.append("rules, steps and the columns of sinks: what is read has no schema")
        source, plain = aside.source, {"value": BytesFormat(format="bytes"), "key": None}
        topics = {name: topic.model_copy(update=plain) for name, topic in source.topics.items()}
        pattern = source.pattern.model_copy(update=plain) if source.pattern else None
        as_bytes = source.model_copy(update={"topics": topics, "pattern": pattern})
        reading_bytes = aside.model_copy(update={"source": as_bytes})
        made = found.attempt(lambda: replace(build.assembly(reading_bytes, at, accept), inlets=[]))
    return made


def _compare_places(
    pipeline: Pipeline, assembly: Assembly, there: dict[str, TopicFacts], home: Home, found: _Findings, made: Plan
) -> dict[str, TopicFacts] | None:
    """Topics, sinks and dead letters against checkpoint and ledger. Returns the topics that would be read; None where
    they are not those that were read."""
    source = pipeline.source
    subscription = found.attempt(lambda: stream.subscribed(pipeline, assembly, found))
    # A Parquet directory that is prepared loses what dead attempts left beside it; those of a run are not dead.
    swept = [outlet.sink.name for outlet in assembly.outlets if isinstance(outlet.sink, ParquetSink)]
    found.unchecked += [f"what sink '{name}' holds: its directory is looked at by the run" for name in swept]
    places = replace(assembly, outlets=[outlet for outlet in assembly.outlets if outlet.sink.name not in swept])
    found.problems += _steady(home, lambda: diagnosis.of_places(places, frozenset(assembly.accepted)))
    stream.report_ignored_start(pipeline, assembly, found)
    topics = subscription.topics if subscription else {n: f for n, f in there.items() if source.reads_topic(n)}
    made.changes = changes_of(pipeline, home, {*topics, *source.topics})
    if subscription is None and any(not isinstance(each, TopicMissing) for each in found.problems):
        found.unchecked.append("positions: the topics are not those that were read")
        return None
    return topics


def _compare_positions(
    pipeline: Pipeline, assembly: Assembly, topics: dict[str, TopicFacts], home: Home, found: _Findings, made: Plan
) -> None:
    """Kafka's offsets against the checkpoint."""
    source, config = pipeline.source, client_config(pipeline)

    def stands() -> list[PenstockError]:
        made.standing = position.standing(config, source, assembly.log, topics)
        refused = position.refusals(made.standing, source)
        lost = position.vanished(made.standing)
        if lost is not None and source.on_data_loss == "continue":
            found.warn(f"{lost.what}, and will be skipped: {lost.cause}")
        return refused

    found.problems += found.attempt(lambda: _steady(home, stands)) or []


def _settle(
    aside: Pipeline, assembly: Assembly, engine: Engine, found: _Findings, topics: list[outline.SourceTopic] | None
) -> None:
    """Resolve rules, steps and columns in the engine, over no rows."""
    if not assembly.inlets:
        return
    # Nothing is read or written, so jars that are not there yet are not needed; downloading them is for the run.
    whole = [group for group in engine.groups if all(jar.cached for jar in jars.pinned([group]))]
    spark = found.attempt(lambda: session.start(aside, Home.of(aside).logs, whole, found.told))
    if spark is None:
        found.unchecked.append("rules, steps and the columns of sinks: the engine does not start")
        return
    wrong = diagnosis.of_plan(spark, assembly)
    if not wrong and batch_of(aside.trigger) is not None:
        partitions = None if topics is None else sum(topic.partitions or 0 for topic in topics)
        wrong = realtime.problems(spark, assembly, partitions)
    found.problems += wrong
    with suppress(PenstockError):  # a step that does not resolve is a problem already
        found.warnings += assembly.warnings(spark)


def _engine(pipeline: Pipeline) -> Engine:
    groups = session.groups_for(pipeline)
    pinned = jars.pinned(groups)
    missing = [jar for jar in pinned if not jar.cached]
    try:
        major = java.find().major
    except JavaMissing:  # starting the engine will say so
        major = None
    to_load = round(sum(jar.size for jar in missing) / 1e6, 1)
    return Engine(major, groups, len(pinned), len(pinned) - len(missing), to_load)


def _require_writable(home: Home) -> None:
    """What `Home.held` would stumble over."""
    place = next(path for path in (home.path, *home.path.parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise NotWritable(
            f"cannot write to the checkpoint directory {home.path}",
            cause=f"{place} is not a directory this user can write to",
            next_command=f"make {place} a writable directory, or change `checkpoint:`",
        )


def _without_log(problems: list[PenstockError], aside: Home, home: Home) -> list[PenstockError]:
    """The engine's log goes with what was set aside. A run ends the same way before it reads anything, and keeps it."""
    for problem in problems:
        if problem.next_command and str(aside.path) in problem.next_command:
            log = home.logs / session.LOG_NAME
            problem.next_command = f"penstock run FILE, which ends the same way; then: read {log}"
    return problems


def _steady(home: Home, look: Callable[[], list[PenstockError]]) -> list[PenstockError]:
    """What is wrong, and stays wrong: between two reads a run that goes on may have ended a batch."""
    found: list[PenstockError] = []
    for _ in position.looks(home):
        found = look()
        if not found:
            break
    return found
