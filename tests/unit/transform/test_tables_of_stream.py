"""Tables that the stream of stateful steps reads: its plan holds the copy of the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.record import Batch
from penstock.spec.model import Pipeline
from penstock.transform.reference.copies import Copies, Copy
from penstock.transform.reference.sources import TableSources
from penstock.transform.reference.tables import Tables

ENRICH = {"view": "rated", "enrich": {"from": "events", "reference": "rates", "on": ["code"]}}
ONCE = {"view": "once", "deduplicate": {"from": "rated", "key": ["code"], "time": "at", "within": "1m"}}


def pipeline(*steps: dict[str, Any]) -> Pipeline:
    value = {"format": "json", "schema": {"fields": {"code": "string", "at": "timestamp"}}}
    table = {"file": {"path": "no-such.csv", "format": "csv", "schema": {"fields": {"code": "string"}}}}
    return Pipeline.model_validate(
        {
            "name": "stateful",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"events": {"value": value}}},
            "references": {"rates": table},
            "transform": steps,
            "sinks": {"lake": {"from": steps[-1]["view"], "delta": {"path": "lake"}}},
        }
    )


def started(spec: Pipeline, directory: Path) -> tuple[Tables, list[Copy]]:
    """After a crash in batch 4, which had begun with the first copy; a second one is there too."""
    copies, made = Copies(directory), []
    sources = TableSources(spec, lambda: pytest.fail("no registry"))
    tables = Tables(spec, sources, copies, committed=lambda: 3)
    for _ in range(2):
        number, staged = copies.staged("rates")
        staged.mkdir()
        made.append(copies.publish(staged, Copy("", number, tables._made_of("rates"), 1.0, 3, 100, {})))
    copies.begin(Batch("p", "q", 4), {"rates": made[0]})
    return tables, made


def test_copy_that_the_stream_was_planned_with_stays_for_the_batches_after_a_crash(tmp_path: Path) -> None:
    tables, (first, _) = started(pipeline(ENRICH, ONCE), tmp_path)
    no_engine: Any = None  # nothing has to be read
    for batch in (4, 5, 6):
        tables.begin(no_engine, Batch("p", "q", batch))
        assert tables.used == {"rates": first}
        assert Path(first.path).is_dir()


def test_copy_that_only_batches_read_changes_with_the_next_one(tmp_path: Path) -> None:
    once = {**ONCE, "deduplicate": {**ONCE["deduplicate"], "from": "events"}}  # type: ignore[dict-item]
    behind = {**ENRICH, "enrich": {**ENRICH["enrich"], "from": "once"}}  # type: ignore[dict-item]
    tables, (first, second) = started(pipeline(once, behind), tmp_path)
    no_engine: Any = None  # the table cannot be read: the newest copy counts
    tables.begin(no_engine, Batch("p", "q", 4))
    assert tables.used == {"rates": first}
    tables.begin(no_engine, Batch("p", "q", 5))
    assert tables.used == {"rates": second}
