"""Lines of a ledger that are not as they were written: each is found, in ledgers of this version and of older ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.checkpoints import PER_BATCH, QUERY, checkpoint, commit_batch, entry, plan_batch

from penstock.checkpoint import backup, damage
from penstock.checkpoint.audit import Audit, audit
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger, SinkCount
from penstock.errors import LedgerDamaged, LedgerMissing, Stopped
from penstock.lifecycle import preconditions
from penstock.record import OffsetRange
from penstock.verification import ledger as ledger_proof
from penstock.verification.report import Report

FIRST, SECOND = "000000000.jsonl", "000000001.jsonl"
NOTHING: frozenset[str] = frozenset()
ACCEPTED = frozenset({LedgerDamaged.code})

# As the last version without hashes wrote it.
OLD_LINE = (
    '{"pipeline":"payments","query":"46510afa-a74b-42c7-aa81-0078a23d40eb","batch":0,'
    '"time":"2026-11-15T11:43:00.000+00:00","start":"earliest","ranges":[{"topic":"payments","partition":0,"start":0,'
    '"end":10},{"topic":"payments","partition":1,"start":0,"end":10}],"topics":{"payments":{"view":"payments","id":'
    '"id-1"}},"views":{"payments":{"read":20,"passed":20,"dead":0,"dropped":{},"rejected":0,"died":{}}},"sinks":{"lake"'
    ':{"written":20,"dropped":0,"fingerprint":null,"superseded":0,"rejected":0,"failed":0,"seconds":0.0}},"lost":[],'
    '"doubtful":[],"accepted":[],"skipped":[],"again":[],"renewed":{},"stateful":{},"real_time":false}\n'
)


def old(ledger: Ledger, entries: Iterable[Entry]) -> None:
    """Written as older versions did: without hashes."""
    for each in entries:
        with (ledger.path / f"{each.batch // 1000:09d}.jsonl").open("a") as out:
            out.write(each.as_line())


def new(ledger: Ledger, entries: Iterable[Entry]) -> None:
    for each in entries:
        ledger.append(each)


def found(ledger: Ledger) -> Audit:
    return audit(ledger.files(), QUERY, "payments")


def wrong(ledger: Ledger) -> list[str]:
    return [str(fault) for fault in found(ledger).at_start]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


Lines = list[bytes]
Harm = Callable[[Lines, int], Lines]


def query_changed(lines: Lines, at: int) -> Lines:
    return [*lines[:at], lines[at].replace(QUERY.encode(), QUERY[:-1].encode() + b"0"), *lines[at + 1 :]]


def count_changed(lines: Lines, at: int) -> Lines:
    return [*lines[:at], lines[at].replace(b'"written":20', b'"written":19'), *lines[at + 1 :]]


def offset_changed(lines: Lines, at: int) -> Lines:
    begins = b'"partition":1,"start":'
    return [*lines[:at], lines[at].replace(begins, begins + b"9"), *lines[at + 1 :]]


def removed(lines: Lines, at: int) -> Lines:
    return [*lines[:at], *lines[at + 1 :]]


def repeated(lines: Lines, at: int) -> Lines:
    return [*lines[: at + 1], lines[at], *lines[at + 1 :]]


def swapped(lines: Lines, at: int) -> Lines:
    return [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]


def garbled(lines: Lines, at: int) -> Lines:
    return [*lines[:at], lines[at][:40] + b"\xff" + lines[at][41:], *lines[at + 1 :]]


def without_hash(lines: Lines, at: int) -> Lines:
    return [*lines[:at], lines[at][: lines[at].index(b',"after"')] + b"}\n", *lines[at + 1 :]]


def harm(ledger: Ledger, how: Harm, batch: int) -> None:
    """Over the lines of all files together, and back into the files."""
    files = sorted(ledger.path.iterdir())
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    sizes = [file.read_bytes().count(b"\n") for file in files]
    after = how(lines, batch)
    assert after != lines
    sizes[-1] += len(after) - len(lines)
    for file, size in zip(files, sizes, strict=True):
        file.write_bytes(b"".join(after[:size]))
        after = after[size:]


EVERY = [query_changed, count_changed, offset_changed, removed, repeated, swapped, garbled, without_hash]


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("at", [1, 3])
def test_line_in_the_middle_that_is_not_as_it_was_written_is_found(ledger: Ledger, how: Harm, at: int) -> None:
    new(ledger, map(entry, range(6)))
    assert wrong(ledger) == []
    harm(ledger, how, at)
    assert wrong(ledger)


@pytest.mark.parametrize("how", [query_changed, count_changed, offset_changed, repeated, swapped, without_hash])
def test_last_line_that_is_not_as_it_was_written_is_found(ledger: Ledger, how: Harm) -> None:
    new(ledger, map(entry, range(4)))
    harm(ledger, how, 3)
    assert wrong(ledger)


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("at", [2, 3])
def test_line_at_the_end_of_a_file_or_the_beginning_of_the_next_is_found(ledger: Ledger, how: Harm, at: int) -> None:
    new(ledger, map(entry, range(997, 1003)))
    assert [file.name for file in sorted(ledger.path.iterdir())] == [FIRST, SECOND]
    assert wrong(ledger) == []
    harm(ledger, how, at)
    assert wrong(ledger)


def test_file_that_was_removed_is_found_in_the_next_one(ledger: Ledger) -> None:
    new(ledger, map(entry, range(997, 1003)))
    (ledger.path / FIRST).unlink()
    assert len(wrong(ledger)) == 1


def test_fault_names_line_file_and_batch_and_only_once(ledger: Ledger) -> None:
    new(ledger, map(entry, range(6)))
    harm(ledger, count_changed, 3)
    assert wrong(ledger) == [f"batch 3: line 4 of {FIRST} was changed"]
    report = Report("payments")
    home = Home(ledger.path.parent)
    ledger.path.rename(home.ledger)
    ledger_proof.as_written(home, "payments", report)
    assert [(each.kind, each.batch) for each in report.findings] == [("ledger-damaged", 3)]


def test_batch_that_ran_again_appends_its_line_again_and_the_chain_holds(ledger: Ledger) -> None:
    new(ledger, [entry(0), entry(1), entry(1), replace(entry(1), time="later"), entry(2)])
    assert wrong(ledger) == []
    harm(ledger, removed, 2)
    assert wrong(ledger)


def test_line_that_was_cut_is_no_fault_before_and_after_the_next_append(ledger: Ledger) -> None:
    new(ledger, [entry(0), entry(1)])
    file = ledger.path / FIRST
    whole = file.read_bytes()
    begin = whole.index(b"\n") + 1
    for cut in [*range(begin, len(whole), 29), *range(len(whole) - 5, len(whole))]:
        file.write_bytes(whole[:cut])
        assert wrong(ledger) == []
        new(ledger, [entry(1), entry(2)])
        assert wrong(ledger) == []
        assert list(ledger.entries()) == [entry(0), entry(1), entry(2)]


@pytest.mark.parametrize("debris", [b"\x00" * 4096, b"\xff\xfe\x80", b"null", b"[]", b"{}"])
def test_debris_of_a_power_cut_is_no_fault(ledger: Ledger, debris: bytes) -> None:
    new(ledger, [entry(0)])
    with (ledger.path / FIRST).open("ab") as out:
        out.write(debris)
    assert wrong(ledger) == []
    new(ledger, [entry(1)])
    assert wrong(ledger) == []


def test_line_of_the_last_version_without_hashes_is_read_and_judged(ledger: Ledger) -> None:
    (ledger.path / FIRST).write_text(OLD_LINE)
    assert list(ledger.entries()) == [entry(0)]
    assert entry(0).as_line() == OLD_LINE
    assert wrong(ledger) == []


@pytest.mark.parametrize("how", [query_changed, offset_changed, removed, garbled])
def test_old_ledger_is_judged_by_what_it_says(ledger: Ledger, how: Harm) -> None:
    old(ledger, map(entry, range(6)))
    assert wrong(ledger) == []
    harm(ledger, how, 3)
    assert wrong(ledger)


@pytest.mark.parametrize("at", [999, 1000])
@pytest.mark.parametrize("how", [query_changed, offset_changed, removed])
def test_old_ledger_of_two_files_is_judged_over_both(ledger: Ledger, how: Harm, at: int) -> None:
    old(ledger, (replace(entry(0), batch=n, ranges=entry(n).ranges) for n in range(1003)))
    assert wrong(ledger) == []
    harm(ledger, how, at)
    assert wrong(ledger)


def test_old_lines_that_a_crash_cut_off_or_that_came_again_are_no_fault(ledger: Ledger) -> None:
    old(ledger, [entry(0), entry(1)])
    with (ledger.path / FIRST).open("a") as out:
        out.write(entry(2).as_line()[:70] + "\n")
    old(ledger, [entry(2), entry(2)])
    with (ledger.path / FIRST).open("a") as out:
        out.write(entry(3).as_line()[:70])
    assert wrong(ledger) == []
    new(ledger, [entry(3), entry(4)])
    assert wrong(ledger) == []
    assert [each.batch for each in ledger.entries()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", [query_changed, count_changed, offset_changed, removed, repeated, swapped, garbled])
@pytest.mark.parametrize("at", [1, 2])
def test_first_line_with_a_hash_ties_down_the_old_ones_before_it(ledger: Ledger, how: Harm, at: int) -> None:
    old(ledger, map(entry, range(3)))
    new(ledger, [entry(3), entry(4)])
    assert wrong(ledger) == []
    harm(ledger, how, at)
    assert wrong(ledger)


def test_first_line_with_a_hash_ties_down_files_of_old_lines(ledger: Ledger) -> None:
    old(ledger, (replace(entry(0), batch=n, ranges=entry(n).ranges) for n in range(1002)))
    new(ledger, [replace(entry(0), batch=1002, ranges=entry(1002).ranges)])
    assert wrong(ledger) == []
    harm(ledger, count_changed, 500)
    assert wrong(ledger)


def test_seek_skip_and_going_back_in_an_old_ledger_are_no_fault(ledger: Ledger) -> None:
    begin = 2 * PER_BATCH
    ranges = [OffsetRange("payments", p, begin + 5, begin + 5) for p in (0, 1)]
    ahead = [OffsetRange("payments", p, begin, begin + 5) for p in (0, 1)]
    seek = replace(entry(2), ranges=ranges, views={}, sinks={}, skipped=ahead)
    after = replace(entry(3), ranges=[replace(r, end=r.start + 5) for r in ranges])
    old(ledger, [entry(0), entry(1), seek, after])
    assert wrong(ledger) == []


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return checkpoint(tmp_path / "home", 6)


@pytest.mark.parametrize("how", EVERY)
def test_start_over_a_damaged_line_is_refused_until_that_is_accepted(home: Home, how: Harm) -> None:
    ledger = Ledger(home.ledger)
    harm(ledger, how, 3)
    with pytest.raises(LedgerDamaged) as refused:
        preconditions.check(home, "payments", NOTHING)
    assert "penstock checkpoint repair FILE" in str(refused.value.next_command)
    assert str(refused.value.next_command).endswith("--accept ledger-damaged")
    preconditions.check(home, "payments", ACCEPTED)
    plan_batch(home, 6)
    ledger.append(replace(entry(6), accepted=[LedgerDamaged.code]))  # as the start that accepts does
    commit_batch(home, 6)
    preconditions.check(home, "payments", NOTHING)
    assert all(fault.accepted == 6 for fault in found(ledger).faults)
    report = Report("payments")
    ledger_proof.as_written(home, "payments", report)
    assert (report.findings, bool(report.unproven)) == ([], True)
    harm(ledger, count_changed, len((home.ledger / FIRST).read_bytes().splitlines()) - 1)
    with pytest.raises(LedgerDamaged):  # another one, that nobody accepted
        preconditions.check(home, "payments", NOTHING)


@pytest.mark.parametrize("how", [query_changed, offset_changed, removed])
def test_start_over_a_damaged_old_ledger_is_refused_until_that_is_accepted(home: Home, how: Harm) -> None:
    ledger = Ledger(home.ledger)
    (home.ledger / FIRST).unlink()
    old(ledger, map(entry, range(6)))
    preconditions.check(home, "payments", NOTHING)
    harm(ledger, how, 3)
    with pytest.raises(LedgerDamaged):
        preconditions.check(home, "payments", NOTHING)
    plan_batch(home, 6)
    ledger.append(replace(entry(6), accepted=[LedgerDamaged.code]))
    commit_batch(home, 6)
    preconditions.check(home, "payments", NOTHING)


def test_last_line_of_a_committed_batch_that_was_removed_is_missed_by_the_start(home: Home) -> None:
    harm(Ledger(home.ledger), removed, 5)
    with pytest.raises(LedgerMissing):
        preconditions.check(home, "payments", NOTHING)


def test_seek_after_the_damage_was_accepted_does_not_trust_the_ledger(home: Home) -> None:
    from penstock.operations.refusal import _incomplete

    assert _incomplete([entry(0), replace(entry(1), accepted=[LedgerDamaged.code])])


def no_check(_: Home) -> None:
    return


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("batches", [6, 4], ids=["of now", "of before two batches"])
def test_repair_brings_lines_back_from_a_backup_byte_for_byte(
    home: Home, tmp_path: Path, how: Harm, batches: int
) -> None:
    before = checkpoint(tmp_path / "before", batches)
    backup.make(before, tmp_path / "copy", "payments", no_check)
    whole = (home.ledger / FIRST).read_bytes()
    harm(Ledger(home.ledger), how, 2)
    [alone] = damage.find(home)
    assert (alone.file, alone.source) == (f"ledger/{FIRST}", None)
    damages = damage.find(home, Home(tmp_path / "copy"))
    assert [(each.file, each.source) for each in damages] == [(f"ledger/{FIRST}", "a backup")]
    damage.repair(home, damages, tmp_path / "aside")
    assert (home.ledger / FIRST).read_bytes() == whole
    assert damage.find(home) == []
    preconditions.check(home, "payments", NOTHING)


def test_repair_names_the_file_that_lost_its_end_and_not_the_one_behind_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for part in ("offsets", "commits"):
        (home.spark / part).mkdir(parents=True)
    home.ledger.mkdir()
    for batch in range(998, 1002):
        plan_batch(home, batch)
        Ledger(home.ledger).append(replace(entry(0), batch=batch, accepted=["ledger-missing"] * (batch == 998)))
        commit_batch(home, batch)
    (home.spark / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    backup.make(home, tmp_path / "copy", "payments", no_check)
    harm_first = (home.ledger / FIRST).read_bytes().splitlines(keepends=True)
    (home.ledger / FIRST).write_bytes(harm_first[0])
    damages = damage.find(home, Home(tmp_path / "copy"))
    assert [(each.file, each.source) for each in damages] == [(f"ledger/{FIRST}", "a backup")]


def test_backup_of_a_damaged_ledger_is_refused(home: Home, tmp_path: Path) -> None:
    harm(Ledger(home.ledger), count_changed, 2)
    with pytest.raises(Stopped):
        backup.make(home, tmp_path / "copy", "payments", lambda copy: preconditions.check(copy, "payments", NOTHING))
    assert not (tmp_path / "copy").exists()


def test_backup_keeps_what_a_crash_left_between_lines_because_the_hashes_know_it(tmp_path: Path) -> None:
    home = checkpoint(tmp_path / "home", 2)
    (home.ledger / FIRST).unlink()
    old(Ledger(home.ledger), [entry(0)])
    with (home.ledger / FIRST).open("a") as out:
        out.write(entry(1).as_line()[:70] + "\n")
    old(Ledger(home.ledger), [entry(1)])
    plan_batch(home, 2)
    Ledger(home.ledger).append(entry(2))
    commit_batch(home, 2)
    backup.make(home, tmp_path / "copy", "payments", lambda copy: preconditions.check(copy, "payments", NOTHING))


def test_entry_with_a_count_changed_is_not_taken_for_one_of_another_version(home: Home) -> None:
    file = home.ledger / FIRST
    file.write_bytes(file.read_bytes().replace(b'"written"', b'"writen"', 1))
    assert [each.batch for each in Ledger(home.ledger).entries()] == [1, 2, 3, 4, 5]
    with pytest.raises(LedgerDamaged):
        preconditions.check(home, "payments", NOTHING)
    assert replace(entry(0), sinks={"lake": SinkCount(20, 0)}) == entry(0)
