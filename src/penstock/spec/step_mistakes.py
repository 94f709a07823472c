"""Mistakes in steps that show without an engine: views that are not there yet, cycles, reference tables, columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.record import RESERVED
from penstock.spec.enrich import Enrich, ReferenceTable

if TYPE_CHECKING:
    from penstock.spec.cross import CrossMistake
    from penstock.spec.model import Pipeline

# With one of these in `spark.conf` a name in SQL may be a table that no spec knows.
_OTHER_TABLES = ("catalog", "warehouse", "hive", "metastore")


def step_mistakes(spec: Pipeline) -> Iterator[CrossMistake]:
    known = [*spec.source.reads(), *spec.references]
    steps = [step.view for step in spec.transform]
    lowered = {name.lower() for name in known}
    for i, step in enumerate(spec.transform):
        for where, name in step.reads():
            at = ("transform", i, *where)
            if name.lower() in lowered:
                continue
            if name.lower() == step.view.lower():
                yield at, f"view '{name}' is made from itself", []
            elif name.lower() in (other.lower() for other in steps[i:]):
                yield at, f"view '{name}' is defined after '{step.view}', which uses it: steps run in order", []
            elif step.sql is None or _knows_all_tables(spec):
                yield at, f"no view '{name}'", [*known, *steps[:i]]
        if step.enrich is not None:
            for where, text, allowed in _of_enrich(step.enrich, spec.references):
                yield ("transform", i, "enrich", *where), text, allowed
        lowered.add(step.view.lower())
    yield from _of_references(spec, {name.lower() for name in (*spec.source.reads(), *steps)})


def _of_enrich(
    enrich: Enrich, references: dict[str, ReferenceTable]
) -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    table = references.get(enrich.reference)
    if table is None:
        yield ("reference",), f"no reference '{enrich.reference}'", list(references)
        return
    there = list(table.file.schema_.fields) if table.file and table.file.schema_ else None
    lowered = {name.lower() for name in there or ()}
    for side, names in (("on", enrich.on.values()), ("columns", (enrich.columns or {}).keys())):
        for name in names if there is not None else ():
            if name.lower() not in lowered:
                yield (side,), f"reference '{enrich.reference}' has no column '{name}'", there or []
    added = [enrich.named(name) for name in enrich.columns or ()]
    for name in added:
        if name.lower() in RESERVED:
            yield ("columns",), f"'{name}' is Penstock's own column", []
    if len({name.lower() for name in added}) < len(added):
        yield ("columns",), "two columns would have the same name", []


def _of_references(spec: Pipeline, views: set[str]) -> Iterator[CrossMistake]:
    seen: set[str] = set()
    for name, table in spec.references.items():
        if name.lower() in views or name.lower() in seen:
            yield ("references", name), f"'{name}' is the name of a view too", []
        seen.add(name.lower())
        if table.kafka and spec.source.reads_topic(table.kafka.topic):
            text = f"topic '{table.kafka.topic}' is a source of the pipeline: join the views instead"
            yield ("references", name, "kafka", "topic"), text, []


def _knows_all_tables(spec: Pipeline) -> bool:
    """A name that is no view can be no table either: the engine is on this machine and has no other catalog."""
    local = spec.spark.master.startswith("local")
    return local and not any(word in key.lower() for key in spec.spark.conf for word in _OTHER_TABLES)
