"""What a start refuses: Spark's checkpoint and the ledger as files, in every way they can disagree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger, SinkCount, TopicFact, ViewCount
from penstock.errors import CheckpointForeign, CheckpointMissing, LedgerMissing, PenstockError, Stopped
from penstock.lifecycle import preconditions
from penstock.record import OffsetRange

NOTHING: frozenset[str] = frozenset()
EVERYTHING = frozenset(error.code for error in Stopped.__subclasses__())


def entry(batch: int, pipeline: str = "payments", query: str = "q1") -> Entry:
    return Entry(
        pipeline=pipeline,
        query=query,
        batch=batch,
        time="2026-01-01T00:00:00Z",
        start="earliest",
        ranges=[OffsetRange("payments", 0, batch * 10, batch * 10 + 10)],
        topics={"payments": TopicFact("payments", "id-1")},
        views={"payments": ViewCount(10, 10, 0)},
        sinks={"lake": SinkCount(10, 0)},
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """As `Home.held` leaves it before Spark was ever started."""
    made = Home(tmp_path / "home")
    for directory in (made.ledger, made.logs):
        directory.mkdir(parents=True)
    return made


def spark_is_at(home: Home, planned: int | None, committed: int | None, query: str = "q1") -> None:
    """The files Spark leaves when batches up to `planned` have offsets and up to `committed` have a commit."""
    for name, newest in (("offsets", planned), ("commits", committed)):
        (home.spark / name).mkdir(parents=True)
        for batch in range(-1 if newest is None else newest + 1):
            (home.spark / name / str(batch)).write_text('v1\n{}\n{"payments":{"0":10}}')
            (home.spark / name / f".{batch}.crc").write_bytes(b"crc\x00")
    (home.spark / "metadata").write_text(f'{{"id":"{query}"}}')


def ledger_is_at(home: Home, batch: int, pipeline: str = "payments", query: str = "q1") -> None:
    for each in range(batch + 1):
        Ledger(home.ledger).append(entry(each, pipeline, query))


def contents(home: Home) -> dict[str, bytes]:
    return {str(f.relative_to(home.path)): f.read_bytes() for f in home.path.rglob("*") if f.is_file()}


def refused(home: Home, accepted: frozenset[str]) -> PenstockError:
    """The error of a start; a start that is refused must leave everything as it found it."""
    before = contents(home)
    with pytest.raises(Stopped) as raised:
        preconditions.check(home, "payments", accepted)
    assert contents(home) == before
    return raised.value


def test_fresh_start_is_let_through(home: Home) -> None:
    preconditions.check(home, "payments", NOTHING)


@pytest.mark.parametrize(
    ("planned", "committed", "ledger"),
    [
        pytest.param(None, None, None, id="killed before the first batch was planned"),
        pytest.param(0, None, None, id="killed in the first batch"),
        pytest.param(0, None, 0, id="killed between ledger and commit of the first batch"),
        pytest.param(2, 2, 2, id="ended at a batch boundary"),
        pytest.param(3, 2, 2, id="killed in a batch"),
        pytest.param(3, 2, 3, id="killed between ledger and commit"),
    ],
)
def test_restart_is_let_through_wherever_the_last_run_ended(
    home: Home, planned: int | None, committed: int | None, ledger: int | None
) -> None:
    spark_is_at(home, planned, committed)
    if ledger is not None:
        ledger_is_at(home, ledger)
    before = contents(home)
    preconditions.check(home, "payments", NOTHING)
    assert contents(home) == before


@pytest.mark.parametrize("accepted", [NOTHING, EVERYTHING - {CheckpointMissing.code}], ids=["nothing", "other codes"])
def test_removed_checkpoint_stops_unless_its_own_code_is_accepted(home: Home, accepted: frozenset[str]) -> None:
    ledger_is_at(home, 2)
    error = refused(home, accepted)
    assert type(error) is CheckpointMissing
    assert error.next_command is not None
    assert error.next_command.endswith("--accept checkpoint-missing")


def test_accepting_a_removed_checkpoint_keeps_the_old_ledger_aside_and_begins_an_empty_one(home: Home) -> None:
    ledger_is_at(home, 2)
    preconditions.check(home, "payments", frozenset({CheckpointMissing.code}))
    assert list(Ledger(home.ledger).entries()) == []
    assert list(Ledger(home.path / "ledger.q1.1").entries()) == [entry(0), entry(1), entry(2)]
    Ledger(home.ledger).append(entry(0))  # a backup brought the old one back
    preconditions.check(home, "payments", frozenset({CheckpointMissing.code}))
    assert list(Ledger(home.path / "ledger.q1.2").entries()) == [entry(0)]
    Ledger(home.ledger).append(entry(0, query="q2"))
    spark_is_at(home, 0, 0, query="q2")
    preconditions.check(home, "payments", NOTHING)


@pytest.mark.parametrize("accepted", [NOTHING, EVERYTHING], ids=["nothing", "every code"])
@pytest.mark.parametrize(
    ("of_ledger", "planned", "committed"),
    [
        pytest.param({"pipeline": "refunds"}, 2, 2, id="directory of another pipeline"),
        pytest.param({"query": "q0"}, 2, 2, id="ledger of another query"),
        pytest.param({}, 1, 1, id="ledger ahead of an older checkpoint"),
        pytest.param({}, None, None, id="ledger beside a checkpoint that has no batch"),
    ],
)
def test_checkpoint_and_ledger_that_do_not_belong_together_stop_whatever_is_accepted(
    home: Home, of_ledger: dict[str, str], planned: int | None, committed: int | None, accepted: frozenset[str]
) -> None:
    spark_is_at(home, planned, committed)
    ledger_is_at(home, 2, **of_ledger)
    error = refused(home, accepted)
    assert type(error) is CheckpointForeign
    assert "--accept" not in str(error.next_command)


@pytest.mark.parametrize("ledger", [None, 1], ids=["all entries", "the last entry"])
def test_removed_ledger_entries_of_committed_batches_stop_unless_accepted(home: Home, ledger: int | None) -> None:
    spark_is_at(home, 3, 2)
    if ledger is not None:
        ledger_is_at(home, ledger)
    for accepted in (NOTHING, EVERYTHING - {LedgerMissing.code}):
        error = refused(home, accepted)
        assert type(error) is LedgerMissing
        assert error.next_command is not None
        assert error.next_command.endswith("--accept ledger-missing")
        assert "penstock checkpoint repair FILE --from BACKUP --apply" in error.next_command
    before = contents(home)
    preconditions.check(home, "payments", frozenset({LedgerMissing.code}))
    assert contents(home) == before


def test_ledger_whose_directory_is_gone_is_a_missing_ledger(home: Home) -> None:
    spark_is_at(home, 0, 0)
    home.ledger.rmdir()
    assert type(refused(home, NOTHING)) is LedgerMissing


@pytest.mark.parametrize(("planned", "committed", "whole"), [(1, 1, False), (2, 1, False), (2, 2, True)])
def test_seek_that_was_cut_off_is_refused_until_it_is_completed(
    home: Home, planned: int, committed: int, whole: bool
) -> None:
    spark_is_at(home, planned, committed)
    ledger_is_at(home, 1)
    skipped = [OffsetRange("payments", 0, 20, 50)]
    seek = replace(entry(2), ranges=[OffsetRange("payments", 0, 50, 50)], views={}, sinks={}, skipped=skipped)
    Ledger(home.ledger).append(seek)
    if whole:
        preconditions.check(home, "payments", NOTHING)
        assert Ledger(home.ledger).last_batch() == entry(1)  # what sinks are asked for
        return
    error = refused(home, EVERYTHING)
    assert isinstance(error, CheckpointForeign)
    assert error.next_command == "penstock checkpoint repair FILE --apply"


def test_newest_file_of_the_log_that_was_truncated_is_refused_with_the_command_that_repairs(home: Home) -> None:
    spark_is_at(home, 1, 1)
    ledger_is_at(home, 1)
    (home.spark / "commits" / "1").write_text("")
    assert refused(home, EVERYTHING).next_command == "penstock checkpoint repair FILE"
