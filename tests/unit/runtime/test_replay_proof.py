"""What replays brought is told from what the stream wrote; and each thing that can be wrong with it is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, SinkCount, ViewCount
from penstock.record import OffsetRange
from penstock.runtime import fingerprint
from penstock.runtime.proof import replays as replay_proof
from penstock.runtime.proof import sinks as sink_proof
from penstock.runtime.proof.replays import Took
from penstock.runtime.proof.report import Report
from penstock.runtime.replay.replays import Replay
from penstock.sink.delta import DeltaSink

ONE = Replay("1", Home(Path("unused")))


def entry(written: int, offsets: list[int], dead: int = 0) -> Entry:
    which = sum(fingerprint.of_offset("t", 0, offset) for offset in offsets)
    views = {"v": ViewCount(written + dead, written, dead)}
    return Entry("p", "replay-1", 0, "", "earliest", [], {}, views, {"lake": SinkCount(written, 0, which)})


# The list is 3, 4, 5 and 9. 4 died again; 9 was in the sink before, and lacks in another one.
RECORDS = {("t", 0, 3): [], ("t", 0, 4): [], ("t", 0, 5): [], ("t", 0, 9): ["lake"]}
TOOK = Took(ONE, 0, entry(2, [3, 5], dead=1), RECORDS, {("t", 0, 4): None})
STREAM = [0, 1, 2, 6, 9]


def wrong(held: list[int], *batches: Took) -> list[str]:
    own, found = replay_proof.apart("lake", {("t", 0): held}, list(batches))
    assert [offset for offset in own["t", 0] if offset in (3, 5)] == []
    return [each.kind for each in found]


def test_stream_is_left_with_what_it_wrote_and_nothing_is_wrong() -> None:
    own, found = replay_proof.apart("lake", {("t", 0): [*STREAM, 3, 5], ("t", 1): [7]}, [TOOK])
    assert own == {("t", 0): STREAM, ("t", 1): [7]}
    assert found == []
    assert replay_proof.dead_again([TOOK]) == []
    assert replay_proof.home_again([TOOK]) == 3
    assert replay_proof.unfinished([TOOK]) == []


@pytest.mark.parametrize(
    ("held", "kinds"),
    [
        ([*STREAM, 3], ["sink-differs"]),
        ([*STREAM, 3, 5, 5], ["duplicate"]),
        (STREAM, ["sink-differs"]),
    ],
    ids=["lost", "twice", "none of them"],
)
def test_what_lacks_or_is_there_twice_is_found(held: list[int], kinds: list[str]) -> None:
    assert wrong(held, TOOK) == kinds


def test_others_than_those_that_were_written_are_found() -> None:
    took = Took(ONE, 0, entry(1, [3]), {("t", 0, 3): [], ("t", 0, 5): []}, {})
    assert wrong([*STREAM, 5], took) == ["sink-differs"]


def test_what_a_replay_dropped_is_counted_without_what_a_sink_has_already() -> None:
    records = {("t", 0, n): ["lake"] if n < 2 else [] for n in range(8)}
    # 8 letters: 1 broke a rule, 1 died of decode; of the 6 others `lake` had one, 2 were written, 3 left out by a step.
    done = replace(
        entry(2, [5, 6], dead=1),
        views={"v": ViewCount(8, 6, 1, {"small": 1})},
        sinks={"lake": SinkCount(2, 4), "state": SinkCount(6, 0), "other": SinkCount(9, None)},
    )
    took = Took(ONE, 0, done, records, {("t", 0, 1): None})
    assert (took.dropped, took.left_out) == ({"small": 1}, {"lake": 3})
    assert replace(took, entry=None).dropped == {}


def test_letter_that_died_in_one_replay_and_came_home_by_the_next() -> None:
    first = Took(ONE, 0, entry(0, [], dead=1), {("t", 0, 3): []}, {("t", 0, 3): None})
    second = Took(Replay("2", Home(Path("unused"))), 0, entry(1, [3]), {("t", 0, 3): []}, {})
    assert wrong([*STREAM, 3], first, second) == []
    assert wrong([*STREAM, 3, 3], first, second) == ["duplicate"]


@pytest.mark.parametrize(("first", "end", "mixed"), [(0, 3, False), (5, 6, True), (9, 12, True), (10, 12, False)])
def test_record_that_a_replay_and_another_ledger_brought_is_known(first: int, end: int, mixed: bool) -> None:
    other = replace(entry(0, []), ranges=[OffsetRange("t", 1, 0, 99), OffsetRange("t", 0, first, end)])
    assert replay_proof.within([TOOK], [other]) is mixed
    assert not replay_proof.within([], [other])


def test_batch_that_is_not_finished_is_not_judged_and_said() -> None:
    took = Took(ONE, 0, None, RECORDS, {})
    for held in (STREAM, [*STREAM, 3, 5], [*STREAM, 3]):
        assert wrong(held, took) == []
    assert replay_proof.unfinished([took]) == ["4 letters of replay 1, which is not finished"]


def test_as_many_must_have_died_again_as_the_ledger_says() -> None:
    took = Took(ONE, 0, entry(2, [3, 5], dead=2), RECORDS, {("t", 0, 4): None})
    assert [each.kind for each in replay_proof.dead_again([took])] == ["dead-letters-differ"]


def test_batches_that_a_table_has_forgotten_are_not_proven_instead_of_lost(tmp_path: Path) -> None:
    """Delta cleans its log up: the oldest commits go, the rows stay."""
    home, table = Home(tmp_path / "replay"), tmp_path / "lake"
    home.spark.mkdir(parents=True)
    (home.spark / "metadata").write_text(json.dumps({"id": "replay-1"}))
    batches = [Took(Replay("1", home), number, entry(1, []), {}, {}) for number in (0, 1)]
    write_deltalake(table, pa.table({"total": [1]}))
    for number in (0, 1):
        mark = json.dumps({"penstock": "lake", "pipeline": "p", "query": "replay-1", "batch": number, "rows": 1})
        more = CommitProperties(custom_metadata={"userMetadata": mark})
        write_deltalake(table, pa.table({"total": [1]}), mode="append", commit_properties=more)

    def proven(*batches: Took) -> Report:
        report = Report("p")
        sink_proof.without_replays(DeltaSink("lake", table), None, list(batches), report)
        return report

    assert proven(*batches) == Report("p")
    DeltaTable(table).create_checkpoint()
    for version in (0, 1):
        (table / f"_delta_log/{version:020d}.json").unlink()
    lost = Took(Replay("1", home), 2, entry(1, []), {}, {})
    report = proven(*batches, lost)
    assert [each.text for each in report.findings] == ["replay 1, batch 2: sink 'lake' holds 0 rows, the ledger says 1"]
    assert report.unproven == ["sink 'lake': its own history no longer tells of batches 0 to 0 of replay 1"]
