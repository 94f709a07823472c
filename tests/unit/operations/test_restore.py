"""Putting a backup in the place of a checkpoint, told by files alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.checkpoints import QUERY, begun, checkpoint, contents, entry, plan_batch

from penstock.checkpoint import backup
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.errors import BackupDamaged, CheckpointForeign
from penstock.lifecycle import preconditions, stream
from penstock.operations import restore
from penstock.plan import build
from penstock.spec.model import Pipeline


def sound(home: Home) -> None:
    preconditions.check(home, "payments", frozenset())


def files(home: Home) -> dict[str, bytes]:
    """Of the checkpoint itself."""
    beside = ("backups", ".restore.new", "restoring", ".restoring.new", "manifest.json")
    return {name: what for name, what in contents(home).items() if not name.startswith(beside)}


class Crash(BaseException):
    pass


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rename, left = Path.rename, [number]

    def renamed(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)


@pytest.mark.parametrize("old", ["ahead", "never committed", "gone"])
def test_restore_that_is_cut_off_anywhere_changed_nothing_or_is_refused_and_can_be_done_again(
    tmp_path: Path, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoint(tmp_path / "source", 3)
    source.schemas.mkdir()
    (source.schemas / "1.json").write_text("{}")
    backup.make(source, tmp_path / "copy", "payments", sound)
    copy = Home(tmp_path / "copy")
    crashes = 0
    for number in range(100):
        home = Home(tmp_path / str(number))
        if old == "ahead":
            checkpoint(home.path, 6)
        elif old == "never committed":
            plan_batch(begun(home.path), 0)
        home.ledger.mkdir(parents=True, exist_ok=True)
        before = files(home)
        with monkeypatch.context() as patched:
            crash_at(patched, number)
            try:
                restore._exchange(home, copy, copy.path)
            except Crash:
                crashes += 1
            else:
                break
        if files(home) == before:
            continue
        with pytest.raises(CheckpointForeign) as refused:
            sound(home)
        assert refused.value.next_command == f"penstock checkpoint restore FILE {copy.path}"
        restore._exchange(home, copy, copy.path)
        sound(home)
        assert files(home) == files(copy)
        assert not home.restoring.exists()
    assert crashes > 3
    assert files(home) == files(copy)
    assert bool(backup.aside(home)) == (old != "gone")  # where there was nothing, nothing was put aside


def test_restore_that_has_not_begun_to_exchange_leaves_a_checkpoint_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = checkpoint(tmp_path / "home", 6)
    backup.make(home, tmp_path / "copy", "payments", sound)
    crash_at(monkeypatch, 0)
    with pytest.raises(Crash):
        restore._exchange(home, Home(tmp_path / "copy"), tmp_path / "copy")
    sound(home)


def pipeline(home: Path, guarantee: str = "exactly-once") -> Pipeline:
    topic = {"topic": "out", "value": {"format": "json"}, "guarantee": guarantee}
    return Pipeline.model_validate(
        {
            "name": "payments",
            "kafka": {"bootstrap": "unused"},
            "checkpoint": str(home),
            "source": {"topics": {"payments": {"value": {"format": "string"}}}},
            "sinks": {"out": {"from": "payments", "kafka": topic}},
        }
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_schemas_that_are_written_down_while_sinks_are_asked_do_not_get_into_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    home = checkpoint(tmp_path / "home")
    home.schemas.mkdir()
    (home.schemas / "readers.json").write_text("{}")
    backup.make(home, tmp_path / "copy", "payments", sound)
    assembly = build.assembly
    known = []

    def and_write_down(at: Pipeline, log: Home) -> object:
        file = Home.of(at).schemas / "readers.json"
        known.append(file.read_text())
        file.write_text("{ }")
        assert log.spark == tmp_path / "copy" / "spark"
        return assembly(at, log)

    monkeypatch.setattr(build, "assembly", and_write_down)
    monkeypatch.setattr(stream, "prepare", lambda *_: None)  # no sink is there to be asked
    restore.restore(pipeline(home.path), tmp_path / "copy", dry_run=dry_run)
    assert known == ["{}"]
    with backup.opened(tmp_path / "copy"):
        pass
    assert (home.schemas / "readers.json").read_text() == "{}"


def test_backup_that_is_not_whole_does_not_stand_in_the_way_of_a_repair(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "home")
    places = [restore.back_up(pipeline(home.path))[0] for _ in range(3)]
    (places[1] / backup.MANIFEST).write_text("{")
    (places[2] / "spark" / "metadata").unlink()
    file = home.spark / "commits" / "1"
    whole = file.read_bytes()
    file.write_bytes(b"")
    made = restore.repair(pipeline(home.path), apply=True)
    assert (made.backup, file.read_bytes()) == (str(places[0]), whole)
    assert [str(place) in said for place, said in zip(places[:0:-1], made.skipped, strict=True)] == [True, True]
    with pytest.raises(BackupDamaged):  # one that was asked for by name
        restore.repair(pipeline(home.path), places[2])
    (places[0] / backup.MANIFEST).write_text("{")
    file.write_bytes(b"")
    made = restore.repair(pipeline(home.path))
    assert (made.backup, [each.source for each in made.damage], len(made.skipped)) == (None, ["the ledger"], 3)


@pytest.mark.parametrize(
    ("committed", "batches", "said"),
    [(None, 1, "batch 0"), (None, 2, "batches 0 to 1"), (0, 1, None), (0, 2, "batch 1"), (0, 4, "batches 1 to 3")],
)
def test_sink_that_cannot_tell_is_warned_of_every_batch_after_the_backup(
    tmp_path: Path, committed: int | None, batches: int, said: str | None
) -> None:
    home = checkpoint(tmp_path / "home", batches)
    manifest = backup.Manifest("payments", QUERY, "", committed, 0, committed, {})
    warnings = restore._twice(pipeline(home.path, "at-least-once"), home, manifest)
    assert [f"of {said} a" in each for each in warnings] == ([True] if said else [])


def test_backup_of_another_query_is_passed_over_and_said(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "home")
    place = restore.back_up(pipeline(home.path))[0]
    (home.spark / "metadata").write_text((home.spark / "metadata").read_text().replace(QUERY, "another"))
    (home.spark / ".metadata.crc").unlink()
    (home.ledger / "000000000.jsonl").unlink()
    for batch in range(4):
        Ledger(home.ledger).append(entry(batch, query="another"))
    (home.spark / "commits" / "1").write_bytes(b"")
    for source in (None, place):
        made = restore.repair(pipeline(home.path), source)
        assert (made.backup, made.skipped) == (None, [f"{place} is not known to be of this query"])
        assert [each.source for each in made.damage] == ["the ledger"]


def test_what_a_repair_and_a_restore_put_aside_is_found_again_and_is_no_backup(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "home")
    place = restore.back_up(pipeline(home.path))[0]
    (home.spark / "commits" / "1").write_bytes(b"")
    damaged = restore.repair(pipeline(home.path), apply=True).aside
    replaced = restore._exchange(home, Home(place), place)
    assert [str(each) for each in backup.aside(home)] == [damaged, replaced]
    assert backup.kept(home) == [place]


def test_file_that_is_no_archive_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("monday: all is well\n" * 100)
    with pytest.raises(BackupDamaged) as raised, backup.opened(tmp_path / "notes.txt"):
        pass
    assert raised.value.cause == "it is no archive, or its beginning is damaged"
