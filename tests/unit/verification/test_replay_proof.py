"""What replays brought is proven together with what the stream wrote; each thing that can be wrong with it is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from tests.two_batches import ENTRIES, evidence

from penstock.batch import fingerprint
from penstock.checkpoint.ledger import Entry, SinkCount, ViewCount
from penstock.deadletters.replays import Chosen
from penstock.record import OffsetRange
from penstock.sinks.delta.append import DeltaSink
from penstock.verification import replays as replay_proof
from penstock.verification import sinks as sink_proof
from penstock.verification.kafka import Deaths
from penstock.verification.replays import Took
from penstock.verification.report import Report
from penstock.verification.writers import Writer


def entry(written: list[int], dead: int = 0, query: str = "replay-1", batch: int = 0) -> Entry:
    which = sum(fingerprint.of_offset("t", 0, offset) for offset in written)
    views = {"v": ViewCount(len(written) + dead, len(written), dead)}
    return Entry("p", query, batch, "", "earliest", [], {}, views, {"lake": SinkCount(len(written), 0, which)})


def letter(offset: int, *spared: str, died_in: str = "q1") -> Chosen:
    return Chosen("t", 0, offset, 0, [died_in], list(spared))


def listed(*letters: Chosen) -> dict[int, Mapping[tuple[str, int, int], Chosen]]:
    return {0: {each.position: each for each in letters}}


# 3, 4 and 5 died in the stream and are on the list. 4 died again; 9 was in the sink before, and lacks in another one.
LIST = listed(letter(3), letter(4), letter(5), letter(9, "lake"))
REPLAY = Writer("replay 1", [entry([3, 5], dead=1)], letters=LIST)
IN_STREAM, AGAIN = {("q1", 0): {("t", 0, None): [3, 4, 5]}}, {("replay-1", 0): {("t", 0, None): [4]}}
STREAM = [0, 1, 2, 6, 7, 8, 9]
BATCH = replace(ENTRIES[0], ranges=[OffsetRange("t", 0, 0, 10)], sinks={"lake": SinkCount(len(STREAM), 0)})


def wrong(held: list[int], *replays: Writer, deaths: Deaths | None = None) -> list[tuple[str, list[int]]]:
    report = Report("p")
    found = evidence([BATCH], deaths=deaths or Deaths({**IN_STREAM, **AGAIN}), others=replays)
    sink_proof.in_sink(found, DeltaSink("lake", Path("unused")), {("t", 0): held}, report)
    assert report.proof == {"lake": "by offset"}
    return [(each.kind, each.offsets) for each in report.findings]


@pytest.mark.parametrize(
    ("held", "found"),
    [
        ([*STREAM, 3, 5], []),
        ([*STREAM, 3], [("sink-differs", []), ("lost", [5])]),
        ([*STREAM, 3, 5, 5], [("duplicate", [5])]),
        (STREAM, [("sink-differs", []), ("lost", [3, 5])]),
        ([*STREAM, 3, 4, 5], [("both", [4])]),
        ([*STREAM[1:], 3, 5], [("sink-differs", []), ("lost", [0])]),
    ],
    ids=["healthy", "lost", "twice", "none of them", "what died again", "lost by the stream"],
)
def test_what_a_replay_brought_is_there_once(held: list[int], found: list[tuple[str, list[int]]]) -> None:
    assert wrong(held, REPLAY) == found


def test_letter_that_died_in_one_replay_and_came_home_by_the_next() -> None:
    second = Writer("replay 2", [entry([4], query="replay-2")], letters=listed(letter(4)))
    assert wrong([*STREAM, 3, 4, 5], REPLAY, second) == []
    assert wrong([*STREAM, 3, 4, 4, 5], REPLAY, second) == [("duplicate", [4])]


def test_record_that_a_backfill_and_a_replay_of_its_letter_brought_is_there_twice() -> None:
    """0 died in the backfill, though the stream has it; 3 and 5 died in the stream only."""
    died = Deaths({**IN_STREAM, ("b", 0): {("t", 0, None): [0, 4]}})
    brought = [1, 2, 3, 5, 6, 7, 8, 9]
    count = SinkCount(len(brought), 0, sum(fingerprint.of_offset("t", 0, o) for o in brought))
    backfill = Writer("backfill b", [replace(BATCH, query="b", sinks={"lake": count})])
    replay = Writer("replay 1", [entry([0, 3, 4, 5])], letters=listed(*map(letter, (0, 3, 4, 5))))
    held = [*STREAM, *brought, 0, 3, 4, 5]
    assert wrong(held, backfill, replay, deaths=died) == []
    for offset in (0, 1, 4, 5):
        less = list(held)
        less.remove(offset)
        assert wrong(less, backfill, replay, deaths=died) == [("sink-differs", []), ("lost", [offset])]
        assert wrong([*held, offset], backfill, replay, deaths=died) == [("duplicate", [offset])]


@pytest.mark.parametrize("held", [STREAM, [*STREAM, 3, 5], [*STREAM, 3]], ids=["none", "all", "some"])
def test_batch_that_is_not_finished_is_not_judged_and_said(held: list[int]) -> None:
    unfinished = replace(REPLAY, entries=[], unfinished=[OffsetRange("t", 0, 3, 6)])
    assert wrong(held, unfinished) == []
    [took] = replay_proof.took([unfinished], Deaths(), "q1")
    assert replay_proof.unfinished([took]) == ["4 letters of replay 1, which is not finished"]
    assert replay_proof.home_again([took], "q1") == 0


def test_letters_that_came_home_are_counted_for_the_query_they_died_in() -> None:
    deaths = Deaths(AGAIN)
    [took] = replay_proof.took([REPLAY], deaths, "q1")
    assert (replay_proof.home_again([took], "q1"), replay_proof.dead_again([took])) == (3, [])
    assert replay_proof.took([REPLAY], deaths, "b") == []
    mixed = replace(REPLAY, letters=listed(letter(3), letter(4), letter(5, died_in="b")))
    assert replay_proof.home_again(replay_proof.took([mixed], deaths, "b"), "b") == 1


def test_as_many_must_have_died_again_as_the_ledger_says() -> None:
    took = replay_proof.took([replace(REPLAY, entries=[entry([3, 5], dead=2)])], Deaths(AGAIN), "q1")
    assert [each.kind for each in replay_proof.dead_again(took)] == ["dead-letters-differ"]


def test_what_a_replay_dropped_is_counted_without_what_a_sink_has_already() -> None:
    letters = {each.position: each for n in range(8) for each in [letter(n, *(["lake"] if n < 2 else []))]}
    # 8 letters: 1 broke a rule, 1 died of decode; of the 6 others `lake` had one, 2 were written, 3 left out by a step.
    done = replace(
        entry([5, 6], dead=1),
        views={"v": ViewCount(8, 6, 1, {"small": 1})},
        sinks={"lake": SinkCount(2, 4), "state": SinkCount(6, 0), "other": SinkCount(9, None)},
    )
    took = Took("replay 1", 0, done, letters, {("t", 0, 1): None})
    assert (took.dropped, took.left_out) == ({"small": 1}, {"lake": 3})
    assert replace(took, entry=None).dropped == {}


def test_batches_that_a_table_has_forgotten_are_not_proven_instead_of_lost(tmp_path: Path) -> None:
    """Delta cleans its log up: the oldest commits go, the rows stay."""
    batches = [entry([1], batch=number) for number in (0, 1)]
    write_deltalake(tmp_path, pa.table({"total": [1]}))
    for number in (0, 1):
        mark = json.dumps({"penstock": "lake", "pipeline": "p", "query": "replay-1", "batch": number, "rows": 1})
        more = CommitProperties(custom_metadata={"userMetadata": mark})
        write_deltalake(tmp_path, pa.table({"total": [1]}), mode="append", commit_properties=more)

    def proven(*batches: Entry) -> Report:
        report = Report("p")
        found = evidence([], others=[Writer("replay 1", batches)])
        sink_proof.in_sink(found, DeltaSink("lake", tmp_path), None, report)
        return report

    assert (proven(*batches).findings, proven(*batches).unproven) == ([], [])
    DeltaTable(tmp_path).create_checkpoint()
    for version in (0, 1):
        (tmp_path / f"_delta_log/{version:020d}.json").unlink()
    report = proven(*batches, entry([1], batch=2))
    assert [each.text for each in report.findings] == [
        "batch 2 of replay 1: sink 'lake' holds 0 rows, the ledger says 1"
    ]
    assert report.unproven == ["sink 'lake': its own history no longer tells of batch 0 of replay 1"]
