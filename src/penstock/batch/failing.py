"""Records that steps fail on, or leave out as dead, for the sinks that they are in the way of.

Asked by a batch that is written (`assemble`) and by one that is only tried (`replay.trial`): both must find the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.batch.bisect import Culprits, culprits, decoded_once
from penstock.batch.output import Outlet
from penstock.batch.source_view import Inlet
from penstock.record import Failure, OffsetRange, Position
from penstock.transform.enrich import feeds
from penstock.transform.steps import Transform
from penstock.watch import Report, unheard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def failing(
    transform: Transform,
    inlets: Collection[Inlet],
    outlets: Collection[Outlet],
    raw: DataFrame,
    ranges: tuple[OffsetRange, ...],
    spared: Mapping[str, set[Position]],
    report: Report = unheard,
) -> Culprits:
    """The records that the steps or the condition of a sink fail on, for each sink that has some. `spared`, by sink:
    records it holds already. Raises StepFailed where they are too many."""
    known: dict[object, dict[Position, Failure]] = {}
    found: Culprits = {}
    with decoded_once(inlets, raw) as sources:
        for outlet in outlets:
            held = frozenset(spared.get(outlet.sink.name, ()))
            same = (outlet.view.lower(), outlet.where, held)  # sinks that get the same rows fail on the same records

            def rows(part: dict[str, DataFrame], outlet: Outlet = outlet) -> DataFrame:
                return outlet.rows(transform.views(part))

            if same not in known:
                known[same] = culprits(sources, ranges, rows, outlet.view, held, report)
            if known[same]:
                found[outlet.sink.name] = known[same]
    return found


def lacking(transform: Transform, got: Collection[tuple[Outlet, dict[str, DataFrame]]]) -> Culprits:
    """The records that steps leave out as dead, for each sink that would have got some. `got`: the sinks, each with the
    views that it gets its rows of; the engine is asked once about those that several sinks share."""
    known: dict[tuple[int, str], dict[Position, Failure]] = {}
    found: Culprits = {}
    for outlet, views in got:
        for view in transform.buries:
            if not feeds(view, views[outlet.view]):
                continue
            if (id(views), view) not in known:
                known[id(views), view] = transform.lacking(view, views)
            if some := known[id(views), view]:
                found.setdefault(outlet.sink.name, {}).update(some)
    return found
