"""Replays: chosen dead letters through the same spec, once (Q5).

    1. The letters are chosen (`choice`) and written down with their bytes, in batches (`replays`). A crash
       before the last of that leaves nothing.
    2. Each batch goes the way of a batch of the stream: the same decode, rules, steps, sinks and dead letters, a ledger
       entry at the end. A record keeps its topic, partition, offset and time. What dies again is a dead letter of the
       replay's query.
    3. Its commit is written.

After a crash the same command goes on with the first batch that has no commit; what that batch had written already is
found by query and batch, as in the stream. One lock keeps two replays apart; the stream may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.batch.run import Assembly
from penstock.checkpoint.disk import Disks
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, TopicFact
from penstock.deadletters import replays
from penstock.deadletters.browse import Wanted
from penstock.deadletters.choice import Choice, choose
from penstock.deadletters.replays import Chosen, Replay
from penstock.errors import PenstockError, TableOfAnotherQuery
from penstock.kafka import admin
from penstock.lifecycle import preconditions
from penstock.lifecycle.replay.raw import raw
from penstock.lifecycle.restart import Perseverance
from penstock.lifecycle.retry_policy import Patience
from penstock.lifecycle.stream import prepare
from penstock.observe.noted import note
from penstock.plan import build
from penstock.record import OffsetRange, Position
from penstock.source.topics import Loss, TopicWatch
from penstock.spark import session
from penstock.spec.model import Pipeline
from penstock.watch import CHECKING, ENGINE, RESOLVING, StopRequest, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Replayed:
    """What became of the letters of a replay, over all of its batches."""

    name: str
    letters: int = 0
    passed: int = 0
    dead_again: int = 0
    dropped: int = 0  # by rules
    written: dict[str, int] = field(default_factory=dict)
    # By sink, of those that passed:
    superseded: dict[str, int] = field(default_factory=dict)
    left_out_before: dict[str, int] = field(default_factory=dict)
    there_before: dict[str, int] = field(default_factory=dict)  # it had them when they died elsewhere

    def add(self, entry: Entry, chosen: Iterable[Chosen]) -> None:
        self.letters += entry.read
        self.dead_again += entry.dead
        self.passed += entry.read - entry.dead - entry.dropped
        self.dropped += entry.dropped
        left_out = replays.left_out_before(entry, (each.spared for each in chosen))
        for name, sink in entry.sinks.items():
            for counts, number in (
                (self.written, sink.written),
                (self.superseded, sink.superseded),
                (self.left_out_before, left_out.get(name, 0)),
                (self.there_before, (sink.dropped or 0) - left_out.get(name, 0)),
            ):
                if number or counts is self.written:
                    counts[name] = counts.get(name, 0) + number


def run(
    pipeline: Pipeline, wanted: Wanted, name: str | None = None, limit: int | None = None, *, watch: Watch | None = None
) -> tuple[Replayed | None, Choice]:
    """Bring the chosen letters home. None: there is nothing to do."""
    watch = watch or Watch()
    with Home(Home.of(pipeline).path / "replay").locked():
        choice = choose(pipeline, wanted, name, limit)
        replay = choice.goes_on
        if replay is None:
            if not choice.letters:
                return None, choice
            called = name or replays.next_name(replays.found(pipeline))
            replay = Replay(called, Home.of(pipeline).replay(called))
        with replay.home.held():
            if choice.goes_on is None:
                replays.write_down(replay, wanted.given(), choice.letters)
            with _noted(pipeline, replay, len(choice.letters)):
                _run(pipeline, replay, watch)
    return _replayed(replay), choice


@contextmanager
def _noted(pipeline: Pipeline, replay: Replay, letters: int) -> Iterator[None]:
    """In the event log: that it begins, and how it ends. One that is killed leaves only the first."""
    if not replay.left:  # it has ended before
        yield
        return
    note(pipeline, "replay", state="began", name=replay.name, letters=letters)
    try:
        yield
    except PenstockError as error:
        note(pipeline, "replay", state="failed", name=replay.name, code=error.code, what=error.what)
        raise
    note(pipeline, "replay", state="done", **asdict(_replayed(replay)))


def _replayed(replay: Replay) -> Replayed:
    done = Replayed(replay.name)
    for entry in replay.entries().values():
        done.add(entry, replay.chosen(entry.batch))
    return done


def _run(pipeline: Pipeline, replay: Replay, watch: Watch) -> None:
    home = replay.home
    watch.starting(CHECKING)
    preconditions.check(home, pipeline.name, frozenset())
    assembly = assembled(pipeline, home)
    prepare(assembly, frozenset({TableOfAnotherQuery.code}))  # the stream's own rows are there, of course
    if not replay.left:
        return
    watch.starting(ENGINE)
    spark = session.start(pipeline, home.logs, waiting=watch.waiting)
    watch.starting(RESOLVING)
    bear = Perseverance(home, watch, StopRequest(), Patience.of(pipeline), Disks.of(pipeline, home))
    bear.listen(assembly)
    assembly.settle(spark)
    watch.started(pipeline, home)

    def read(by: Assembly, number: int) -> DataFrame:
        by.spared = spared_by(replay.chosen(number))
        return raw(spark, replay.letters(number))

    bear.run_each(replay.left, assembly, read, replay.commit)


def assembled(pipeline: Pipeline, home: Home) -> Assembly:
    """The pipeline's parts for letters: no budget, since all of them have died already, and no offset between two
    letters is lost."""
    made = build.assembly(pipeline, home)
    topics = _Addressed(made.topics.config, made.topics.source, made.topics.known)
    return replace(made, budget=None, first_records=None, topics=topics, flow=None, in_kafka=False)


@dataclass
class _Addressed(TopicWatch):
    """Topics that letters came from. Their records may have expired, and the topics be gone: the letters have all."""

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFact]:
        there = admin.topics(self.config)
        ids = {name: there[name].topic_id if name in there else "" for name in topics}
        return {name: TopicFact(self.source.view_of(name), id_) for name, id_ in sorted(ids.items())}

    def lost(self, _ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        return []

    def afterwards(self, _ranges: Iterable[OffsetRange], _before: list[OffsetRange], _read: Mapping[str, int]) -> Loss:
        return Loss()


def spared_by(chosen: Iterable[Chosen]) -> dict[str, set[Position]]:
    found: dict[str, set[Position]] = {}
    for each in chosen:
        for sink in each.spared:
            found.setdefault(sink, set()).add(each.position)
    return found
