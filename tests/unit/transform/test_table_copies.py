"""Copies of reference tables on the disk: the newest whole one of what the spec says counts."""

from __future__ import annotations

from pathlib import Path

from penstock.record import Batch
from penstock.transform.reference.copies import Copies, Copy


def taken(copies: Copies, made_of: str = "rates.csv") -> Copy:
    number, staged = copies.staged("rates")
    staged.mkdir()
    return copies.publish(staged, Copy("", number, made_of, 1.0, 3, 100, {}))


def test_newest_whole_copy_of_what_the_spec_says_counts(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    assert copies.newest("rates", "rates.csv") is None
    first = taken(copies)
    assert copies.newest("rates", "rates.csv") == first
    second = taken(copies)
    copies.staged("rates")[1].mkdir()  # a crash left it half written
    (tmp_path / "rates" / "7").mkdir()  # and somebody this
    assert (second.number, copies.newest("rates", "rates.csv")) == (2, second)
    other = taken(copies, "other.csv")
    assert copies.newest("rates", "rates.csv") == second
    assert copies.newest("rates", "other.csv") == other


def test_batch_is_known_to_have_begun_only_with_copies_that_are_there(tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    assert copies.begun() is None
    copy = taken(copies)
    copies.begin(Batch("p", "q", 4), {"rates": copy})
    begun = copies.begun()
    assert begun is not None
    assert (begun.query, begun.batch, begun.tables) == ("q", 4, {"rates": 1})
    copies.remove_all_but("rates", [1])
    assert copies.begun() == begun
    copies.remove_all_but("rates", [])
    assert copies.begun() is None
    (tmp_path / "batch.json").write_text("{")
    assert copies.begun() is None
