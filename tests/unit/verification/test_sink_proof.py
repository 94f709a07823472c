"""Each kind of finding in a sink, from a healthy pipeline with one thing wrong in it, and none without."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from tests.two_batches import ENTRIES, IN_SINK, evidence, facts, table, without

from penstock.batch import fingerprint
from penstock.checkpoint.ledger import Entry, SinkCount
from penstock.sinks.delta.append import DeltaSink
from penstock.verification import sinks as sink_proof
from penstock.verification.report import Report


def in_sink(held: dict[int, set[int]], entries: list[Entry] = ENTRIES) -> Report:
    report = Report("payments")
    positions = {("t", p): list(offsets) for p, offsets in held.items()}
    sink_proof.in_sink(evidence(entries), DeltaSink("lake", Path("unused")), positions, report)
    return report


def test_healthy_sink_has_no_finding_and_its_drops_are_counted() -> None:
    assert in_sink(IN_SINK).findings == []
    entries = [replace(ENTRIES[0], sinks={"lake": SinkCount(10, 2)}), ENTRIES[1]]
    report = in_sink(without(IN_SINK, 0, 1), entries)
    assert report.findings == []
    assert (report.dropped, report.left_out) == ({}, {"lake": 2})


def test_record_that_is_nowhere_is_lost_and_named_by_its_offset() -> None:
    report = in_sink(without(IN_SINK, 4, 7))
    assert facts(report) == [("sink-differs", 0, None, None, []), ("lost", 0, "t", 0, [4, 7])]


def test_record_that_is_dead_and_in_the_sink_is_found_and_nothing_is_lost() -> None:
    assert facts(in_sink({**IN_SINK, 0: IN_SINK[0] | {3}})) == [("both", None, "t", 0, [3])]


def test_sink_that_came_later_is_not_judged_for_batches_before_it() -> None:
    before = replace(ENTRIES[0], sinks={})
    assert in_sink({0: {o for o in IN_SINK[0] if o > 10}}, [before, ENTRIES[1]]).findings == []


def test_record_that_was_dropped_in_the_place_of_one_that_was_due_is_found_by_the_fingerprint() -> None:
    due = {p: np.array(sorted(o), dtype=np.int64) for p, o in IN_SINK.items()}
    mark = fingerprint.of_offsets("t", 0, due[0][due[0] < 10]) + fingerprint.of_offsets("t", 1, due[1])
    entry = replace(ENTRIES[0], sinks={"lake": SinkCount(12, 0, mark)})
    held = {**IN_SINK, 0: {o for o in IN_SINK[0] if o < 10}}
    assert in_sink(held, [entry]).findings == []
    swapped = {**held, 0: held[0] - {4} | {3}}
    assert [f.kind for f in in_sink(swapped, [entry]).findings] == ["both", "sink-differs", "lost"]


def test_batch_that_was_accepted_as_it_was_is_not_judged_and_the_others_still_are() -> None:
    """It wrote the record that a rule dropped when it ran again with another spec."""
    accepted = replace(ENTRIES[1], sinks={"lake": SinkCount(9, None)}, accepted=["batch-unbalanced"])
    held = {**IN_SINK, 0: IN_SINK[0] | {15}}
    report = in_sink(held, [ENTRIES[0], accepted])
    assert (report.findings, report.proof) == ([], {"lake": "by offset"})
    assert [text for text in report.unproven if "batch 1 counts as it was written" in text]
    assert ("lost", 0, "t", 0, [4]) in facts(in_sink(without(held, 4), [ENTRIES[0], accepted]))


# A table on disk


def proven(sink: DeltaSink, entries: list[Entry] = ENTRIES) -> Report:
    report = Report("payments")
    sink_proof.in_sink(evidence(entries), sink, sink.positions("_kafka"), report)
    return report


@pytest.mark.parametrize(
    ("partition", "more", "found"),
    [
        pytest.param(0, [], [], id="healthy"),
        pytest.param(0, [7, 0, 7], [("duplicate", None, "t", 0, [0, 7])], id="written again"),
        pytest.param(1, [8, 4], [("invented", None, "t", 1, [4, 8])], id="not in Kafka"),
        pytest.param(0, [3], [("both", None, "t", 0, [3])], id="dead and written"),
    ],
)
def test_rows_of_a_table_are_proven_offset_by_offset(
    tmp_path: Path, partition: int, more: list[int], found: list[tuple[object, ...]]
) -> None:
    rows = {p: [*offsets, *(more if p == partition else [])] for p, offsets in IN_SINK.items()}
    report = proven(table(tmp_path, rows))
    assert facts(report) == found
    assert report.complete is (found == [])
    assert (report.proof, report.sinks) == ({"lake": "by offset"}, {"lake": 20 + len(more)})


def test_table_that_is_not_there_lost_everything_that_was_written_to_it(tmp_path: Path) -> None:
    assert facts(proven(DeltaSink("lake", tmp_path), ENTRIES[:1])) == [
        ("sink-differs", 0, None, None, []),
        ("lost", 0, "t", 0, sorted(set(range(10)) - {3})),
        ("lost", 0, "t", 1, [5, 6, 7]),
    ]


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        pytest.param([("q1", 0, 12), ("q1", 1, 8)], [], id="healthy"),
        pytest.param([("q0", 0, 5), ("q1", 0, 12), ("q1", 1, 8)], [], id="rows of another query are not ours"),
        pytest.param([("q1", 0, 12), ("q1", 1, 7)], [1], id="fewer rows"),
        pytest.param([("q1", 0, 12), ("q1", 0, 12), ("q1", 1, 8)], [0], id="batch written twice"),
        pytest.param([("q1", 1, 8)], [0], id="batch not there"),
    ],
)
def test_table_without_positions_is_proven_by_the_rows_its_own_log_gives_each_batch(
    tmp_path: Path, commits: list[tuple[str, int, int]], found: list[int]
) -> None:
    """The log as Spark writes it: `verify` looks at nothing else where rows do not carry `_kafka`."""
    fields = '{"type":"struct","fields":[{"name":"total","type":"long","nullable":true,"metadata":{}}]}'
    about = {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": fields}
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**about, "partitionColumns": [], "configuration": {}, "createdTime": 0}},
    ]
    (tmp_path / "_delta_log").mkdir()
    for version, (query, batch, rows) in enumerate(commits):
        mark = json.dumps({"penstock": "lake", "pipeline": "payments", "query": query, "batch": batch})
        info = {"timestamp": version, "userMetadata": mark, "operationMetrics": {"numOutputRows": str(rows)}}
        actions = [{"commitInfo": info}, *(first if version == 0 else [])]
        (tmp_path / f"_delta_log/{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    report = proven(DeltaSink("lake", tmp_path))
    assert facts(report) == [("sink-differs", batch, None, None, []) for batch in found]
    assert report.proof == {"lake": "by count"}


def test_batches_that_delta_has_forgotten_are_not_proven_and_not_lost(tmp_path: Path) -> None:
    """Delta cleans its log up: the oldest commits go, the rows stay."""
    write_deltalake(str(tmp_path), pa.table({"total": [1]}))
    for batch, rows in ((0, 12), (1, 8)):
        mark = json.dumps({"penstock": "lake", "pipeline": "payments", "query": "q1", "batch": batch, "rows": rows})
        more = CommitProperties(custom_metadata={"userMetadata": mark})
        write_deltalake(str(tmp_path), pa.table({"total": [1]}), mode="append", commit_properties=more)
    assert facts(proven(DeltaSink("lake", tmp_path))) == []
    DeltaTable(str(tmp_path)).create_checkpoint()
    for version in (0, 1):
        (tmp_path / f"_delta_log/{version:020d}.json").unlink()
    report = proven(DeltaSink("lake", tmp_path))
    assert facts(report) == []
    assert report.unproven == ["sink 'lake': its own history no longer tells of batch 0"]
    (tmp_path / f"_delta_log/{2:020d}.json").unlink()
    assert proven(DeltaSink("lake", tmp_path)).unproven == [
        "sink 'lake': its own history no longer tells of batches 0 to 1"
    ]


def test_sink_behind_a_step_that_makes_other_rows_is_proven_by_count_though_its_rows_carry_positions(
    tmp_path: Path,
) -> None:
    entries = [replace(e, sinks={"lake": SinkCount(1, None)}) for e in ENTRIES]
    assert proven(table(tmp_path, {0: [0, 0, 99]}), entries).proof == {"lake": "by count"}
