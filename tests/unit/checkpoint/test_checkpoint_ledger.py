"""The ledger's files: what a crash at any byte leaves, and what the next append makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.checkpoint.ledger import Entry, Ledger, SinkCount, TopicFact, ViewCount
from penstock.record import OffsetRange


def entry(batch: int, read: int = 10, query: str = "q1") -> Entry:
    return Entry(
        pipeline="payments",
        query=query,
        batch=batch,
        time="2026-01-01T00:00:00Z",
        start="earliest",
        ranges=[OffsetRange("payments", 0, batch * 10, batch * 10 + read)],
        topics={"payments": TopicFact("payments", "id-1")},
        views={"payments": ViewCount(read, read - 3, 1, {"no-zero": 2})},
        sinks={"table": SinkCount(read - 3, None)},
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def test_entry_reads_back_equal_to_what_was_appended(ledger: Ledger) -> None:
    odd = replace(entry(0), pipeline="zahlungen-ü\u2028\n😀", views={'t"\\': ViewCount(0, 0, 0)})
    ledger.append(odd)
    ledger.append(entry(1))
    assert list(ledger.entries()) == [odd, entry(1)]


def test_ledger_that_was_never_written_has_no_entries(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        assert list(Ledger(path).entries()) == []
        assert Ledger(path).last() is None
        assert Ledger(path).last() is None


def test_last_line_cut_at_every_byte_loses_no_earlier_entry_and_swallows_no_later_one(ledger: Ledger) -> None:
    ledger.append(entry(0))
    ledger.append(entry(1))
    [file] = ledger.path.iterdir()
    whole = file.read_bytes()
    begin = whole.index(b"\n") + 1
    for cut in range(begin, len(whole) + 1):
        file.write_bytes(whole[:cut])
        complete = cut >= len(whole) - 1  # only the newline may be missing
        assert list(ledger.entries()) == ([entry(0), entry(1)] if complete else [entry(0)])
        ledger.append(entry(1, read=7))
        ledger.append(entry(2))
        assert list(ledger.entries()) == [entry(0), entry(1, read=7), entry(2)]
        assert ledger.last() == entry(2)


def test_first_line_ever_cut_at_every_byte_leaves_a_ledger_that_goes_on(ledger: Ledger) -> None:
    line = entry(0).as_line().encode()
    file = ledger.path / "000000000.jsonl"
    for cut in range(len(line) - 1):
        file.write_bytes(line[:cut])
        assert ledger.last() is None
        ledger.append(entry(0))
        assert list(ledger.entries()) == [entry(0)]


@pytest.mark.parametrize(
    "debris", [b"\x00" * 4096, b"\xff\xfe\x80", b"null", b"[]", b"{}", b'{"topics":[]}', b'"\xed\xa0\x80"']
)
def test_debris_a_power_cut_left_at_the_end_costs_no_entry(ledger: Ledger, debris: bytes) -> None:
    ledger.append(entry(0))
    [file] = ledger.path.iterdir()
    file.write_bytes(file.read_bytes() + debris)
    assert list(ledger.entries()) == [entry(0)]
    ledger.append(entry(1))
    assert list(ledger.entries()) == [entry(0), entry(1)]


def test_batch_appended_twice_counts_once_and_the_last_one_wins(ledger: Ledger) -> None:
    for each in (entry(0), entry(1, read=5), entry(1, read=9), entry(0, read=4)):
        ledger.append(each)
    assert list(ledger.entries()) == [entry(0, read=4), entry(1, read=9)]
    assert ledger.last() == entry(1, read=9)


def test_entries_come_in_the_order_of_batches_over_files_whatever_order_they_were_written_in(ledger: Ledger) -> None:
    for batch in (2001, 999, 1000, 0, 1999, 1_000_000, 5):
        ledger.append(entry(batch))
    assert [e.batch for e in ledger.entries()] == [0, 5, 999, 1000, 1999, 2001, 1_000_000]
    assert next(ledger.entries()) == entry(0)
    assert ledger.last() == entry(1_000_000)


def test_a_thousand_batches_share_a_file_and_the_next_begins_another(ledger: Ledger) -> None:
    for batch in (0, 999, 1000):
        ledger.append(entry(batch))
    assert sorted(f.name for f in ledger.path.iterdir()) == ["000000000.jsonl", "000000001.jsonl"]
    assert (ledger.path / "000000000.jsonl").read_text().count("\n") == 2


def test_file_that_holds_only_a_torn_line_does_not_hide_the_last_entry_before_it(ledger: Ledger) -> None:
    ledger.append(entry(999))
    (ledger.path / "000000001.jsonl").write_bytes(entry(1000).as_line().encode()[:20])
    assert ledger.last() == entry(999)


def test_topic_count_balances_only_when_every_record_is_accounted_for() -> None:
    assert ViewCount(10, 7, 1, {"a": 1, "b": 1}).balanced()
    assert not ViewCount(10, 7, 1, {"a": 1}).balanced()
    assert not ViewCount(10, 7, 1, {"a": 3}).balanced()


def test_entry_sums_read_and_dead_over_its_topics() -> None:
    both = replace(entry(0), views={"a": ViewCount(5, 4, 1), "b": ViewCount(7, 5, 2)})
    assert (both.read, both.dead) == (12, 3)
