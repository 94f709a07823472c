"""Copies of a checkpoint: consistent while it is written to, whole when they are used."""

from __future__ import annotations

import shutil
import tarfile
import threading
from pathlib import Path

import pytest
from tests.checkpoints import Synced, checkpoint, commit_batch, contents, entry, plan_batch

from penstock.checkpoint import backup, damage, own_log
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import Positions, SparkLog
from penstock.errors import BackupDamaged, BadArgument, CheckpointMissing
from penstock.lifecycle import preconditions


def sound(copy: Home) -> None:
    preconditions.check(copy, "payments", frozenset())


@pytest.mark.parametrize("name", ["copy", "copy.tar.gz"])
def test_copy_holds_every_file_but_the_lock_and_logs(tmp_path: Path, name: str) -> None:
    home = checkpoint(tmp_path / "home")
    (home.path / "lock").write_text("1")
    home.logs.mkdir()
    (home.logs / "engine.log").write_text("said")
    home.schemas.mkdir()
    (home.schemas / "1.json").write_text("{}")
    made = backup.make(home, tmp_path / name, "payments", sound)
    assert (made.committed, made.planned, made.ledger, made.pipeline) == (3, 3, 3, "payments")
    with backup.opened(tmp_path / name) as (copy, manifest):
        assert manifest == made
        expected = {name: what for name, what in contents(home).items() if name not in ("lock", "logs/engine.log")}
        assert {name: what for name, what in contents(copy).items() if name != backup.MANIFEST} == expected
    assert [p.name for p in tmp_path.iterdir()] == ["home", name] or len(list(tmp_path.iterdir())) == 2


def test_copies_made_while_batches_are_written_are_consistent_each_one(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "home", 1)
    stop = threading.Event()

    def run() -> None:
        batch = 1
        while not stop.is_set():
            plan_batch(home, batch)
            Ledger(home.ledger).append(entry(batch))
            commit_batch(home, batch)
            for kind in ("offsets", "commits"):  # as Spark does, which keeps a hundred
                for name in (f"{batch - 30}", f".{batch - 30}.crc"):
                    (home.spark / kind / name).unlink(missing_ok=True)
            batch += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for number in range(10):
            made = backup.make(home, tmp_path / f"copy-{number}", "payments", sound)
            copy = Home(tmp_path / f"copy-{number}")
            log = SparkLog(copy.spark)
            assert made.committed is not None and made.planned is not None
            assert made.planned - made.committed in (0, 1)  # of two open batches Spark would run only the newer one
            assert made.committed <= (made.ledger or 0) <= made.planned
            assert log.next_positions() == {("payments", p): (made.committed + 1) * 10 for p in (0, 1)}
            assert damage.find(copy) == []
    finally:
        stop.set()
        thread.join()
    assert made.committed > 1  # it did go on meanwhile


def test_later_batch_that_was_planned_during_the_copy_is_left_out(tmp_path: Path) -> None:
    """Between the copy of the commits and that of the offsets a run may get ahead by more than one batch."""
    home = checkpoint(tmp_path / "home", 3)
    for batch in (3, 4):
        plan_batch(home, batch)
        Ledger(home.ledger).append(entry(batch))  # their commits came after the copy looked
    made = backup.make(home, tmp_path / "copy", "payments", sound)
    assert (made.committed, made.ledger, made.planned) == (2, 3, 3)


def written_down(home: Home, kind: str, batches: int, committed: int) -> Home:
    """A bounded run that is not finished."""
    run = Home(home.path / kind / "some")
    run.ledger.mkdir(parents=True)
    ends: list[Positions] = [{("payments", 0): 10 * n + 10} for n in range(batches)]
    with own_log.written_down(run.spark, {"id": f"{kind}-1"}, {("payments", 0): 0}, ends) as new:
        for what in ("chosen", "letters") if kind == "replay" else ():
            (new / what).mkdir()
            for batch in range(batches):
                (new / what / str(batch)).write_text(f"{what} of {batch}\n")
    for batch in range(committed):
        Ledger(run.ledger).append(entry(batch, query=f"{kind}-1"))
        own_log.commit(run.spark, batch)
        (run.spark / "letters" / str(batch)).unlink(missing_ok=True)
    return run


