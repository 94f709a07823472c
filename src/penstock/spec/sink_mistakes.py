"""Columns that sinks name, against the schemas that a spec declares.

Only of sinks that read a source view: what a step makes of its columns is for `plan`, which has an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.record import reserved
from penstock.spec.rule_mistakes import declared_of, type_of
from penstock.spec.sinks import KafkaTopic, Sink, Upsert, partition_column
from penstock.spec.types import Decimal, Scalar, Struct

if TYPE_CHECKING:
    from penstock.spec.cross import CrossMistake
    from penstock.spec.model import Pipeline

_Named = Iterator[tuple[tuple[str | int, ...], str]]
"""Where in the sink a column is named, and its name."""


def sink_mistakes(spec: Pipeline) -> Iterator[CrossMistake]:
    """Called for what is sound of a spec, with its `base`."""
    for name, sink in spec.sinks.items():
        struct = declared_of(spec, sink.from_)
        for where, text, allowed in _of_sink(sink, struct) if struct else ():
            yield ("sinks", name, *where), text, allowed


def _of_sink(sink: Sink, struct: Struct) -> Iterator[CrossMistake]:
    fields = [member.name for member in struct.members]
    for where, column in _of_table(sink):
        if column not in fields and not reserved(column):
            yield where, f"view '{sink.from_}' has no column '{column}'", fields
    for where, path in _of_records(sink.kafka) if sink.kafka else ():
        if reserved(path.partition(".")[0]) or "`" in path:  # what is quoted is the engine's to read
            continue
        found = type_of(path, struct)
        if found is None:
            yield where, f"view '{sink.from_}' has no column '{path}'", fields
        elif where[-1] == "headers" and isinstance(found, Scalar | Decimal | Struct):
            text = f"headers are a map, or an array of `key` and `value`; '{path}' is {found.ddl()}"
            yield where, text, []


def _of_table(sink: Sink) -> _Named:
    """Columns by their very names."""
    for kind in ("delta", "iceberg", "postgres", "parquet"):
        table = getattr(sink, kind)
        upsert: Upsert | None = getattr(table, "upsert", None)
        if upsert:
            yield from _each((kind, "upsert", "key"), upsert.key)
            if upsert.order_by:
                yield (kind, "upsert", "order_by"), upsert.order_by
        parts = getattr(table, "partition_by", ())
        yield from _each((kind, "partition_by"), map(partition_column, parts) if kind == "iceberg" else parts)
    for part in ("key", "value") if sink.kafka else ():
        yield from _each(("kafka", part, "columns"), getattr(getattr(sink.kafka, part), "columns", None) or ())


def _of_records(to: KafkaTopic) -> _Named:
    """Columns of which `.` leads into a struct."""
    for name in ("topic_column", "headers", "partition"):
        if path := getattr(to, name):
            yield ("kafka", name), path
    for part in ("key", "value"):
        if path := getattr(getattr(to, part), "column", None):
            yield ("kafka", part, "column"), path


def _each(where: tuple[str, ...], names: Iterable[str]) -> _Named:
    for i, name in enumerate(names):
        yield (*where, i), name
