"""What is known of a pipeline before its first record: what each sink will get, by resolving every rule and every step
over no rows; and whether the sinks agree to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from penstock.batch.output import Outlet
from penstock.batch.source_view import RAW, Inlet, source_views
from penstock.batch.stateful.flow import Flow
from penstock.sinks.contract import Converting, Incoming
from penstock.spec.model import Pipeline
from penstock.spec.place import line_of
from penstock.transform.sql import moved, read_once, row_for_row
from penstock.transform.steps import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.registry.client.rehearsal import PatientRegistry


def incoming(
    spark: SparkSession,
    pipeline: Pipeline,
    transform: Transform,
    inlets: Collection[Inlet],
    outlets: Collection[Outlet],
    flow: Flow | None,
) -> dict[str, Incoming]:
    """By sink: what it will get. Raises what is wrong with a rule, a step or a condition."""
    sources = source_views(inlets, spark.createDataFrame([], RAW))
    made = transform.views(sources)
    found = {}
    for outlet in outlets:
        rows = outlet.rows(made)
        apart = (flow.moves(outlet.view) if flow else "") or _apart(pipeline, rows, sources.values(), inlets)
        found[outlet.sink.name] = Incoming(outlet.view, rows.schema, apart, flow.keys(rows, made) if flow else ())
    return found


def agree(
    outlets: Collection[Outlet],
    told: Mapping[str, Incoming],
    registering: Callable[[], PatientRegistry] | None,
    also: Callable[[], None],
) -> None:
    """Raises what a sink, or the check `also`, has against it. Schemas are registered once nothing speaks against the
    start any more."""
    with registering().held_back() if registering else nullcontext():
        for outlet in outlets:
            outlet.sink.suits(told[outlet.sink.name])
        also()
    for outlet in outlets if registering else ():
        outlet.sink.suits(told[outlet.sink.name])


def over(
    transform: Transform, inlets: Collection[Inlet], outlets: Collection[Outlet], raw: DataFrame
) -> dict[str, str | None]:
    """By sink: the source view of which it gets every row but those that steps leave out; None where steps do more.

    The rows of such a view can be counted on their way to the sink, but for what `uncountable` says. A step that stops
    early (`limit`) or reads twice does not see each of them once, so they are then kept, as for several sinks.
    """
    sources = source_views(inlets, raw)
    made = transform.views(sources)
    rows = {outlet.sink.name: outlet.rows(made) for outlet in outlets}
    return {
        name: next((view for view, whole in sources.items() if row_for_row(out, whole)), None)
        for name, out in rows.items()
    }


def uncountable(
    spark: SparkSession, transform: Transform, inlets: Collection[Inlet], outlets: Collection[Outlet]
) -> str:
    """Why records cannot be counted on their way to the sinks, but have to be kept for it; empty where they can."""
    sources = source_views(inlets, spark.createDataFrame([], RAW))
    made = transform.views(sources)
    for rows in (outlet.rows(made) for outlet in outlets):
        if rows._jdf.queryExecution().optimizedPlan().nodeName() == "LocalRelation":
            return "no row can reach the sink"  # the engine sees it (`where: "1 = 0"`), and would not read the records
        if any(row_for_row(rows, whole) and not read_once(rows, whole) for whole in sources.values()):
            return "a step sorts rows or has a subquery, for which they may be computed more than once"
    return ""


def per_batch(spark: SparkSession, pipeline: Pipeline, transform: Transform, inlets: Collection[Inlet]) -> list[str]:
    """What to say before the first batch of steps that see one batch at a time, with their lines."""
    if not any((step.sql or step.python) and step.per is None for step in transform.steps):
        return []
    made = transform.views(source_views(inlets, spark.createDataFrame([], RAW)))
    said = []
    for each in transform.per_batch(made, pipeline.references):
        line = line_of(pipeline.file, {"view": each.view}) if pipeline.file else None
        said.append(f"{pipeline.file}:{line}: {each}" if line else str(each))
    return said


def losses(outlets: Collection[Outlet], told: Mapping[str, Incoming]) -> list[str]:
    """What to say before the first batch of columns that a place has with another type."""
    converting = [outlet.sink for outlet in outlets if isinstance(outlet.sink, Converting) and outlet.sink.name in told]
    return [f"sink '{sink.name}': {loss}" for sink in converting for loss in sink.losses()]


def _apart(pipeline: Pipeline, rows: DataFrame, sources: Iterable[DataFrame], inlets: Iterable[Inlet]) -> str:
    """Why rows of one input partition do not stay in one task, in their order; empty when they do."""
    if pipeline.source.min_partitions or pipeline.source.max_records_per_partition:
        return "`min_partitions` and `max_records_per_partition` split input partitions into several tasks"
    if any(inlet.contract.compares for inlet in inlets):
        return "a `unique` rule compares the records of a batch"
    if all(moved(rows, source) for source in sources):
        return "its steps join, group, sort or limit rows, or look for them in a subquery"
    return ""
