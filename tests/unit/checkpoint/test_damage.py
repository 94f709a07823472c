"""Files that are truncated, missing or changed: each is found, and made again only from what proves it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints import QUERY, begun, checkpoint, commit_batch, contents, entry, plan_batch

from penstock.checkpoint import backup, damage
from penstock.checkpoint.files import wrong_with
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.operations.split import _rewritten


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return checkpoint(tmp_path / "home")


def files(found: list[damage.Damage]) -> list[tuple[str, str | None]]:
    return [(each.file, each.source) for each in found]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def remove(file: Path) -> None:
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink()


def no_check(_: Home) -> None:
    return


def test_whole_checkpoint_and_one_whose_newest_batch_is_under_way_have_no_damage(home: Home) -> None:
    assert damage.find(home) == []
    plan_batch(home, 4)
    assert damage.find(home) == []
    Ledger(home.ledger).append(entry(4))
    with (home.ledger / "000000000.jsonl").open("ab") as out:
        out.write(b'{"pipeline":"payments","que')  # a crash cut it off
    assert damage.find(home) == []


def test_first_batch_that_is_under_way_is_no_damage(tmp_path: Path) -> None:
    home = begun(tmp_path / "home")
    assert damage.find(home) == []
    plan_batch(home, 0)
    assert damage.find(home) == []
    (home.spark / "commits").mkdir()
    Ledger(home.ledger).append(entry(0))
    assert damage.find(home) == []


def test_old_batches_that_spark_has_removed_are_no_damage(home: Home) -> None:
    for batch in (0, 1):
        for kind in ("offsets", "commits"):
            remove(home.spark / kind / str(batch))
    assert damage.find(home) == []


@pytest.mark.parametrize("harm", [truncate, empty, remove])
@pytest.mark.parametrize(
    "name", ["metadata", "sources/0/0", "offsets/1", "offsets/3", "commits/1", "commits/2", "commits/3"]
)
def test_harmed_file_is_found_and_made_again_from_the_ledger(
    home: Home, tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    file = home.spark / name
    before = contents(home)
    harm(file)
    if (name, harm) == ("commits/3", remove):
        assert damage.find(home) == []  # as if it had crashed before the commit: the batch runs again
        return
    [found] = damage.find(home)
    assert (found.file, found.source) == (f"spark/{name}", "the ledger")
    damage.repair(home, [found], tmp_path / "aside")
    assert damage.find(home) == []
    assert file.read_bytes() == before[f"spark/{name}"]
    assert wrong_with(file) is None
    assert SparkLog(home.spark).query_id() == QUERY


def test_file_that_was_changed_but_can_be_read_is_found_by_its_checksum(home: Home) -> None:
    file = home.spark / "offsets" / "3"
    file.write_text(file.read_text().replace(":40", ":41"))
    [found] = damage.find(home)
    assert "checksum" in found.what
    assert json.loads((found.content or b"").splitlines()[-1]) == {"payments": {"0": 40, "1": 40}}


def test_offsets_of_a_batch_that_the_ledger_does_not_have_need_a_backup(home: Home, tmp_path: Path) -> None:
    plan_batch(home, 4)
    backup.make(home, tmp_path / "copy", "payments", no_check)
    truncate(home.spark / "offsets" / "4")
    assert files(damage.find(home)) == [("spark/offsets/4", None)]
    assert damage.repair(home, damage.find(home), tmp_path / "aside") == []
    assert files(damage.find(home, Home(tmp_path / "copy"))) == [("spark/offsets/4", "a backup")]


def split_batch(home: Home, batch: int) -> Entry:
    """Planned, backed up by the caller, and then made smaller; the entry that it gets when it is done."""
    whole = entry(batch)
    ranges = [replace(r, end=r.start + 5) for r in whole.ranges]
    _rewritten(home.spark / "offsets", batch, ranges)
    return replace(whole, ranges=ranges)


@pytest.mark.parametrize("state", [False, True])
def test_offsets_of_a_batch_that_was_split_since_the_backup_are_those_of_its_entry(
    home: Home, tmp_path: Path, state: bool
) -> None:
    plan_batch(home, 4)
    backup.make(home, tmp_path / "copy", "payments", no_check)
    Ledger(home.ledger).append(split_batch(home, 4))
    commit_batch(home, 4)
    for kept in (home.spark / "offsets").glob("4.*"):
        kept.unlink()  # somebody tidied up
    truncate(home.spark / "offsets" / "4")
    if state:
        (home.spark / "state" / "0" / "0").mkdir(parents=True)
        assert files(damage.find(home, Home(tmp_path / "copy"))) == [("spark/offsets/4", None)]
        return
    [found] = damage.find(home, Home(tmp_path / "copy"))
    assert (found.file, found.source) == ("spark/offsets/4", "the ledger")
    assert json.loads((found.content or b"").splitlines()[-1]) == {"payments": {"0": 45, "1": 45}}


def test_backup_that_says_the_same_as_the_entry_is_taken_as_it_is(home: Home, tmp_path: Path) -> None:
    (home.spark / "state" / "0" / "0").mkdir(parents=True)
    backup.make(home, tmp_path / "copy", "payments", no_check)
    whole = (home.spark / "offsets" / "2").read_bytes()
    truncate(home.spark / "offsets" / "2")
    [found] = damage.find(home, Home(tmp_path / "copy"))
    assert (found.source, found.content) == ("a backup", whole)


def test_batch_that_was_split_and_has_no_entry_yet_does_not_come_back_whole(home: Home, tmp_path: Path) -> None:
    """A sink may hold the shorter one already, and would take it for the whole."""
    plan_batch(home, 4)
    backup.make(home, tmp_path / "before", "payments", no_check)
    split_batch(home, 4)
    backup.make(home, tmp_path / "after", "payments", no_check)
    short = (home.spark / "offsets" / "4").read_bytes()
    truncate(home.spark / "offsets" / "4")
    assert files(damage.find(home, Home(tmp_path / "before"))) == [("spark/offsets/4", None)]
    [found] = damage.find(home, Home(tmp_path / "after"))
    assert (found.source, found.content) == ("a backup", short)


def test_state_makes_the_ledger_no_proof(home: Home) -> None:
    (home.spark / "state" / "0" / "0").mkdir(parents=True)
    truncate(home.spark / "commits" / "2")
    assert files(damage.find(home)) == [("spark/commits/2", None)]


def test_backup_of_another_query_is_no_help(home: Home, tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "other")
    (other.spark / "metadata").write_text('{"id":"another"}')
    empty(home.ledger / "000000000.jsonl")
    assert files(damage.find(home, other)) == [("ledger/000000000.jsonl", None)]


def test_entries_missing_from_the_ledger_come_back_from_a_backup_and_others_stay(home: Home, tmp_path: Path) -> None:
    whole = list(Ledger(home.ledger).entries())
    backup.make(home, tmp_path / "copy", "payments", no_check)
    plan_batch(home, 4)
    Ledger(home.ledger).append(entry(4))
    commit_batch(home, 4)
    file = home.ledger / "000000000.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[4])
    assert files(damage.find(home)) == [("ledger/000000000.jsonl", None)]
    found = damage.find(home, Home(tmp_path / "copy"))
    assert found[0].what.startswith("has no entry of batches 1, 2, 3; batch 4: line 3 ")
    damage.repair(home, found, tmp_path / "aside")
    assert list(Ledger(home.ledger).entries()) == [*whole, entry(4)]
    assert (tmp_path / "aside" / "ledger" / "000000000.jsonl").is_file()


def test_seek_that_was_cut_off_is_completed_from_its_ledger_entry(home: Home, tmp_path: Path) -> None:
    from penstock.record import OffsetRange

    moved = replace(
        entry(4),
        ranges=[OffsetRange("payments", 0, 100, 100), OffsetRange("payments", 1, 40, 40)],
        views={},
        sinks={},
        skipped=[OffsetRange("payments", 0, 40, 100)],
    )
    Ledger(home.ledger).append(moved)
    found = damage.find(home)
    assert files(found) == [("spark/offsets/4", "the ledger"), ("spark/commits/4", "the ledger")]
    damage.repair(home, found, tmp_path / "aside")
    log = SparkLog(home.spark)
    assert (log.planned(), log.committed()) == (4, 4)
    assert log.next_positions() == {("payments", 0): 100, ("payments", 1): 40}


def test_checkpoint_that_is_gone_as_a_whole_is_not_made_up(home: Home) -> None:
    shutil.rmtree(home.spark)
    assert damage.find(home) == []  # the guard stops the start, and asks for a backup


def both_gone(home: Home) -> None:
    remove(home.spark / "metadata")
    (home.ledger / "000000000.jsonl").unlink()


def test_metadata_and_ledger_that_are_both_gone_come_back_from_a_backup(home: Home, tmp_path: Path) -> None:
    backup.make(home, tmp_path / "copy", "payments", no_check)
    before = contents(home)
    both_gone(home)
    assert [source for _, source in files(damage.find(home))] == [None, None]
    found = damage.find(home, Home(tmp_path / "copy"))
    assert files(found) == [("spark/metadata", "a backup"), ("ledger/000000000.jsonl", "a backup")]
    damage.repair(home, found, tmp_path / "aside")
    assert damage.find(home) == []
    after = contents(home)
    assert {name: after[name] for name in before if not name.endswith("metadata.crc")} == {
        name: what for name, what in before.items() if not name.endswith("metadata.crc")
    }


def test_backup_of_another_query_does_not_help_where_nothing_says_which_query_this_is(
    home: Home, tmp_path: Path
) -> None:
    other = checkpoint(tmp_path / "other")
    for file in (other.spark / "offsets").iterdir():
        if file.name.isdigit():  # the same offsets, planned at another time
            file.write_text(file.read_text().replace("1794743069148", "1794743099999"))
    backup.make(other, tmp_path / "copy", "payments", no_check)
    both_gone(home)
    assert not damage.helps(home, Home(tmp_path / "copy"))
    assert [source for _, source in files(damage.find(home, Home(tmp_path / "copy")))] == [None, None]