@pytest.mark.parametrize("committed", [0, 2])
@pytest.mark.parametrize("kind", ["backfill", "replay"])
def test_bounded_run_that_is_not_finished_is_copied_with_all_its_batches(
    tmp_path: Path, kind: str, committed: int
) -> None:
    home = checkpoint(tmp_path / "home")
    run = written_down(home, kind, 6, committed)
    backup.make(home, tmp_path / "copy", "payments", sound)
    assert contents(Home(tmp_path / "copy" / kind / "some")) == contents(run)


def test_letters_of_a_batch_that_is_committed_during_the_copy_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = checkpoint(tmp_path / "home")
    run = written_down(home, "replay", 3, 0)
    copyfile, left = shutil.copyfile, [0, 1]

    def and_go_on(of: Path, into: Path) -> None:
        copyfile(of, into)
        if left and of.parent.name in ("letters", "commits") and of.is_relative_to(run.path):
            batch = left.pop(0)
            own_log.commit(run.spark, batch)
            (run.spark / "letters" / str(batch)).unlink()

    monkeypatch.setattr(shutil, "copyfile", and_go_on)
    backup.make(home, tmp_path / "copy", "payments", sound)
    spark = tmp_path / "copy" / "replay" / "some" / "spark"
    done, there = ({int(f.name) for f in (spark / kind).iterdir()} for kind in ("commits", "letters"))
    assert not left
    assert done | there == {0, 1, 2}
    assert not done & there


@pytest.mark.parametrize("harm", ["changed", "missing", "added", "no manifest", "archive cut off"])
def test_backup_that_is_not_as_it_was_written_is_refused(tmp_path: Path, harm: str) -> None:
    home = checkpoint(tmp_path / "home")
    to = tmp_path / ("copy.tar.gz" if harm == "archive cut off" else "copy")
    backup.make(home, to, "payments", sound)
    match harm:
        case "changed":
            (to / "spark" / "offsets" / "3").write_text("v1")
        case "missing":
            (to / "spark" / "offsets" / "3").unlink()
        case "added":
            (to / "spark" / "offsets" / "4").write_text("v1")
        case "no manifest":
            (to / backup.MANIFEST).unlink()
        case "archive cut off":
            to.write_bytes(to.read_bytes()[:-200])
    with pytest.raises(BackupDamaged), backup.opened(to):
        pass


def test_copy_that_would_not_pass_the_guard_is_not_kept(tmp_path: Path) -> None:
    from penstock.errors import LedgerMissing

    home = checkpoint(tmp_path / "home")
    (home.ledger / "000000000.jsonl").unlink()
    with pytest.raises(LedgerMissing):
        backup.make(home, tmp_path / "copy", "payments", sound)
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


def test_nothing_is_written_over_and_nothing_is_copied_of_nothing(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "home")
    (tmp_path / "there").mkdir()
    with pytest.raises(BadArgument):
        backup.make(home, tmp_path / "there", "payments", sound)
    with pytest.raises(CheckpointMissing):
        backup.make(Home(tmp_path / "empty"), tmp_path / "copy", "payments", sound)


def test_archive_that_reaches_out_of_its_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "file", arcname="../../evil")
    with pytest.raises(BackupDamaged), backup.opened(tmp_path / "evil.tar.gz"):
        pass


@pytest.mark.parametrize("name", ["copy", "copy.tar.gz"])
def test_backup_is_on_the_disk_before_it_has_its_name_and_so_is_the_name(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = checkpoint(tmp_path / "home")
    to = tmp_path / "copies" / name
    synced = Synced(monkeypatch)
    backup.make(home, to, "payments", sound)
    assert synced.missing(to) == []
    assert synced.nodes[-1] == to.parent.stat().st_ino


def test_bounded_run_is_on_the_disk_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = checkpoint(tmp_path / "home")
    synced = Synced(monkeypatch)
    run = written_down(home, "replay", 3, 0)
    assert synced.missing(run.spark) == []
    assert synced.nodes[-1] == run.path.stat().st_ino


def test_file_that_is_written_in_one_piece_has_its_name_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch)
    with own_log.synced(tmp_path / "file") as out:
        out.write("text")
    assert synced.nodes == [(tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino]
