"""Checks of writing and of being read: first, empty, large, every type, and what the sink's own books say."""

from __future__ import annotations

import threading
from collections import Counter

from penstock.record import KAFKA
from penstock.sinks.contract import Written
from penstock.testing.mishap import Waits
from penstock.testing.portion import Portion, rows_of_every_type, same
from penstock.testing.subject import AT_LEAST_ONCE, EXACTLY_ONCE
from penstock.testing.trial import Broken, Trial, require

_LARGE = 50_000  # rows of each input partition


def guarantee(trial: Trial) -> None:
    """A sink says, in words shown to the user, whether a batch that is run again is there once or may be repeated."""
    sink = trial.subject.sink()
    require(
        sink.guarantee.startswith((EXACTLY_ONCE, AT_LEAST_ONCE)),
        f"`guarantee` begins with '{EXACTLY_ONCE}' or '{AT_LEAST_ONCE}': the other checks demand what it says",
        repr(sink.guarantee),
    )
    require(bool(sink.name), "a sink has a name: errors and the ledger call it by that", repr(sink.name))


def first_write(trial: Trial) -> None:
    """Batches that are written one after another are all there, and the sink's books agree with what was handed."""
    first, second = trial.numbered(), trial.numbered()
    sink = trial.begin(first)
    # The runtime calls the first batch after any start a replay: it cannot know better.
    done = [trial.write(sink, first, replay=True), trial.write(sink, second, replay=False)]
    trial.expect(first, second, when="after two batches")
    says_what_it_holds(trial, *zip((first, second), done, strict=True))


def says_what_it_holds(trial: Trial, *done: tuple[Portion, Written]) -> None:
    """In its answers, and in its books afterwards."""
    for portion, said in done:
        require(said.rows == len(portion.rows), "rows of different keys are all held, and it says so", said)
    _books(trial, *(portion for portion, _ in done))


def _books(trial: Trial, *portions: Portion) -> None:
    sink = trial.again(portions[-1], written=portions[-1])
    counts = sink.rows_by_batch(trial.query)
    wanted = {portion.number: len(portion.rows) for portion in portions}
    require(counts in (None, wanted), f"`rows_by_batch` says {wanted}, or None where a sink keeps no books", counts)
    found = sink.positions(KAFKA)
    handed = {
        (r.topic, r.partition): Counter(range(portions[0].ranges[i].start, r.end))
        for i, r in enumerate(portions[-1].ranges)
    }
    held = None if found is None else {place: Counter(offsets) for place, offsets in found.items()}
    require(
        held is None or held == handed,
        "`positions` names the offset of every row, as often as it is held, or is None where rows do not carry it",
        None if held is None else {place: f"{offsets.total()} offsets" for place, offsets in held.items()},
    )


def empty_batch(trial: Trial) -> None:
    """A batch without rows is written like any other, also as the first one and as a replay."""
    nothing, some = trial.filtered(), trial.numbered()
    sink = trial.begin(nothing)
    trial.write(sink, nothing, replay=True)
    sink = trial.again(nothing)
    trial.write(sink, nothing, replay=True)
    trial.expect(when="after a batch without rows")
    trial.write(sink, some, replay=False)
    trial.expect(some, when="in the batch after one without rows")


def large_batch(trial: Trial) -> None:
    """A batch of 100,000 rows is there whole, and a reader that looks all the time never sees a part of it."""
    first, large = trial.numbered(), trial.numbered(_LARGE)
    sink = trial.begin(first)
    trial.write(sink, first, replay=True)
    with _Reader(trial, large) as reader:
        done = trial.write(sink, large, replay=False, mishap=Waits(1))
    if reader.broken is not None:
        raise reader.broken
    require(reader.looks > 0, "a reader can look while a batch is written", "it never returned")
    require(done.rows == len(large.rows), "rows of different keys are all held, and it says so", done)
    trial.expect(first, large, when="after a large batch")


def every_type(trial: Trial) -> None:
    """Every type of column, null and odd values among them, is read as it was written."""
    columns, rows = rows_of_every_type()
    portion = trial.listed(columns, rows)
    trial.write(trial.begin(portion), portion, replay=True)
    held = {row["id"]: row for row in trial.subject.rows()}
    require(held.keys() == {row["id"] for row in rows}, "every row is held", list(held))
    for row in rows:
        for name, value in row.items():
            expected, found = trial.subject.as_read(value), held[row["id"]].get(name)
            require(same(found, expected), f"column {name} of row {row['id']} is {expected!r}", repr(found))


class _Reader:
    """Looks at the place in a thread of its own, from before the first row until after the last one."""

    def __init__(self, trial: Trial, portion: Portion) -> None:
        self.trial, self.portion = trial, portion
        self.looks, self._ended = 0, threading.Event()
        self.broken: Broken | None = None
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        when, before = "while a batch is written", 0
        while not self._ended.is_set() and self.broken is None:
            try:
                now = self.trial.seen_whole(self.portion, when)
                require(now >= before, f"{when}, what a reader has seen stays", f"{before} rows, then {now}")
                before = now
            except Broken as broken:
                self.broken = broken
            except Exception as error:
                self.broken = Broken("a place can be read while a batch is written", repr(error))
            self.looks += 1

    def __enter__(self) -> _Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(120)
