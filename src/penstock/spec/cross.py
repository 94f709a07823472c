"""Mistakes that only show when two parts of a spec are seen together."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.errors import counted
from penstock.record import no_column
from penstock.spec.fields import Schema
from penstock.spec.formats import CsvFormat, JsonFormat
from penstock.spec.idle_keys import idle_keys
from penstock.spec.local_path import plain
from penstock.spec.real_time import real_time_mistakes
from penstock.spec.start import StartAt
from penstock.spec.stateful_check import late_view_names, stateful_mistakes
from penstock.spec.step_mistakes import step_mistakes
from penstock.spec.types import Array, Map, Struct
from penstock.spec.words import TOPIC_NAME, VIEW_NAME

if TYPE_CHECKING:
    from penstock.spec.model import Pipeline, Rate
    from penstock.spec.sinks import Sink
    from penstock.spec.source import Source

CrossMistake = tuple[tuple[str | int, ...], str, list[str]]
"""Where, what, and the names that are allowed there."""


def cross_check(spec: Pipeline) -> list[CrossMistake]:
    """Mistakes that only show when two parts are seen together: (where, what, names that are allowed
    there).
    """
    found = _view_mistakes(spec)
    source_views = list(spec.source.reads())
    for view in spec.contract:
        if view not in source_views:
            found.append((("contract", view), f"no source view '{view}'", source_views))
    for view, rules in spec.contract.items():
        names = [rule.name for rule in rules]
        for i, name in enumerate(names):
            if name in names[:i]:
                found.append((("contract", view, i, "name"), f"rule '{name}' is defined twice", []))
    views = [*source_views, *(step.view for step in spec.transform), *late_view_names(spec.transform)]
    for name, sink in spec.sinks.items():
        if sink.from_ not in views:
            found.append((("sinks", name, "from"), f"no view '{sink.from_}'", views))
    return (
        found
        + _source_mistakes(spec.source)
        + list(idle_keys(spec.source))
        + _registry_mistakes(spec)
        + _target_mistakes(spec)
        + _rate_mistakes(spec.rate)
        + list(step_mistakes(spec))
        + list(stateful_mistakes(spec))
        + real_time_mistakes(spec)
    )


def _rate_mistakes(rate: Rate) -> list[CrossMistake]:
    found: list[CrossMistake] = []
    if rate.min_offsets is not None and rate.min_offsets > rate.max_offsets:
        text = f"a batch cannot wait for {counted(rate.min_offsets, 'offset')} and read at most {rate.max_offsets}"
        found.append((("rate", "min_offsets"), text, []))
    if rate.max_delay is not None and rate.min_offsets is None:
        found.append((("rate", "max_delay"), "nothing waits without `min_offsets`", []))
    if rate.floor is not None and rate.floor > rate.max_offsets:
        found.append((("rate", "floor"), f"`max_offsets`, the first cap, is below it: {rate.max_offsets}", []))
    if rate.ceiling is not None and rate.ceiling < rate.max_offsets:
        found.append((("rate", "ceiling"), f"`max_offsets`, the first cap, is above it: {rate.max_offsets}", []))
    for name in ("floor", "ceiling", "by_restart"):
        if getattr(rate, name) and rate.target_batch is None:
            found.append((("rate", name), "the cap is fixed without `target_batch`", []))
    return found


def _source_mistakes(source: Source) -> list[CrossMistake]:
    found: list[CrossMistake] = []
    for at, how in source.formats().items():
        schema = getattr(how, "schema_", None)
        if isinstance(schema, Schema):
            for field, text in field_mistakes(schema, flat=isinstance(how, CsvFormat)):
                found.append(((*at, "schema", "fields", field), text, []))
    assigned = [name for name, topic in source.topics.items() if topic.partitions is not None]
    for name in source.topics if assigned else ():
        if name not in assigned:
            text = f"topic '{assigned[0]}' says which partitions are read, so topic '{name}' must too"
            found.append((("source", "topics", name), text, []))
    for name, topic in source.topics.items():
        for i, partition in enumerate(topic.partitions or ()):
            if partition in (topic.partitions or ())[:i]:
                where = ("source", "topics", name, "partitions", i)
                found.append((where, f"partition {partition} is there twice", []))
    named = source.start.names() if isinstance(source.start, StartAt) else set()
    kind = "timestamp" if isinstance(source.start, StartAt) and source.start.offsets is None else "offsets"
    for name in sorted(named):
        if name not in source.topics and not (source.pattern and source.pattern.matches(name)):
            found.append((("source", "start", kind, name), f"no source topic '{name}'", list(source.topics)))
    return found


def field_mistakes(schema: Schema, *, flat: bool) -> Iterator[tuple[str, str]]:
    """What a sound schema must not have here: names that no column has and, where it is `flat`, nested types.

    Also called for schemas in files of their own.
    """
    for name, field in schema.fields.items():
        if why := no_column(name):
            yield name, why
        if flat and isinstance(field.resolved(), Array | Map | Struct):
            yield name, f"a field of a CSV line cannot be '{field.type}': it has no nested types"


def _registry_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Formats whose schemas are in a registry, in a spec that names none."""
    if spec.registry is not None:
        return []
    return [(at, f"{how.format}: {why}", []) for at, how in spec.formats().items() if (why := _asks_registry(how))]


