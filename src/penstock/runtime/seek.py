"""`checkpoint seek`: let the next batch begin elsewhere, where checkpoint, ledger and sinks go on agreeing (C2).

Spark's log owns the positions, sinks know batches by their number, and the ledger must follow on. So a seek is a batch
of its own, with no records in it: its end is the new position. Numbers go on, sinks see a number that they never get,
and the ledger says what was skipped or is to be read again, so that `verify` can account for it. Steps:

    1. a backup
    2. the ledger entry
    3. offsets/N
    4. commits/N

After a crash between 2 and 4 a start is refused (`guard`), and `checkpoint repair` makes 3 and 4 from the entry.

Forward: records are skipped, and no sink is any the wiser. Back over offsets that were never read: the same. Back over
records that were read: they are written a second time under another batch, which only a sink that keeps one row per key
and knows the newer one can take. Everything else is refused: see `runtime.refusal`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from penstock.checkpoint import backup
from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import Positions, SparkLog, with_positions
from penstock.errors import BadArgument, PenstockError, SeekRefused
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.record import OffsetRange
from penstock.runtime import build, guard, positions, same_mode, standing
from penstock.runtime.refusal import Move, refusal
from penstock.runtime.topics import TopicWatch
from penstock.source import start
from penstock.source.subscription import subscribe
from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class Seek:
    pipeline: str
    batch: int  # the number it takes in the log
    moves: list[Move]  # every partition, also those that stay
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


def rehearse(pipeline: Pipeline, to: str | None = None, to_batch: int | None = None) -> Seek:
    """What a seek would do. Changes nothing, needs no lock. A reason against it is in the result."""
    home = build.home(pipeline)
    guard.require_checkpoint(home)
    return _rehearsed(pipeline, standing.steady(home, lambda: _now(pipeline, home)), to, to_batch)


def seek(pipeline: Pipeline, to: str | None = None, to_batch: int | None = None) -> Seek:
    """Do it. Raises AlreadyRunning while the pipeline runs, and SeekRefused with the reason and the alternatives."""
    home = build.home(pipeline)
    guard.require_checkpoint(home)
    with home.held():
        made = _rehearsed(pipeline, _now(pipeline, home), to, to_batch)
        if made.refused:
            raise made.refused
        place = backup.place_for(home, "before-seek")
        backup.make(home, place, pipeline.name, lambda copy: guard.check(copy, pipeline.name, frozenset()))
        _write(home, made)
    return replace(made, backup=str(place))


def _rehearsed(pipeline: Pipeline, now: _Now, to: str | None, to_batch: int | None) -> Seek:
    there, stable = _partitions(pipeline, now.entries[-1])
    places = now.at.keys() | there.keys()
    at = {where: now.at.get(where, there[where][0] if where in there else 0) for where in places}
    asked = _before(now.entries, to_batch) if to_batch is not None else _named(pipeline, to or "", list(there))
    wanted = {
        where: positions.readable(there[where], stable[where], asked[where], where)
        for where in asked.keys() & there.keys()
    }
    moves = [Move(*where, at[where], wanted.get(where, at[where])) for where in sorted(at)]
    if now.pending is not None:
        return Seek(pipeline.name, now.pending + 1, moves, _under_way(now.pending))
    against = refusal(pipeline, moves, now.entries, stateful=now.stateful)
    return Seek(pipeline.name, now.committed + 1, moves, against)


def _now(pipeline: Pipeline, home: Home) -> _Now:
    same_mode.require_ledger(pipeline, "checkpoint seek")
    guard.check(home, pipeline.name, frozenset())
    guard.require_sound(home)
    log = SparkLog(home.spark)
    committed = log.committed()
    if committed is None:
        raise SeekRefused(
            "no batch has been committed yet",
            cause="until then `start:` says where the pipeline begins",
            next_command="penstock run FILE --until-caught-up",
        )
    entries = list(Ledger(home.ledger).entries())
    return _Now(committed, log.pending(), log.end_of(committed), entries, log.stateful)


def _under_way(batch: int) -> SeekRefused:
    return SeekRefused(
        f"batch {batch} is planned and not committed",
        cause="what it covers is fixed, and sinks may hold it already: it has to be run to its end first",
        next_command="penstock run FILE --until-caught-up",
    )


def _partitions(
    pipeline: Pipeline, last: Entry
) -> tuple[dict[tuple[str, int], tuple[int, int]], dict[tuple[str, int], int]]:
    """First offset and end of every partition that is read, and how far it can be read. Raises TopicRecreated."""
    config = client_config(pipeline)
    found = subscribe(config, pipeline.source, last.topics)
    TopicWatch(config, pipeline.source, last.topics).facts(last.topics.keys() & found.topics.keys())
    counts = {name: facts.partitions for name, facts in found.topics.items()}
    return start.marks_of(config, pipeline.source, found.topics), admin.stable_ends(config, counts)


def _named(pipeline: Pipeline, text: str, partitions: list[tuple[str, int]]) -> Positions:
    """Of partitions that the text names; the others stay where they are. -2 and -1 stand for the ends."""
    asked = positions.parsed(text, "latest")
    found = start.resolve(client_config(pipeline), asked, partitions)
    return {where: found[where] for where in asked.places() or found}


def _before(entries: list[Entry], batch: int) -> Positions:
    """Where batch `batch` began."""
    if batch not in {entry.batch for entry in entries}:
        raise BadArgument(
            f"the ledger has no batch {batch}",
            cause=f"it has batches {entries[0].batch} to {entries[-1].batch}",
            next_command="penstock checkpoint show FILE",
        )
    found: Positions = {}
    for entry in entries:
        for r in entry.ranges:
            if entry.batch < batch:
                found[r.topic, r.partition] = r.end
            elif not entry.is_seek:  # also where a partition came later
                found.setdefault((r.topic, r.partition), r.start)
    return found


def _write(home: Home, made: Seek) -> None:
    """Steps 2 to 4. Called with the lock held, after the backup."""
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
        topics=last.topics,
        views={},
        sinks={},
        skipped=[move.range for move in moved if move.skipped],
        again=[move.range for move in moved if move.again],
    )
    ledger.append(entry)
    offsets: Path = home.spark / "offsets"
    ends: Positions = {(move.topic, move.partition): move.to for move in made.moves}
    put(offsets / str(made.batch), with_positions((offsets / str(before)).read_text(), ends).encode())
    commits: Path = home.spark / "commits"
    put(commits / str(made.batch), (commits / str(before)).read_bytes())
