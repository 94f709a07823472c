"""Records that a step before a stateful one fails on. They fail the stream, which cannot go on without being told which
ones to leave out; so they are written down before the query is started again, and stay until their batch is committed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.batch.bisect import culprits, decoded_once
from penstock.batch.source_view import Inlet
from penstock.checkpoint.files import put
from penstock.record import Failure, OffsetRange, Position
from penstock.transform.steps import Transform
from penstock.watch import Report, unheard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def search(
    transform: Transform,
    inlets: Sequence[Inlet],
    raw: DataFrame,
    ranges: tuple[OffsetRange, ...],
    known: dict[Position, Failure],
    report: Report = unheard,
) -> dict[Position, Failure]:
    """The records that the steps before the first stateful one fail on, but for those that are known."""
    first = transform.keeping[0]
    assert first.stateful is not None
    before = replace(transform, steps=transform.steps[: transform.steps.index(first)], moment=None)
    found: dict[Position, Failure] = {}
    with decoded_once(inlets, raw) as sources:
        for view in first.stateful.inputs:

            def rows_of(part: dict[str, DataFrame], view: str = view) -> DataFrame:
                return next(rows for name, rows in before.views(part).items() if name.lower() == view.lower())

            found |= culprits(sources, ranges, rows_of, view, known, report)
    return found


def write(file: Path, query: str, batch: int, records: dict[Position, Failure]) -> None:
    lines = [[*where, why.error_class, why.reason] for where, why in records.items()]
    put(file, json.dumps({"query": query, "batch": batch, "records": lines}).encode())


def read(file: Path, query: str, committed: int | None) -> dict[Position, Failure]:
    """Of a batch that is committed nothing is left to do: the stream is past it. Of another query nothing counts, since
    its numbers of batches are other batches'."""
    try:
        said = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    if said.get("query", query) != query or (committed is not None and committed >= said["batch"]):
        return {}
    return {(t, p, at): Failure(kind, why) for t, p, at, kind, why in said["records"]}


def within(records: dict[Position, Failure], ranges: Sequence[OffsetRange]) -> dict[Position, Failure]:
    """Those that a batch has: where a checkpoint was brought back, a batch can have other offsets than it had."""
    spans = {(r.topic, r.partition): range(r.start, r.end) for r in ranges}
    return {at: why for at, why in records.items() if at[2] in spans.get(at[:2], ())}
