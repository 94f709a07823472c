"""What `verify` finds in a ledger: gaps, and what the operator skipped."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.two_batches import ENTRIES, facts

from penstock.checkpoint.ledger import Entry, TopicFact
from penstock.checkpoint.log import SparkLog
from penstock.operations.show import _books
from penstock.record import OffsetRange
from penstock.verification import ledger as ledger_proof
from penstock.verification.report import Report


def followed(path: Path, entries: list[Entry], committed: int | None = 1) -> list[tuple[object, ...]]:
    (path / "commits").mkdir()
    for batch in range(-1 if committed is None else committed + 1):
        (path / "commits" / str(batch)).write_text("v1\n{}")
    report = Report("payments")
    ledger_proof.follow_on(entries, SparkLog(path), report)
    return facts(report)


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
    ledger_proof.follow_on([replace(ENTRIES[1], accepted=["ledger-missing"])], SparkLog(tmp_path), report)
    assert (report.findings, len(report.unproven)) == ([], 1)


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


def test_skip_that_was_taken_back_is_none_also_before_a_batch_has_read_it() -> None:
    ahead = sought(2, 30, skipped=[OffsetRange("t", 0, 20, 30)])
    back = sought(3, 25, again=[OffsetRange("t", 0, 25, 30)])
    after = replace(ENTRIES[1], batch=4, ranges=[OffsetRange("t", 0, 25, 28)])
    assert ledger_proof.never_read([*ENTRIES, ahead]) == [OffsetRange("t", 0, 20, 30)]
    for entries in ([*ENTRIES, ahead, back], [*ENTRIES, ahead, back, after]):
        assert ledger_proof.never_read(entries) == [OffsetRange("t", 0, 20, 25)]
    whole = sought(3, 20, again=[OffsetRange("t", 0, 20, 30)])
    assert _books([*ENTRIES, ahead, whole]).skipped == []
    once_more = sought(4, 22, skipped=[OffsetRange("t", 0, 20, 22)])
    assert ledger_proof.never_read([*ENTRIES, ahead, whole, once_more]) == [OffsetRange("t", 0, 20, 22)]


def renewed(batch: int, at: int, **more: list[OffsetRange]) -> Entry:
    """The topic was deleted and created again, and the operator said where the new one is read from."""
    made = sought(batch, at, **more)
    return replace(made, topics={"t": TopicFact("t", "id-2")}, renewed={"t": "id-1"})


def test_topic_that_was_made_again_begins_anew_where_the_operator_said(tmp_path: Path) -> None:
    after = replace(ENTRIES[1], batch=3, ranges=[OffsetRange("t", 0, 0, 4)], topics={"t": TopicFact("t", "id-2")})
    assert followed(tmp_path, [*ENTRIES, renewed(2, 0), after]) == []
    shutil.rmtree(tmp_path / "commits")
    assert followed(tmp_path, [*ENTRIES, after]) == [("ledger-gap", None, None, None, []), ("range-gap", 3, "t", 0, [])]


def test_what_was_skipped_in_a_topic_that_is_gone_was_never_read_and_is_none_of_the_new_one() -> None:
    ahead = sought(2, 30, skipped=[OffsetRange("t", 0, 20, 30)])
    anew = renewed(3, 5, skipped=[OffsetRange("t", 0, 0, 5)])
    after = replace(ENTRIES[1], batch=4, ranges=[OffsetRange("t", 0, 5, 40)], topics={"t": TopicFact("t", "id-2")})
    entries = [*ENTRIES, ahead, anew, after]
    assert ledger_proof.never_read(entries) == [OffsetRange("t", 0, 0, 5), OffsetRange("t", 0, 20, 30)]
