"""Which batches are the newest, and which of their dead letters count."""

from __future__ import annotations

from penstock.checkpoint.ledger import Entry, ViewCount
from penstock.deadletters.browse import Death, Letter
from penstock.doctor.dead_letter_facts import counts, with_letters


def entry(batch: int, read: int, dead: int) -> Entry:
    return Entry("p", "q", batch, "", "earliest", [], {}, {"v": ViewCount(read, read - dead, dead)}, {})


def test_newest_batches_are_three_and_more_until_they_have_a_thousand_records() -> None:
    many = [entry(n, 5_000, 5) for n in range(10)]
    found, lately = counts(many)
    assert found is not None
    assert ([each.batch for each in lately], found.read, found.read_before) == ([9, 8, 7], 15_000, 35_000)
    small = [*many, *(entry(n, 300, 300) for n in range(10, 14)), entry(14, 0, 0)]
    found, lately = counts(small)
    assert found is not None
    assert (len(lately), found.read, found.dead, found.batches_before) == (4, 1_200, 1_200, 10)
    assert counts([entry(0, 0, 0)]) == (None, [])


def test_letters_of_these_batches_say_why_and_what_a_replay_brought_home_is_dead_no_more() -> None:
    def letter(offset: int, batch: int, reason: str, state: str = "dead") -> Letter:
        death = Death("stream", "q", batch, "decode", "malformed", reason)
        return Letter("t", 0, offset, 0, 1, (death,), state)  # type: ignore[arg-type]

    found, _ = counts([entry(0, 100, 50), entry(1, 100, 60)])
    assert found is not None
    letters = [letter(n, 1, "no JSON") for n in range(3)] + [letter(9, 1, "no\nkey")]
    letters += [letter(10, 1, "no JSON", "replayed"), letter(11, 7, "older")]
    made = with_letters(found, {("q", 0), ("q", 1)}, letters)
    assert (made.dead, list(made.reasons)) == (
        109,
        [("decode, malformed: t-0 offset 0: no JSON", 3), ("decode, malformed: t-0 offset 9: no key", 1)],
    )
