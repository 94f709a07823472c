"""What became of the letters that replays took, for `verify`. What they brought into the sinks is judged with what
everybody else brought there (`judge`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.checkpoint.ledger import Entry
from penstock.deadletters import replays
from penstock.errors import counted
from penstock.record import Position
from penstock.verification.kafka import Deaths
from penstock.verification.report import Finding
from penstock.verification.writers import Letters, Writer


@dataclass(frozen=True)
class Took:
    """One batch of a replay."""

    replay: str
    batch: int
    entry: Entry | None  # None: it is not finished
    letters: Letters
    died: dict[Position, str | None]  # again -> the sinks that do not have it; None: none of them has

    def answers(self, query: str) -> bool:
        return any(query in letter.queries for letter in self.letters.values())

    @property
    def dropped(self) -> Counter[str]:
        """By rule."""
        by_rules = [Counter(count.dropped) for count in self.entry.views.values()] if self.entry else []
        return sum(by_rules, Counter())

    @property
    def left_out(self) -> Counter[str]:
        """By sink: what steps or its condition left out before it."""
        if self.entry is None:
            return Counter()
        came_through = (each.spared for at, each in self.letters.items() if self.died.get(at, "") is not None)
        return Counter(replays.left_out_before(self.entry, came_through))


def took(writers: Iterable[Writer], deaths: Deaths, query: str) -> list[Took]:
    """Every batch of every replay that took letters of this query."""
    made = []
    for writer in writers:
        entries = {entry.batch: entry for entry in writer.entries}
        for number, letters in (writer.letters or {}).items():
            entry = entries.get(number)
            again = deaths.batches.get((entry.query, number), {}) if entry else {}
            died = {(t, p, o): sinks for (t, p, sinks), offsets in again.items() for o in offsets}
            made.append(Took(writer.name, number, entry, letters, died))
    return [each for each in made if each.answers(query)]


def home_again(batches: Sequence[Took], query: str) -> int:
    """Letters of this query that are dead no more."""
    finished = [each for each in batches if each.entry is not None]
    home = ((at, letter) for each in finished for at, letter in each.letters.items() if at not in each.died)
    return len({letter.key for _, letter in home if query in letter.queries})


def unfinished(batches: Sequence[Took]) -> list[str]:
    count: Counter[str] = Counter()
    for each in batches:
        if each.entry is None:
            count[each.replay] += len(each.letters)
    return [f"{counted(n, 'letter')} of {name}, which is not finished" for name, n in count.items()]


def dead_again(batches: Sequence[Took]) -> list[Finding]:
    found = []
    for each in batches:
        if each.entry is not None and len(each.died) != each.entry.dead:
            died, said = counted(len(each.died), "letter"), f"the ledger says {each.entry.dead:,}"
            found.append(
                Finding("dead-letters-differ", f"batch {each.batch} of {each.replay}: {died} died again, {said}")
            )
    return found
