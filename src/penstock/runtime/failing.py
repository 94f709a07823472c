"""Records that steps fail on, or leave out as dead, for the sinks that they are in the way of.

Asked by a batch that is written (`assemble`) and by one that is only tried (`replay.trial`): both must find the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.record import Failure, OffsetRange
from penstock.runtime.culprits import Culprits, culprits
from penstock.runtime.inlet import Inlet, Position, all_views, repeated
from penstock.runtime.outlet import Outlet
from penstock.transform.enrich import feeds
from penstock.transform.steps import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def failing(
    transform: Transform,
    inlets: Collection[Inlet],
    outlets: Collection[Outlet],
    raw: DataFrame,
    ranges: tuple[OffsetRange, ...],
    spared: Mapping[str, set[Position]],
) -> Culprits:
    """The records that the steps or the condition of a sink fail on, for each sink that has some. `raw` is read many
    times: it should be kept. `spared`, by sink: records it holds already. Raises StepFailed where they are too many."""
    known = repeated(inlets, raw)

    def of(outlet: Outlet) -> dict[Position, Failure]:
        held = known | spared.get(outlet.sink.name, set())
        return culprits(raw, ranges, lambda part: outlet.rows(all_views(transform, inlets, part)), outlet.view, held)

    return {outlet.sink.name: some for outlet in outlets if (some := of(outlet))}


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
