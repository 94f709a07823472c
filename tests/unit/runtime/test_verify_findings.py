"""Each kind of finding, from a healthy pipeline with one thing wrong in it, and none without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from penstock.checkpoint.ledger import Entry, SinkCount, TopicFact, ViewCount
from penstock.checkpoint.log import SparkLog
from penstock.record import OffsetRange
from penstock.runtime import fingerprint, verify
from penstock.runtime.other_ledgers import Other
from penstock.runtime.report import Finding, Report
from penstock.runtime.verify import By
from penstock.sink.delta import DeltaSink
from penstock.spec.model import Pipeline

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
IN_SINK = {0: set(range(20)) - {10, 3, 15}, 1: {5, 6, 7}}


def by(offsets: dict[int, set[int]]) -> By:
    return {("t", p): np.array(sorted(found), dtype=np.int64) for p, found in offsets.items()}


def without(offsets: dict[int, set[int]], *gone: int) -> dict[int, set[int]]:
    return {**offsets, 0: offsets[0] - set(gone)}


def facts(report: Report) -> list[tuple[object, ...]]:
    return [(f.kind, f.batch, f.topic, f.partition, f.offsets) for f in report.findings]


def followed(path: Path, entries: list[Entry], committed: int | None = 1) -> list[tuple[object, ...]]:
    (path / "commits").mkdir()
    for batch in range(-1 if committed is None else committed + 1):
        (path / "commits" / str(batch)).write_text("v1\n{}")
    report = Report("payments")
    verify._follow_on(entries, SparkLog(path), report)
    return facts(report)


def recounted(
    in_kafka: dict[int, set[int]], dead: dict[int, set[int]], expired: Iterable[OffsetRange] = ()
) -> list[tuple[object, ...]]:
    report = Report("payments", expired=list(expired))
    verify._same_as_read(ENTRIES, by(in_kafka), by(dead), report)
    return facts(report)


def in_sink(held: dict[int, set[int]], entries: list[Entry] = ENTRIES) -> Report:
    report = Report("payments")
    for entry in entries:
        verify._batch_in_sink(PIPELINE, "lake", entry, by(IN_KAFKA), by(DEAD), by(held), report)
    return report


# The ledger itself


@pytest.mark.parametrize("committed", [None, 0, 1], ids=["no commit", "killed before the commit", "all committed"])
def test_batches_that_follow_each_other_are_whole(tmp_path: Path, committed: int | None) -> None:
    assert followed(tmp_path, ENTRIES, committed) == []


def test_partition_found_while_running_is_no_gap(tmp_path: Path) -> None:
    grown = replace(ENTRIES[1], ranges=[*ENTRIES[1].ranges, OffsetRange("t", 2, 0, 4)])
    assert followed(tmp_path, [ENTRIES[0], grown]) == []


def test_batch_the_ledger_skips_is_a_gap(tmp_path: Path) -> None:
    assert followed(tmp_path, [ENTRIES[0], replace(ENTRIES[1], batch=2)]) == [("ledger-gap", None, None, None, [])]


def test_batch_that_spark_committed_after_the_last_entry_is_a_gap(tmp_path: Path) -> None:
    assert followed(tmp_path, ENTRIES, committed=2) == [("ledger-gap", None, None, None, [])]


@pytest.mark.parametrize("start", [9, 11], ids=["overlap", "hole"])
def test_range_that_does_not_begin_where_the_last_one_ended_is_found_in_its_partition(
    tmp_path: Path, start: int
) -> None:
    moved = replace(ENTRIES[1], ranges=[OffsetRange("t", 0, start, 20), OffsetRange("t", 1, 8, 8)])
    assert followed(tmp_path, [ENTRIES[0], moved]) == [("range-gap", 1, "t", 0, [])]


def test_ledger_without_its_head_is_a_gap_unless_that_was_accepted(tmp_path: Path) -> None:
    assert followed(tmp_path, ENTRIES[1:]) == [("ledger-gap", None, None, None, [])]
    report = Report("payments")
    verify._follow_on([replace(ENTRIES[1], accepted=["ledger-missing"])], SparkLog(tmp_path), report)
    assert (report.findings, len(report.unproven)) == ([], 1)


# Kafka and the dead letters against the ledger


def test_recount_of_a_healthy_pipeline_finds_nothing() -> None:
    assert recounted(IN_KAFKA, DEAD) == []


def test_record_that_kafka_no_longer_has_or_has_more_is_found_in_its_batch() -> None:
    assert recounted(without(IN_KAFKA, 12), DEAD) == [("not-as-read", 1, None, None, [])]
    assert recounted({**IN_KAFKA, 1: {5, 6}}, DEAD) == [("not-as-read", 0, None, None, [])]
    assert recounted({**IN_KAFKA, 0: set(range(20))}, DEAD) == [("not-as-read", 1, None, None, [])]


def test_dead_letter_that_is_missing_or_too_many_is_found_in_its_batch() -> None:
    assert recounted(IN_KAFKA, {}) == [("dead-letters-differ", 0, None, None, [])]
    assert recounted(IN_KAFKA, {0: {3, 17}}) == [("dead-letters-differ", 1, None, None, [])]


@pytest.mark.parametrize("partition", [0, 9], ids=["known partition", "partition that was never read"])
def test_dead_letter_of_no_record_is_invented(partition: int) -> None:
    assert recounted(IN_KAFKA, {**DEAD, partition: DEAD.get(partition, set()) | {99, 100}}) == [
        ("invented", None, "t", partition, [99, 100])
    ]


def test_batch_that_kafka_no_longer_holds_whole_is_not_judged_but_the_next_one_is() -> None:
    left = {**IN_KAFKA, 0: set(range(6, 20)) - {10}}
    expired = [OffsetRange("t", 0, 0, 6)]
    assert recounted(left, DEAD, expired) == []
    assert recounted(without(left, 12), DEAD, expired) == [("not-as-read", 1, None, None, [])]
    assert recounted(left, {0: {3, 10}}, expired) == [
        ("dead-letters-differ", 1, None, None, []),
        ("invented", None, "t", 0, [10]),
    ]


def test_records_missing_at_the_front_are_found_where_nothing_expired() -> None:
    assert recounted({**IN_KAFKA, 0: set(range(6, 20)) - {10}}, {}) == [
        ("not-as-read", 0, None, None, []),
        ("dead-letters-differ", 0, None, None, []),
    ]


def test_what_expired_in_one_partition_excuses_nothing_in_another() -> None:
    report = Report("payments", expired=[OffsetRange("t", 0, 0, 20)])
    verify._invented(("t", 0), np.array([1, 2]), by({0: set()}), "sink", report)
    assert report.findings == []
    verify._invented(("t", 1), np.array([4, 6]), by(IN_KAFKA), "sink", report)
    assert facts(report) == [("invented", None, "t", 1, [4])]


# The sink against the ledger


def test_healthy_sink_has_no_finding_and_its_drops_are_counted() -> None:
    assert in_sink(IN_SINK).findings == []
    entries = [replace(ENTRIES[0], sinks={"lake": SinkCount(10, 2)}), ENTRIES[1]]
    report = in_sink(without(IN_SINK, 0, 1), entries)
    assert report.findings == []
    assert report.dropped == {"before lake": 2}


def test_record_that_is_nowhere_is_lost_and_named_by_its_offset() -> None:
    report = in_sink(without(IN_SINK, 4, 7))
    assert facts(report) == [("sink-differs", 0, None, None, []), ("lost", 0, "t", 0, [4, 7])]


def test_sink_that_holds_more_than_the_ledger_says_differs_and_nothing_is_lost() -> None:
    assert facts(in_sink({**IN_SINK, 0: IN_SINK[0] | {3}})) == [("sink-differs", 0, None, None, [])]


def test_sink_that_came_later_is_not_judged_for_batches_before_it() -> None:
    before = replace(ENTRIES[0], sinks={})
    assert in_sink({0: {o for o in IN_SINK[0] if o > 10}}, [before, ENTRIES[1]]).findings == []


# A table on disk against the ledger


def table(path: Path, offsets: dict[int, list[int]]) -> DeltaSink:
    rows = [{"topic": "t", "partition": p, "offset": o} for p, found in offsets.items() for o in found]
    kind = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
    write_deltalake(str(path), pa.table({"_kafka": pa.array(rows, kind)}))
    return DeltaSink("lake", path)


def proven(sink: DeltaSink, entries: list[Entry] = ENTRIES) -> Report:
    report = Report("payments")
    verify._in_sink(PIPELINE, sink, sink.positions("_kafka"), entries, by(IN_KAFKA), by(DEAD), {}, report)
    return report


@pytest.mark.parametrize(
    ("partition", "more", "found"),
    [
        pytest.param(0, [], [], id="healthy"),
        pytest.param(0, [7, 0, 7], [("duplicate", None, "t", 0, [0, 7])], id="written again"),
        pytest.param(1, [8, 4], [("invented", None, "t", 1, [4, 8])], id="not in Kafka"),
        pytest.param(0, [3], [("both", None, "t", 0, [3]), ("sink-differs", 0, None, None, [])], id="dead and written"),
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
    assert report.unproven == ["sink 'lake': its own history no longer tells of batches 0 to 0"]
    (tmp_path / f"_delta_log/{2:020d}.json").unlink()
    assert proven(DeltaSink("lake", tmp_path)).unproven == [
        "sink 'lake': its own history no longer tells of batches 0 to 1"
    ]


def test_sink_behind_a_step_that_makes_other_rows_is_proven_by_count_though_its_rows_carry_positions(
    tmp_path: Path,
) -> None:
    entries = [replace(e, sinks={"lake": SinkCount(1, None)}) for e in ENTRIES]
    assert proven(table(tmp_path, {0: [0, 0, 99]}), entries).proof == {"lake": "by count"}


# How a finding speaks


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (Finding("ledger-gap", "a gap"), "a gap"),
        (Finding("sink-differs", "differs", 0), "batch 0: differs"),
        (Finding("vanished", "gone", None, "t", 0), "t-0: gone"),
        (Finding("lost", "2 lost", 4, "t", 0, [7, 9]), "batch 4: t-0: 2 lost: offsets 7, 9"),
        (Finding("lost", "lost", offsets=list(range(10))), "lost: offsets 0, 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        (Finding("lost", "lost", offsets=list(range(11))), "lost: offsets 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …"),
    ],
)
def test_finding_says_batch_partition_and_the_first_offsets(finding: Finding, said: str) -> None:
    assert str(finding) == said


def test_finding_names_at_most_a_thousand_offsets_as_plain_numbers_that_json_takes() -> None:
    report = Report("payments")
    verify._once({("t", 0): [*range(2000), *range(2000)]}, "sink 'lake'", report)
    [finding] = report.findings
    assert finding.text.startswith("2000 records")
    assert json.loads(json.dumps(asdict(finding)))["offsets"] == list(range(1000))


def test_record_that_was_dropped_in_the_place_of_one_that_was_due_is_found_by_the_fingerprint() -> None:
    due = {p: np.array(sorted(o), dtype=np.int64) for p, o in IN_SINK.items()}
    mark = fingerprint.of_offsets("t", 0, due[0][due[0] < 10]) + fingerprint.of_offsets("t", 1, due[1])
    entry = replace(ENTRIES[0], sinks={"lake": SinkCount(12, 0, mark)})
    assert in_sink(IN_SINK, [entry]).findings == []
    swapped = {**IN_SINK, 0: IN_SINK[0] - {4} | {3}}
    assert [f.kind for f in in_sink(swapped, [entry]).findings] == ["sink-differs", "lost"]


# Seeks


def sought(batch: int, at: int, **moved: list[OffsetRange]) -> Entry:
    ranges = [OffsetRange("t", 0, at, at)]
    return replace(ENTRIES[0], batch=batch, ranges=ranges, views={}, sinks={}, **moved)


def test_gap_that_the_operator_made_is_none_and_another_one_is(tmp_path: Path) -> None:
    ahead = sought(2, 30, skipped=[OffsetRange("t", 0, 20, 30)])
    after = replace(ENTRIES[1], batch=3, ranges=[OffsetRange("t", 0, 30, 40)])
    assert followed(tmp_path, [*ENTRIES, ahead, after]) == []
    shutil.rmtree(tmp_path / "commits")
    back = sought(2, 5, again=[OffsetRange("t", 0, 5, 20)])
    assert followed(tmp_path, [*ENTRIES, back, replace(after, ranges=[OffsetRange("t", 0, 5, 40)])]) == []
    shutil.rmtree(tmp_path / "commits")
    less = sought(2, 30, skipped=[OffsetRange("t", 0, 22, 30)])
    assert followed(tmp_path, [*ENTRIES, less, after]) == [("range-gap", 2, "t", 0, [])]


def test_what_was_skipped_and_then_read_after_all_is_not_skipped() -> None:
    ahead = sought(2, 30, skipped=[OffsetRange("t", 0, 20, 30)])
    back = sought(3, 25, again=[OffsetRange("t", 0, 25, 30)])
    after = replace(ENTRIES[1], batch=4, ranges=[OffsetRange("t", 0, 25, 28)])
    assert verify._never_read([*ENTRIES, ahead]) == [OffsetRange("t", 0, 20, 30)]
    assert verify._never_read([*ENTRIES, ahead, back, after]) == [
        OffsetRange("t", 0, 20, 25),
        OffsetRange("t", 0, 28, 30),
    ]


# Ledgers of backfills beside the stream's


def backfilled(number: int, first: int, end: int, offsets: Iterable[int]) -> Other:
    """A backfill of partition 0 that wrote these offsets."""
    found = np.array(sorted(offsets), dtype=np.int64)
    count = SinkCount(len(found), 0, fingerprint.of_offsets("t", 0, found))
    ranges = [OffsetRange("t", 0, first, end)]
    return Other(f"backfill {number}", [replace(ENTRIES[0], query=f"b{number}", ranges=ranges, sinks={"lake": count})])


def fingered(entry: Entry) -> Entry:
    which = sum(
        fingerprint.of_offsets("t", p, np.array([o for o in offsets if r.start <= o < r.end], dtype=np.int64))
        for p, offsets in IN_SINK.items()
        for r in entry.ranges
        if r.partition == p
    )
    return replace(entry, sinks={"lake": replace(entry.sinks["lake"], fingerprint=which)})


BEFORE = [-4, -3, -2, -1]  # what only a backfill has read
AGAIN = sorted(o for o in IN_SINK[0] if o < 10)
BESIDE = [backfilled(1, -4, 10, [*BEFORE, *AGAIN]), backfilled(2, 5, 10, [o for o in AGAIN if o >= 5])]


@pytest.mark.parametrize(
    ("gone", "more", "found"),
    [
        pytest.param([], [], [], id="healthy"),
        pytest.param([7, 7, 7], [], [("sink-differs", 0, None, None, []), ("lost", 0, "t", 0, [7])], id="deleted"),
        pytest.param([7], [], [("sink-differs", 0, None, None, [])], id="one of three deleted"),
        pytest.param([7], [8], [("sink-differs", 0, None, None, [])], id="another one in its place"),
        pytest.param([], [12], [("duplicate", None, "t", 0, [12])], id="twice where no backfill was"),
        pytest.param([12], [], [("sink-differs", 1, None, None, []), ("lost", 1, "t", 0, [12])], id="deleted beyond"),
        pytest.param([], [99], [("invented", None, "t", 0, [99])], id="not in Kafka"),
    ],
)
def test_rows_that_backfills_brought_too_are_proven_together_with_theirs(
    tmp_path: Path, gone: list[int], more: list[int], found: list[tuple[object, ...]]
) -> None:
    rows = [*IN_SINK[0], *(o for other in BESIDE for e in other.entries for o in written(other)), *more]
    for offset in gone:
        rows.remove(offset)
    sink = table(tmp_path, {0: rows, 1: list(IN_SINK[1])})
    report = Report("payments")
    second = replace(ENTRIES[1], views={"t": ViewCount(8, 8, 0)})  # nothing dropped: what is lost can be named
    entries = [fingered(ENTRIES[0]), fingered(second)]
    kafka = without(IN_KAFKA, 15)
    verify._in_sink(PIPELINE, sink, sink.positions("_kafka"), entries, by(kafka), by(DEAD), {}, report, BESIDE)
    assert facts(report) == found
    assert report.proof == {"lake": "by offset"}


def test_batch_that_shares_offsets_with_an_unfinished_backfill_is_not_judged(tmp_path: Path) -> None:
    class Unfinished(Other):
        @property
        def unfinished(self) -> list[OffsetRange]:
            return [OffsetRange("t", 0, 0, 3)]

    sink = table(tmp_path, {0: [*(o for o in IN_SINK[0] if o != 5), 1], 1: list(IN_SINK[1])})
    report = Report("payments")
    verify._in_sink(
        PIPELINE, sink, sink.positions("_kafka"), ENTRIES, by(IN_KAFKA), by(DEAD), {}, report, [Unfinished("b", [])]
    )
    assert report.findings == []
    assert report.unproven == ["sink 'lake': batch 0, which shares offsets with a batch that is not finished"]


def written(other: Other) -> list[int]:
    first = other.entries[0].ranges[0].start
    return [*BEFORE, *AGAIN] if first < 0 else [o for o in AGAIN if o >= first]
