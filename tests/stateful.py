"""Oracles for stateful steps, in plain Python: what windows, sessions, keys and joins must give over the same records.

An oracle knows which records were in which batch (from the ledger) and computes everything else by itself: the
watermark, who is late, what is emitted and when.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.dataset as ds
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.lifecycle import stream
from penstock.watch import StopRequest, Watch
from tests.crash.driver import ROUNDS
from tests.payments import Payments

Test = TypeVar("Test", bound=Callable[..., None])

START = 1_768_464_000  # seconds, at a full hour of the past; event times of tests are counted from here
TIMED: dict[str, Any] = {"from": "events", "time": "at", "late_after": "60s"}
NO_KEY = "-"
WINDOW: dict[str, Any] = {**TIMED, "size": "60s", "by": ["key"], "columns": {"n": "count(*)"}}


@dataclass(frozen=True)
class Event:
    """`key`: NO_KEY stands for null. `at`: seconds after START; None: without an event time."""

    key: str
    at: int | None
    number: int = 0

    def value(self) -> bytes:
        time = None if self.at is None else datetime.fromtimestamp(START + self.at, UTC).isoformat()
        return json.dumps({"key": None if self.key == NO_KEY else self.key, "at": time, "number": self.number}).encode()


def some_events(count: int, until: int = 400, keys: str = "ab") -> st.SearchStrategy[list[Event]]:
    """Random event times, of which some lie on the bounds of windows. By a seed: the simplest example is random too."""

    def made(seed: int) -> list[Event]:
        chance = random.Random(seed)
        times = [chance.choice([chance.randint(0, until), 60 * chance.randint(0, until // 60)]) for _ in range(count)]
        return [Event(chance.choice(keys), at) for at in times]

    return st.integers(0, 1 << 32).map(made)


_SETTINGS = settings(
    max_examples=ROUNDS,
    phases=(Phase.explicit, Phase.generate) if ROUNDS > 1 else (Phase.explicit,),
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def compared(like: dict[str, st.SearchStrategy[Any]], rich: dict[str, Any]) -> Callable[[Test], Test]:
    """A test that is run over one rich example, and with more rounds (PENSTOCK_CHAOS_ROUNDS) over random ones too."""

    def decorated(test: Any) -> Any:
        return _SETTINGS(given(**like)(example(**rich)(test)))

    return decorated


def events(text: str) -> list[Event]:
    """`a0 b10`: a record of key "a" at START, and one of "b" ten seconds later."""
    return [Event(word[0], int(word[1:])) for word in text.split()]


# Two runs of two batches each. In them are: windows of several records and on their bounds; a session that a later
# record joins together, and one that goes on after the restart; keys that come again in their batch, in a later one,
# after the restart, and when they were forgotten; records that are late, and some that just are not.
# `test_stateful_oracles.py` shows that.
RICH = {"first": events("a0 a10 b5 a60 a45 b130 a70 c200"), "second": events("a30 a100 b150 c255 b265 a61 b400 a405")}
# Pairs in a batch, in two, and in two runs; a record with two counterparts; some on both sides without any; late ones;
# and on both sides, at the same time, some without a key, which are no pair.
RICH_PAIRS = {
    "left": (events("a0 b10 a50 c20 a100 b200 a30 c210"), events("a90 b250 a280 -310 c400 a300 b500")),
    "right": (events("a20 b70 a60 d5 a45 c25 b220 a300"), events("c230 b140 a290 -320 e350 b260 a600")),
}


@dataclass
class Stream:
    """A pipeline over topics of one partition each: batches are `max_offsets` records, in their order."""

    payments: Payments
    topics: Sequence[str] = ("events",)
    sent: dict[str, list[Event]] = field(default_factory=dict)

    @classmethod
    def make(cls, bootstrap: str, directory: Path, steps: list[dict[str, Any]], *topics: str, **spec: Any) -> Stream:
        directory = directory / uuid.uuid4().hex[:8]
        directory.mkdir()
        made = Payments(bootstrap, directory, partitions=1)
        names = topics or ("events",)
        fields = {"key": "string", "at": "timestamp", "number": "int"}
        read = {"format": "json", "schema": {"fields": fields}}
        for name in names[1:]:
            made.create(f"{made.topic}.{name}", 1)
            made.create(f"{made.topic}.{name}.DLT", 1)
        places = {name: made.topic if name == names[0] else f"{made.topic}.{name}" for name in names}
        made.spec |= {
            "name": "stateful",
            "source": {"topics": {places[name]: {"view": name, "value": read} for name in names}},
            "contract": {},
            "transform": steps,
            "sinks": {"out": {"from": steps[-1]["view"], "parquet": {"path": "out"}}},
            "rate": {"max_offsets": 4 * len(names)},
            **spec,
        }
        return cls(made, names, {name: [] for name in names})

    def topic(self, name: str) -> str:
        return self.payments.topic if name == self.topics[0] else f"{self.payments.topic}.{name}"

    def feed(self, events: Iterable[Event], name: str | None = None) -> None:
        name, events = name or self.topics[0], list(events)
        self.payments.send(*(event.value() for event in events), topic=self.topic(name))
        self.sent[name] += events

    def run(self) -> None:
        self.payments.run()

    def stopped_after_a_batch(self) -> None:
        """A run that is stopped between a batch with all that was fed and the next one, which is a day away."""
        self.payments.spec |= {"trigger": {"every": "24h"}, "rate": {"max_offsets": 1000}}
        stop = StopRequest()

        class Stops(Watch):
            def batch_done(self, _entry: Entry, _seconds: float) -> None:
                stop.ask()

        stream.run(self.payments.pipeline, watch=Stops(), stop=stop)
        assert SparkLog(Home.of(self.payments.pipeline).spark).pending() is None

    def entries(self) -> list[Entry]:
        return list(Ledger(Home.of(self.payments.pipeline).ledger).entries())

    def batches(self, name: str | None = None) -> list[list[Event]]:
        """What each batch read of a topic."""
        topic = self.topic(name or self.topics[0])
        return [
            [
                event
                for r in entry.ranges
                if r.topic == topic
                for event in self.sent[name or self.topics[0]][r.start : r.end]
            ]
            for entry in self.entries()
        ]

    def rows(self, path: str = "out") -> list[dict[str, Any]]:
        directory = self.payments.directory / path
        if not directory.is_dir():
            return []
        return list(ds.dataset(directory, format="parquet", partitioning="hive").to_table().to_pylist())


def seconds(time: datetime) -> int:
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(time.timestamp()) - START


class Watermark:
    """How far event time has come, less the delay. A batch closes by what all batches before it have seen; its rows are
    late by what closed the batch before it."""

    def __init__(self, *delays: int) -> None:
        self.delays, self.newest = delays, [None] * len(delays)
        self.closes, self.late = -START, -START

    def begin(self) -> None:
        seen = [None if at is None else at - delay for at, delay in zip(self.newest, self.delays, strict=True)]
        # A stream that has seen nothing keeps the watermark where it is.
        now = -START if None in seen else min(at for at in seen if at is not None)
        self.late, self.closes = self.closes, max(self.closes, now)

    def end(self, *sides: Iterable[Event]) -> None:
        for side, events in enumerate(sides):
            times = [event.at for event in events if event.at is not None]
            if times:
                known = self.newest[side]
                self.newest[side] = max(times) if known is None else max(known, *times)  # type: ignore[call-overload]


def windows_of(at: int, size: int, slide: int) -> list[int]:
    """Where the windows begin that a time is in. Windows are counted from the beginning of 1970."""
    at += START
    first = (at - size) // slide * slide + slide
    return [start - START for start in range(first, at + 1, slide)]


def windows(batches: list[list[Event]], size: int, slide: int, delay: int) -> tuple[dict[Any, int], list[int], int]:
    """Counts by window and key that were emitted; late records per batch; how many windows are still open."""
    mark, open_, out, late = Watermark(delay), {}, {}, []
    for batch in batches:
        mark.begin()
        late.append(0)
        for event in batch:
            if event.at is None:
                continue
            starts = windows_of(event.at, size, slide)
            missed = [start for start in starts if start + size <= mark.late]
            late[-1] += bool(missed)
            for start in starts:
                if start not in missed:
                    open_[start, event.key] = open_.get((start, event.key), 0) + 1
        for start, key in [place for place in open_ if place[0] + size <= mark.closes]:
            assert (start, key) not in out, "a window that was closed is there again"
            out[start, key] = open_.pop((start, key))
        mark.end(batch)
    return out, late, len(open_)


def late_groups(batches: list[list[Event]], size: int, slide: int, delay: int) -> int:
    """Windows of keys that were closed when a record for them came, in each batch once: what the engine drops."""
    mark, found = Watermark(delay), 0
    for batch in batches:
        mark.begin()
        timed = [event for event in batch if event.at is not None]
        missed = {(s, e.key) for e in timed for s in windows_of(e.at or 0, size, slide) if s + size <= mark.late}
        found += len(missed)
        mark.end(batch)
    return found


def last_watermark(batches: list[list[Event]], delay: int) -> int:
    """Where the watermark is in the last batch, in seconds since 1970."""
    mark = Watermark(delay)
    for batch in batches:
        mark.begin()
        mark.end(batch)
    return START + mark.closes


def sessions(batches: list[list[Event]], gap: int, delay: int) -> tuple[list[tuple[str, int, int, int]], list[int]]:
    """Sessions that were emitted (key, start, end, count), and late records per batch."""
    mark, open_, out, late = Watermark(delay), {}, [], []
    for batch in batches:
        mark.begin()
        late.append(0)
        for event in batch:
            if event.at is None:
                continue
            if event.at + gap <= mark.late:
                late[-1] += 1
                continue
            start, end, count = event.at, event.at + gap, 1
            apart = []
            for other in open_.get(event.key, []):
                if other[0] <= end and start <= other[1]:
                    start, end, count = min(start, other[0]), max(end, other[1]), count + other[2]
                else:
                    apart.append(other)
            open_[event.key] = [*apart, (start, end, count)]
        for key, found in open_.items():
            out += [(key, *session) for session in found if session[1] <= mark.closes]
            open_[key] = [session for session in found if session[1] > mark.closes]
        mark.end(batch)
    return sorted(out), late


def firsts(batches: list[list[Event]], within: int) -> tuple[list[Event], list[int], list[int]]:
    """The first record of each key, late records per batch, duplicates per batch."""
    mark, known, out, late, twice = Watermark(within), {}, [], [], []
    for batch in batches:
        mark.begin()
        late.append(0)
        twice.append(0)
        for event in batch:
            if event.at is None:
                continue
            if event.at <= mark.late:
                late[-1] += 1
            elif event.key in known:
                twice[-1] += 1
            else:
                known[event.key] = event.at + within
                out.append(event)
        known = {key: until for key, until in known.items() if until > mark.closes}
        mark.end(batch)
    return out, late, twice


def pairs(
    left: list[list[Event]], right: list[list[Event]], within: int, delays: tuple[int, int]
) -> tuple[list[tuple[Event, Event]], list[Event], list[Event], list[int]]:
    """Pairs of one key in which the right record is not before the left one and not much later; records of each side
    that were not late and have no counterpart; late records per batch."""
    mark, late = Watermark(*delays), []
    kept: tuple[list[Event], list[Event]] = ([], [])
    for batch in zip(left, right, strict=True):
        mark.begin()
        late.append(0)
        for side, events in zip(kept, batch, strict=True):
            for event in events:
                if event.at is None:
                    continue
                if event.at <= mark.late:
                    late[-1] += 1
                else:
                    side.append(event)
        mark.end(*batch)
    found = [
        (one, other)
        for one in kept[0]
        for other in kept[1]
        if one.key == other.key != NO_KEY and one.at <= other.at <= one.at + within  # type: ignore[operator]
    ]
    alone = [one for one in kept[0] if one not in [pair[0] for pair in found]]
    alone_right = [other for other in kept[1] if other not in [pair[1] for pair in found]]
    return found, alone, alone_right, late
