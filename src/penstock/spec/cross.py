"""Mistakes that only show when two parts of a spec are seen together."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from penstock.record import ERROR, KAFKA, RULE
from penstock.spec.fields import Schema
from penstock.spec.words import TOPIC_NAME, VIEW_NAME

if TYPE_CHECKING:
    from penstock.spec.model import Pipeline

CrossMistake = tuple[tuple[str | int, ...], str, list[str]]
"""Where, what, and the names that are allowed there."""


def cross_check(spec: Pipeline) -> list[CrossMistake]:
    """Mistakes that only show when two parts are seen together: (where, what, names that are allowed
    there).
    """
    found = _view_mistakes(spec)
    source_views = list(spec.source.views())
    for view in spec.contract:
        if view not in source_views:
            found.append((("contract", view), f"no source view '{view}'", source_views))
    for view, rules in spec.contract.items():
        names = [rule.name for rule in rules]
        for i, name in enumerate(names):
            if name in names[:i]:
                found.append((("contract", view, i, "name"), f"rule '{name}' is defined twice", []))
    views = [*source_views, *(step.view for step in spec.transform)]
    for name, sink in spec.sinks.items():
        if sink.from_ not in views:
            found.append((("sinks", name, "from"), f"no view '{sink.from_}'", views))
    for topic, read in spec.source.topics.items():
        schema = read.value.schema_
        if isinstance(schema, Schema):
            for field in reserved_in(schema):
                where = ("source", "topics", topic, "value", "schema", "fields", field)
                found.append((where, f"'{field}' is Penstock's own column", []))
    return found + _target_mistakes(spec)


def reserved_in(schema: Schema) -> list[str]:
    """Fields of a schema that would hide a column of Penstock's own.

    Also called for schemas in files of their own.
    """
    return [name for name in schema.fields if name.lower() in (KAFKA, ERROR, RULE)]


def _view_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Views are told apart as Spark SQL does: without regard to case."""
    found: list[CrossMistake] = []
    views: dict[str, str] = {}
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
    return found


def _target_mistakes(spec: Pipeline) -> list[CrossMistake]:
    """Two writers of one table break each other's exactly-once; dead letters into a source topic never
    end.
    """
    found: list[CrossMistake] = []
    tables: dict[str, str] = {}
    for name, sink in spec.sinks.items():
        other = tables.setdefault(posixpath.normpath(sink.delta.path), f"sink '{name}'")
        if other != f"sink '{name}'":
            found.append((("sinks", name, "delta", "path"), f"{other} writes to the same table", []))
    dead = spec.dead_letters
    if dead.delta and (sharing := tables.get(posixpath.normpath(dead.delta.path))):
        found.append((("dead_letters", "delta", "path"), f"{sharing} writes to the same table", []))
    if dead.kafka:
        for topic in spec.source.topics:
            target = dead.kafka.topic.replace("{topic}", topic)
            if target in spec.source.topics:
                found.append(
                    (
                        ("dead_letters", "kafka", "topic"),
                        f"dead letters would be read again: '{target}' is a source topic",
                        [],
                    )
                )
    return found
