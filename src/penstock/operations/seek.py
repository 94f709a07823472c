"""`checkpoint seek`: let the next batch begin elsewhere, where checkpoint, ledger and sinks go on agreeing (C2).

Spark's log owns the positions, sinks know batches by their number, and the ledger must follow on. So a seek is a batch
of its own, with no records in it: its end is the new position. Numbers go on, sinks see a number that they never get,
and the ledger says what was skipped or is to be read again, so that `verify` can account for it. Steps:

    1. a backup
    2. a batch that is planned and not committed: if nobody holds any of it, it is taken back; its offsets come anew
    3. for a topic that was made again: what `renewing` does
    4. the ledger entry
    5. offsets/N
    6. commits/N

A crash after 2 or 3 leaves what the same command finds again, and does again. After one between 4 and 6 a start is
refused (`guard`), and `checkpoint repair` makes 5 and 6 from the entry.

Forward: records are skipped, and no sink is any the wiser. Back over offsets that were never read: the same. Back over
records that were read: they are written a second time under another batch, which only a sink that keeps one row per key
and knows the newer one can take. Everything else is refused: see `refusal`. A topic that was deleted and
created again has offsets that mean other records: with the operator's word it begins anew, and others stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from penstock.checkpoint import backup
from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger, TopicFact
from penstock.checkpoint.log import Positions, SparkLog, with_positions
from penstock.errors import ANEW, PenstockError, SeekRefused, TopicRecreated
from penstock.kafka import admin
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import client_config
from penstock.lifecycle import preconditions
from penstock.lifecycle.realtime import same_mode
from penstock.observe.noted import note
from penstock.operations import fork, renewing
from penstock.operations import seek_target as target
from penstock.operations.refusal import Move, moved, refusal
from penstock.operations.seek_target import Wanted
from penstock.operations.take_back import take_back
from penstock.record import OffsetRange
from penstock.source import parse_position, position, start
from penstock.source.subscription import subscribe
from penstock.source.topics import expired, made_again, recreated
from penstock.spec.model import Pipeline
from penstock.verification.renewed import Former


@dataclass(frozen=True)
class Seek:
    pipeline: str
    batch: int  # the number it takes in the log
    moves: list[Move]  # every partition, also those that stay
    topics: dict[str, TopicFact]  # as the ledger will know them
    renewed: dict[str, str]  # topics that were made again, and the ids they had before
    taken_back: int | None = None  # a batch that was planned and not committed
    lost: list[OffsetRange] = field(default_factory=list)  # of what is skipped: Kafka holds it no more
    refused: PenstockError | None = None
    backup: str | None = None  # where the state before is; None: nothing was changed


@dataclass(frozen=True)
class _Now:
    """What a checkpoint that can be relied on says."""

    committed: int
    pending: int | None
    at: Positions
    entries: list[Entry]
    stateful: bool

    @property
    def unfinished(self) -> bool:
        """Whether the pending batch lacks more than Spark's commit."""
        return self.pending is not None and self.entries[-1].batch < self.pending


@dataclass(frozen=True)
class _There:
    """What Kafka says of the topics that are read."""

    topics: dict[str, TopicFacts]
    marks: dict[tuple[str, int], tuple[int, int]]  # first offset and end of every partition
    stable: dict[tuple[str, int], int]  # how far it can be read


def rehearse(pipeline: Pipeline, wanted: Wanted) -> Seek:
    """What a seek would do. Changes nothing, needs no lock. A reason against it is in the result."""
    home = Home.of(pipeline)
    preconditions.require_checkpoint(home)
    return _rehearsed(pipeline, position.steady(home, lambda: _now(pipeline, home)), wanted)


def seek(pipeline: Pipeline, wanted: Wanted) -> Seek:
    """Do it. Raises AlreadyRunning while the pipeline runs, and SeekRefused with the reason and the alternatives."""
    home = Home.of(pipeline)
    preconditions.require_checkpoint(home)
    with home.held():
        made = _rehearsed(pipeline, _now(pipeline, home), wanted)
        if made.refused:
            raise made.refused
        place = backup.place_for(home, "before-seek")
        backup.make(home, place, pipeline.name, lambda copy: preconditions.check(copy, pipeline.name, frozenset()))
        _settle(pipeline, home, made)
        if made.renewed:
            _renew(pipeline, home, made)
        _write(home, made)
        note(
            pipeline,
            "seek",
            batch=made.batch,
            skipped=sum(move.skipped for move in made.moves),
            again=sum(move.again for move in made.moves),
            unread=sum(move.unread for move in made.moves),
            renewed=", ".join(sorted(made.renewed)) or None,
            backup=str(place),
        )
    return replace(made, backup=str(place))


