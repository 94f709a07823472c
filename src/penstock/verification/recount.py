"""Which records of some ranges a sink should hold: read again, and sent through the same steps.

`verify` asks only where a batch is wrong and the spec drops records: then what is not in the sink was lost or was
dropped, and only the engine can tell which.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.batch.source_view import all_views
from penstock.checkpoint.home import Home
from penstock.plan import build
from penstock.record import KAFKA, PLACE, OffsetRange
from penstock.source import kafka as source
from penstock.spark import session
from penstock.spec.model import Pipeline
from penstock.verification.offsets import By, gathered, joined
from penstock.verification.report import Partition


def expected(pipeline: Pipeline, ranges: Iterable[OffsetRange], sink: str, planned_ms: int) -> By:
    """`planned_ms`: about when the batches of these ranges ran, for rules that compare with the clock."""
    spark = session.start(pipeline, Home.of(pipeline).logs)
    apart = [OffsetRange(*where, *span) for where, spans in joined(ranges).items() for span in spans]
    raw = source.bounded(spark, pipeline, apart, whole=False)
    outlet = next(outlet for outlet in build.outlets(pipeline) if outlet.sink.name == sink)
    inlets = [inlet.at(planned_ms) for inlet in build.inlets(pipeline)]
    view = outlet.rows(all_views(build.transform(pipeline), inlets, raw))
    rows = view.select(*(f"{KAFKA}.{name}" for name in PLACE)).toLocalIterator()
    found: dict[Partition, list[int]] = {}
    for row in rows:
        found.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return gathered((*where, offsets) for where, offsets in found.items())
