"""A healthy pipeline of two batches, as `verify` sees it: what its ledger, Kafka, its sink and its dead letters say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from penstock.checkpoint.ledger import Entry, SinkCount, TopicFact, ViewCount
from penstock.record import OffsetRange
from penstock.sinks.delta.append import DeltaSink
from penstock.spec.model import Pipeline
from penstock.verification.kafka import Deaths
from penstock.verification.offsets import By
from penstock.verification.report import Report
from penstock.verification.sinks import Evidence
from penstock.verification.writers import STREAM, Writer

# Looked at only where a batch that drops records is wrong, which needs the engine and is tested with it.
PIPELINE = Pipeline.model_validate(
    {
        "name": "payments",
        "kafka": {"bootstrap": "unused"},
        "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": {"a": "int"}}}}}},
        "sinks": {"lake": {"from": "t", "delta": {"path": "lake"}}},
    }
)
# Two batches of two partitions. In partition 0 offset 10 is a marker, 3 died and 15 was dropped by a rule.
ENTRIES = [
    Entry(
        pipeline="payments",
        query="q1",
        batch=0,
        time="2026-01-01T00:00:00Z",
        start="earliest",
        ranges=[OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 8)],
        topics={"t": TopicFact("t", "id-1")},
        views={"t": ViewCount(13, 12, 1)},
        sinks={"lake": SinkCount(12, 0)},
    ),
    Entry(
        pipeline="payments",
        query="q1",
        batch=1,
        time="2026-01-01T00:00:01Z",
        start="earliest",
        ranges=[OffsetRange("t", 0, 10, 20), OffsetRange("t", 1, 8, 8)],
        topics={"t": TopicFact("t", "id-1")},
        views={"t": ViewCount(9, 8, 0, {"no-zero": 1})},
        sinks={"lake": SinkCount(8, 0)},
    ),
]
IN_KAFKA = {0: set(range(20)) - {10}, 1: {5, 6, 7}}
DEAD = {0: {3}}
DEATHS = Deaths({("q1", 0): {("t", 0, None): [3]}})
IN_SINK = {0: set(range(20)) - {10, 3, 15}, 1: {5, 6, 7}}


def by(offsets: dict[int, set[int]]) -> By:
    return {("t", p): np.array(sorted(found), dtype=np.int64) for p, found in offsets.items()}


def without(offsets: dict[int, set[int]], *gone: int) -> dict[int, set[int]]:
    return {**offsets, 0: offsets[0] - set(gone)}


def facts(report: Report) -> list[tuple[object, ...]]:
    return [(f.kind, f.batch, f.topic, f.partition, f.offsets) for f in report.findings]


def evidence(
    entries: list[Entry],
    records: By | None = None,
    deaths: Deaths | None = None,
    others: Sequence[Writer] = (),
    unfinished: Sequence[OffsetRange] = (),
    **more: Any,
) -> Evidence:
    writers = [Writer(STREAM, entries, unfinished), *others]
    records = by(IN_KAFKA) if records is None else records
    read = {writer.name for writer in writers}
    return Evidence(PIPELINE, STREAM, writers, records, read, DEATHS if deaths is None else deaths, **more)


def table(path: Path, offsets: dict[int, list[int]]) -> DeltaSink:
    rows = [{"topic": "t", "partition": p, "offset": o} for p, found in offsets.items() for o in found]
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    write_deltalake(str(path), pa.table({"_kafka": pa.array(rows, kind)}))
    return DeltaSink("lake", path)