def _rehearsed(pipeline: Pipeline, now: _Now, wanted: Wanted) -> Seek:
    known = now.entries[-1].topics
    there = _there(pipeline, known)
    renewed = made_again(known, there.topics)
    asked = target.asked(pipeline, wanted, now.entries, list(there.marks), renewed)
    named = {topic for topic, _ in asked} if TopicRecreated.code in wanted.accepted else set()
    ids = {name: there.topics[name].topic_id for name in renewed}
    for name in sorted(renewed.keys() - named):
        raise recreated(name, renewed[name], ids[name], ANEW if now.stateful else None)
    before = {where: offset for where, offset in now.at.items() if where[0] not in renewed}
    at = {**{where: low for where, (low, _) in there.marks.items()}, **before}
    to = {
        where: parse_position.readable(there.marks[where], there.stable[where], asked[where], where)
        for where in asked.keys() & there.marks.keys()
    }
    topics = {**known, **{name: TopicFact(pipeline.source.view_of(name), id_) for name, id_ in ids.items()}}
    number = (now.committed if now.pending is None else now.pending) + 1
    present = Former({name: fact.id for name, fact in topics.items()})
    entries = [replace(entry, ranges=present.present(entry)) for entry in now.entries]
    moves = moved(at, to, entries)
    against = refusal(pipeline, moves, entries, stateful=now.stateful, renews=bool(renewed))
    firsts = {where: low for where, (low, _) in there.marks.items()}
    lost = expired([move.range for move in moves if move.skipped], firsts)
    made = Seek(pipeline.name, number, moves, topics, renewed, lost=lost, refused=against)
    return replace(made, batch=number - 1, taken_back=now.pending) if now.unfinished else made


def _there(pipeline: Pipeline, known: Mapping[str, TopicFact]) -> _There:
    config, source = client_config(pipeline), pipeline.source
    topics = subscribe(config, source, known).topics
    stable = admin.stable_ends(config, {name: facts.partitions for name, facts in topics.items()})
    return _There(topics, start.marks_of(config, source, topics), stable)


def _settle(pipeline: Pipeline, home: Home, made: Seek) -> None:
    """Step 2. Called with the lock held, after the backup."""
    if made.taken_back is not None:
        take_back(pipeline, home, made.taken_back, made.renewed)
    elif (pending := SparkLog(home.spark).pending()) is not None:  # only Spark's commit is missing
        put(home.spark / "commits" / str(pending), (home.spark / "commits" / str(pending - 1)).read_bytes())


def _renew(pipeline: Pipeline, home: Home, made: Seek) -> None:
    """Step 3. Called with the lock held."""
    log, last = SparkLog(home.spark), Ledger(home.ledger).last_batch()
    moves = [move for move in made.moves if move.topic in made.renewed]
    renewing.set_marks(pipeline, log.query_id() or "", last.batch if last else -1, moves)


def _now(pipeline: Pipeline, home: Home) -> _Now:
    same_mode.require_ledger(pipeline, "checkpoint seek")
    preconditions.check(home, pipeline.name, frozenset())
    preconditions.require_sound(home)
    log = SparkLog(home.spark)
    committed = log.committed()
    if committed is None:
        raise _not_begun(home)
    entries = list(Ledger(home.ledger).entries())
    pending = log.pending()
    done = pending if pending is not None and entries and entries[-1].batch == pending else committed
    return _Now(committed, pending, log.end_of(done), entries, log.stateful)


def _not_begun(home: Home) -> SeekRefused:
    of = fork.origin(home)
    begins = f"it begins where '{of['of_pipeline']}' was when it was forked" if of else "`start:` says where it begins"
    return SeekRefused(
        "no batch has been committed yet",
        cause=f"a seek follows on a batch; until there is one, {begins}",
        next_command="penstock run FILE --until-caught-up",
    )


def _write(home: Home, made: Seek) -> None:
    """Steps 4 to 6. Called with the lock held."""
    ledger, before = Ledger(home.ledger), made.batch - 1
    last = ledger.last()
    assert last is not None
    moved = [move for move in made.moves if move.at != move.to]
    entry = Entry(
        pipeline=last.pipeline,
        query=last.query,
        batch=made.batch,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        start=last.start,
        ranges=[OffsetRange(move.topic, move.partition, move.to, move.to) for move in made.moves],
        topics=made.topics,
        views={},
        sinks={},
        lost=made.lost,
        skipped=[move.range for move in moved if move.skipped],
        again=[move.range for move in moved if move.back],
        renewed=made.renewed,
    )
    ledger.append(entry)
    offsets: Path = home.spark / "offsets"
    ends: Positions = {(move.topic, move.partition): move.to for move in made.moves}
    put(offsets / str(made.batch), with_positions((offsets / str(before)).read_text(), ends).encode())
    commits: Path = home.spark / "commits"
    put(commits / str(made.batch), (commits / str(before)).read_bytes())
