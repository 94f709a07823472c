"""Steps against the schemas that a spec declares: keys and event times that no field of their view is.

Only where a step reads a source view itself: what SQL before it makes of the fields is for `plan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.record import RESERVED
from penstock.spec.rule_mistakes import declared_of
from penstock.spec.stateful import AnyStateful, Join, Window
from penstock.spec.types import Struct

if TYPE_CHECKING:
    from penstock.spec.cross import CrossMistake
    from penstock.spec.model import Pipeline

_Place = tuple[str | int, ...]


def step_column_mistakes(spec: Pipeline) -> Iterator[CrossMistake]:
    """Called as `rule_mistakes` is."""
    views = {view.lower(): view for view in spec.source.reads()}
    for i, step in enumerate(spec.transform):
        named = [*_named(step.stateful)] if step.stateful else []
        if step.enrich:
            named = [(step.enrich.from_, ((), None), [(("on",), name) for name in step.enrich.on])]
        for view, time, columns in named:
            struct = declared_of(spec, views[view.lower()]) if view.lower() in views else None
            if struct is not None:
                for where, text, allowed in [*_of_columns(view, columns, struct), *_of_time(view, time, struct)]:
                    yield ("transform", i, step.kind, *where), text, allowed


def _named(of: AnyStateful) -> Iterator[tuple[str, tuple[_Place, str | None], list[tuple[_Place, str]]]]:
    """For each view that is read: its event time and the columns that make its key, with the places that say so."""
    if isinstance(of, Join):
        on = [] if isinstance(of.on, str) else [(("on", i), name) for i, name in enumerate(of.on)]
        yield of.left.from_, (("left", "time"), of.left.time), [*on]
        yield of.right.from_, (("right", "time"), of.right.time), [*on]
        return
    word, names = ("by", of.by) if isinstance(of, Window) else ("key", of.key)
    yield of.from_, (("time",), of.time), [((word, i), name) for i, name in enumerate(names)]


def _of_columns(view: str, columns: list[tuple[_Place, str]], struct: Struct) -> Iterator[CrossMistake]:
    there = [member.name for member in struct.members]
    for where, name in columns:
        if name.lower() not in (*RESERVED, *(each.lower() for each in there)):
            yield where, f"view '{view}' has no field '{name}'", there


def _of_time(view: str, named: tuple[_Place, str | None], struct: Struct) -> Iterator[CrossMistake]:
    where, name = named
    kinds = {member.name: member.type for member in struct.members}
    times = [each for each, kind in kinds.items() if kind.ddl() == "timestamp"]
    if name is None or name in times:
        return
    kind = kinds.get(name)
    what = f"'{name}' is {kind.ddl()}, and not a timestamp" if kind else f"view '{view}' has no field '{name}'"
    yield where, what, times