def _asks_registry(how: object) -> str | None:
    add = "the spec names none: add `registry: {url: ...}`"
    if isinstance(how, JsonFormat):
        return f"without `schema` a registry is asked for it, and {add}, or a `schema`" if how.schema_ is None else None
    if getattr(how, "wire", "raw") == "registry":
        return f"its records carry the id of a schema in a registry, and {add}, or `wire: raw` where they carry no id"
    return None


def _view_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Views are told apart as Spark SQL does: without regard to case."""
    found: list[CrossMistake] = []
    views: dict[str, str] = {}
    if spec.source.pattern:
        views[spec.source.pattern.view.lower()] = "pattern"
    for topic in spec.source.topics:
        view = spec.source.view_of(topic)
        where = ("source", "topics", topic)
        if re.fullmatch(TOPIC_NAME, topic) and not re.fullmatch(VIEW_NAME, view):
            found.append((where, f"the topic's name makes no view name ('{view}'): give it one with `view`", []))
        if view.lower() in views:
            found.append((where, f"topic '{topic}' and topic '{views[view.lower()]}' have the same view '{view}'", []))
        views.setdefault(view.lower(), topic)
    for i, step in enumerate(spec.transform):
        if step.view.lower() in views:
            found.append((("transform", i, "view"), f"view '{step.view}' is defined twice", []))
        views.setdefault(step.view.lower(), step.view)
    for i, step in enumerate(spec.transform):
        for late in late_view_names([step]):
            if late.lower() in views:
                found.append((("transform", i, "view"), f"its late rows have the view '{late}', which is there", []))
    return found


def _target(sink: Sink) -> tuple[tuple[str, ...], str | None]:
    """Where a sink says what it writes to, and what that is; None where several may write to it."""
    if sink.delta:
        return ("delta", "path"), _directory(sink.delta.path)
    if sink.parquet:
        return ("parquet", "path"), _directory(sink.parquet.path)
    if sink.iceberg:
        return ("iceberg", "table"), f"{sink.iceberg.catalog.name}:{sink.iceberg.table}"
    if sink.postgres:
        return ("postgres", "table"), f"{sink.postgres.url} {sink.postgres.table}"
    if sink.memory:
        return ("memory", "table"), f"\0{sink.memory.table}"
    return (), None


def _directory(written: str) -> str:
    return posixpath.normpath(plain(written))


def _target_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Two writers of one table break each other's exactly-once; dead letters into a source topic never
    end.
    """
    found: list[CrossMistake] = []
    tables: dict[str, str] = {}
    for name, sink in spec.sinks.items():
        where, target = _target(sink)
        other = tables.setdefault(target, f"sink '{name}'") if target else f"sink '{name}'"
        if other != f"sink '{name}'":
            found.append((("sinks", name, *where), f"{other} writes to the same table", []))
    catalogs: dict[str, object] = {}
    for name, sink in spec.sinks.items():
        if (
            sink.iceberg
            and catalogs.setdefault(sink.iceberg.catalog.name, sink.iceberg.catalog) != sink.iceberg.catalog
        ):
            text = f"catalog '{sink.iceberg.catalog.name}' is another one elsewhere: give it a `name` of its own"
            found.append((("sinks", name, "iceberg", "catalog"), text, []))
    dead = spec.dead_letters
    if dead.delta and (sharing := tables.get(_directory(dead.delta.path))):
        found.append((("dead_letters", "delta", "path"), f"{sharing} writes to the same table", []))
    if dead.kafka:
        where = ("dead_letters", "kafka", "topic")
        pattern = spec.source.pattern
        if pattern and "{topic}" in dead.kafka.topic:
            text = (
                "with `pattern` one topic takes all dead letters, because topics that join later have none of their "
                "own: add `dead_letters: {kafka: {topic: NAME}}`"
            )
            found.append((where, text, []))
        targets = {dead.kafka.topic.replace("{topic}", topic) for topic in spec.source.topics or [""]}
        for target in sorted(targets):
            if spec.source.reads_topic(target):
                found.append((where, f"dead letters would be read again: '{target}' is a source topic", []))
    for name, sink in spec.sinks.items():
        topic = sink.kafka.topic if sink.kafka else None
        if topic and spec.source.reads_topic(topic):
            text = f"what is written would be read again: '{topic}' is a source topic"
            found.append((("sinks", name, "kafka", "topic"), text, []))
        if topic and dead.kafka and topic in targets:
            found.append((("sinks", name, "kafka", "topic"), f"dead letters go to '{topic}'", []))
    return found
