"""Which records of a batch a sink should hold: the batch's offsets, read again and sent through the same steps.

`verify` asks only where a batch is wrong and the spec drops records: then what is not in the sink was lost or was
dropped, and only the engine can tell which.
"""

from __future__ import annotations

from penstock.checkpoint.ledger import Entry
from penstock.record import KAFKA, PLACE
from penstock.runtime import build
from penstock.runtime.engine import session
from penstock.runtime.inlet import all_views
from penstock.source import kafka as source
from penstock.spec.model import Pipeline


def expected(pipeline: Pipeline, entry: Entry, sink: str) -> dict[tuple[str, int], list[int]]:
    """Offsets per topic and partition."""
    spark = session.start(pipeline, build.home(pipeline).logs)
    raw = source.bounded(spark, pipeline, entry.ranges, whole=False)
    outlet = next(outlet for outlet in build.outlets(pipeline) if outlet.sink.name == sink)
    view = outlet.rows(all_views(build.transform(pipeline), build.inlets(pipeline), raw))
    found: dict[tuple[str, int], list[int]] = {}
    for row in view.select(*(f"{KAFKA}.{name}" for name in PLACE)).toLocalIterator():
        found.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return found
