"""Dead letters as people look at them: one letter per record, with every death it died, and what replays did with it.

A record dies at most once per query: of the stream, of a backfill, of a replay. Its id is where it came from,
`topic:partition:offset`, and stays the same. A letter is

    dead        it has a death that no replay has answered yet
    replaying   it is on the list of a replay that is not finished
    replayed    a replay took it, and it did not die again: sinks have it, a rule dropped it, or a step left it out
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.deadletters import replays
from penstock.deadletters.dead_letter import DeadLetter
from penstock.deadletters.reason import pattern
from penstock.deadletters.replays import Key
from penstock.deadletters.store import dead_letters
from penstock.errors import BadArgument
from penstock.record import CLASSES, STAGES
from penstock.spec.model import Pipeline
from penstock.spec.start import moment

State = Literal["dead", "replaying", "replayed"]


@dataclass(frozen=True)
class Death:
    """One time that the record died, and of what."""

    by: str  # `stream`, `backfill NAME`, `replay NAME`, or the id of a query that is gone
    query: str
    batch: int
    stage: str
    error_class: str
    reason: str
    schema_id: int | None = None
    sinks: str | None = None  # those that do not have it; None: none of them does

    @classmethod
    def of(cls, letter: DeadLetter, by: str) -> Death:
        return cls(
            by,
            letter.query,
            letter.batch,
            letter.stage,
            letter.error_class,
            letter.reason,
            letter.schema_id,
            letter.sinks,
        )


@dataclass(frozen=True)
class Letter:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int  # when the record was written to Kafka
    size: int  # bytes
    deaths: tuple[Death, ...]  # the oldest first
    state: State = "dead"
    replays: tuple[str, ...] = ()  # names of those that took it, the oldest first
    answered: frozenset[str] = frozenset()  # queries of deaths that a replay has answered

    @property
    def id(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def key(self) -> Key:
        return self.topic, self.partition, self.offset, self.timestamp_ms

    @property
    def last(self) -> Death:
        return self.deaths[-1]

    @property
    def unanswered(self) -> list[Death]:
        return [death for death in self.deaths if death.query not in self.answered]


@dataclass(frozen=True)
class Wanted:
    """Which letters, in the user's words: each given word must hold. Raises BadArgument for a stage or a class that no
    letter can have: it would look as if nothing had died."""

    topic: str | None = None
    stage: str | None = None
    error_class: str | None = None
    reason: str | None = None  # part of the reason, or of what `stats` makes of it
    since: str | None = None  # a time, or a duration before now
    until: str | None = None
    ids: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for what, asked, there in (("stage", self.stage, STAGES), ("error class", self.error_class, CLASSES)):
            if asked is not None and asked not in there:
                raise BadArgument(
                    f"there is no {what} '{asked}'",
                    cause=f"dead letters have one of: {', '.join(there)}",
                    next_command="penstock dlq stats FILE",
                )

    def given(self) -> dict[str, Any]:
        """What was asked for, and nothing else; the same words are the same request."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items() if v}

    @cached_property
    def between(self) -> tuple[float, float]:
        """Milliseconds: from, and up to but not including."""
        return (
            moment(self.since) if self.since else float("-inf"),
            moment(self.until) if self.until else float("inf"),
        )

    def holds(self, letter: Letter) -> bool:
        first, end = self.between
        last = letter.last
        return (
            self.topic in (None, letter.topic)
            and self.stage in (None, last.stage)
            and self.error_class in (None, last.error_class)
            and (self.reason is None or self.reason in last.reason or self.reason in pattern(last.reason))
            and first <= letter.timestamp_ms < end
            and (not self.ids or letter.id in self.ids)
        )


def gather(pipeline: Pipeline) -> list[Letter]:
    """Every letter there is, without its bytes; by time, then by place."""
    runs = by_query(pipeline)
    sizes: dict[Key, int] = {}
    deaths: dict[Key, list[Death]] = {}
    for each in dead_letters(pipeline).read():
        key = key_of(each)
        sizes[key] = replays.size_of(each)
        deaths.setdefault(key, []).append(Death.of(each, runs.get(each.query, each.query)))
    order = {query: number for number, query in enumerate(runs)}
    taken = _taken(pipeline)
    found = []
    for key, died in deaths.items():
        died.sort(key=lambda death: order.get(death.query, -1))
        names, answered, unfinished = taken.get(key, ((), frozenset(), False))
        open_ = any(death.query not in answered for death in died)
        state: State = "replaying" if unfinished else "dead" if open_ else "replayed"
        found.append(Letter(*key, sizes[key], tuple(died), state, names, answered))
    return sorted(found, key=lambda letter: (letter.timestamp_ms, *letter.key))


def unknown(ids: Iterable[str]) -> BadArgument:
    names = ", ".join(repr(each) for each in ids)
    return BadArgument(
        f"there is no dead letter {names}",
        cause="an id is topic:partition:offset of the record that died",
        next_command="penstock dlq ls FILE --all",
    )


def key_of(letter: DeadLetter) -> Key:
    return (*letter.position, letter.timestamp_ms)


def by_query(pipeline: Pipeline) -> dict[str, str]:
    """Who wrote under which query's id, in words: the stream first, replays last and in their order."""
    runs = {SparkLog(Home.of(pipeline).spark).query_id() or "": "stream"}
    for name in Home.of(pipeline).backfills():
        runs[SparkLog(Home.of(pipeline).backfill(name).spark).query_id() or ""] = f"backfill {name}"
    for replay in replays.found(pipeline):
        runs[replay.query] = f"replay {replay.name}"
    return runs


def died_at(pipeline: Pipeline, deaths: Iterable[Death]) -> dict[tuple[str, int], str]:
    """When the batches ended in which these deaths were, by query and batch, as far as ledgers say so."""
    wanted = {(death.query, death.batch) for death in deaths}
    homes = [Home.of(pipeline), *(Home.of(pipeline).backfill(name) for name in Home.of(pipeline).backfills())]
    homes += [replay.home for replay in replays.found(pipeline)]
    entries = (entry for home in homes for entry in Ledger(home.ledger).entries())
    return {(entry.query, entry.batch): entry.time for entry in entries if (entry.query, entry.batch) in wanted}


def whole(pipeline: Pipeline, keys: set[Key]) -> Iterator[DeadLetter]:
    """The letters with their bytes: every death of these records."""
    return (each for each in dead_letters(pipeline).read() if key_of(each) in keys)


def _taken(pipeline: Pipeline) -> dict[Key, tuple[tuple[str, ...], frozenset[str], bool]]:
    """By letter: the replays that took it, the queries whose deaths they answered, and whether one is not finished."""
    found: dict[Key, tuple[tuple[str, ...], frozenset[str], bool]] = {}
    for replay in replays.found(pipeline):
        left = replay.left
        for batch in replay.batches:
            for chosen in replay.chosen(batch):
                names, answered, unfinished = found.get(chosen.key, ((), frozenset(), False))
                found[chosen.key] = (
                    (*names, replay.name),
                    answered | frozenset(chosen.queries),
                    unfinished or batch in left,
                )
    return found
