"""Where a pipeline stands: what its checkpoint has done, where the next batch begins, what waits in Kafka.

Read from outside, without the lock: a run may go on meanwhile. So Kafka is asked before the checkpoint is read, and
whoever finds something wrong while a run goes on should look again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from penstock.checkpoint import damage
from penstock.checkpoint.damage import Damage
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import Positions, SparkLog
from penstock.errors import (
    WITHOUT_THEM,
    CheckpointForeign,
    CheckpointMissing,
    KafkaUnreachable,
    LedgerDamaged,
    LedgerMissing,
    OffsetsVanished,
    PenstockError,
    StartNotThere,
    counted,
)
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import Config, client_config
from penstock.record import BACKFILL, OffsetRange, ends_of
from penstock.source import start
from penstock.source.subscription import subscribe
from penstock.source.topics import expired, went_back
from penstock.spec.model import Pipeline
from penstock.spec.source import Source
from penstock.spec.start import EARLIEST, LATEST, StartAt

T = TypeVar("T")

JOINED = 0  # where Spark begins a partition that was not there before; what has expired of it counts as lost
_NAMED = 10
_LOOKS, _PAUSE_S = 5, 0.3  # a run that goes on changes what is compared; a batch takes longer than a look


@dataclass(frozen=True)
class Waiting:
    """One partition: the first offset that Kafka holds, the next one to be read, and the end as it is now."""

    topic: str
    partition: int
    first: int
    next: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.next)


@dataclass(frozen=True)
class Standing:
    start: str  # as the spec says it; counts for the first run only
    query: str | None = None  # Spark's id; None before the first run
    committed: int = 0  # batches
    replay: int | None = None  # a batch whose offsets are fixed, and that is not committed
    replayed: list[OffsetRange] = field(default_factory=list)
    partitions: list[Waiting] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)  # topics and partitions that only the checkpoint names

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions)

    @property
    def expired(self) -> list[OffsetRange]:
        """What is to be read, and Kafka no longer holds."""
        firsts = {(each.topic, each.partition): each.first for each in self.partitions}
        waiting = (OffsetRange(each.topic, each.partition, each.next, each.end) for each in self.partitions)
        return expired(waiting, firsts)


def standing(config: Config, source: Source, log: SparkLog, topics: Mapping[str, TopicFacts]) -> Standing:
    """Of the topics that are there. Raises CheckpointForeign where the checkpoint cannot be read, and StartNotThere."""
    marks = start.marks_of(config, source, topics)
    planned = log.planned()
    if planned is not None and (log.query_id() or "").startswith(BACKFILL):  # it ends where its last batch does
        ends = log.end_of(planned)
        marks = {at: (min(low, ends[at]), min(high, ends[at])) for at, (low, high) in marks.items() if at in ends}
    partitions = list(marks)
    replay, committed = log.pending(), log.committed()
    at = next_positions(config, source, log, partitions)
    missing = source.topics.keys() - topics.keys()  # they are still read, and TopicMissing says that they are not there
    not_read = [place for place in sorted(at.keys() - marks.keys()) if place[0] not in missing]
    return Standing(
        start=source.start_text(),
        query=log.query_id(),
        committed=0 if committed is None else committed + 1,
        replay=replay,
        replayed=[r for r in log.ranges(replay) if len(r)] if replay is not None else [],
        partitions=[_waiting(where, marks[where], at.get(where, JOINED)) for where in sorted(partitions)],
        not_read=list(dict.fromkeys(f"{t}-{p}" if t in topics else t for t, p in not_read)),
    )


def require_held(pipeline: Pipeline, log: SparkLog, topics: Mapping[str, TopicFacts]) -> None:
    """Called once per start, with the lock held and before there is an engine. Raises what `plan` says of positions:
    the engine would fail on them later, and name one partition."""
    try:
        found = standing(client_config(pipeline), pipeline.source, log, topics)
    except KafkaUnreachable:  # a partition without a leader: the run waits for it
        if isinstance(pipeline.source.start, StartAt) and log.next_positions() is None:
            raise  # Spark writes the start down, and keeps to it: it must be one that Kafka holds
        return
    for error in refusals(found, pipeline.source):
        raise error


def lost_now(pipeline: Pipeline, log: SparkLog, known: Collection[str]) -> OffsetsVanished | StartNotThere | None:
    """All that has expired unread by now, after the engine has failed on some of it. None: Kafka does not say so, or
    does not answer. `known`: the topics that were read."""
    config = client_config(pipeline)
    try:
        topics = subscribe(config, pipeline.source, known).topics
        return vanished(standing(config, pipeline.source, log, topics))
    except PenstockError:
        return None


def refusals(found: Standing, source: Source) -> list[PenstockError]:
    """Why no run goes on from there."""
    lost = None if source.on_data_loss == "continue" else vanished(found)
    return [each for each in (lost, beyond(found)) if each is not None]


def next_positions(config: Config, source: Source, log: SparkLog, partitions: list[tuple[str, int]]) -> Positions:
    """Where the next batch begins, by the checkpoint or, before there is one, by the spec; -2 and -1 stand for the
    first offset and the end. A partition that is not named has joined since, and begins at `JOINED`."""
    at = log.next_positions()
    return start.resolve(config, _position(source), partitions) if at is None else at


def known_positions(log: SparkLog, entries: Sequence[Entry]) -> Positions | None:
    """Where the next batch begins by Spark's log, or where that is damaged or gone by the ledger; None where neither
    says, because no batch was read yet or because both are damaged."""
    found = if_sound(log.next_positions)
    if found is None and entries:
        return ends_of(entries[-1].ranges)
    return found


def vanished(found: Standing) -> OffsetsVanished | StartNotThere | None:
    """What of the offsets to be read has expired; None where nothing has. What is no longer read counts too, because
    Spark takes it for lost."""
    lost = found.expired
    if lost and found.query is None:
        return _not_there([each for each in found.partitions if each.next < each.first])
    said = [f"{r} ({counted(len(r), 'offset')})" for r in lost]
    said += [f"the checkpoint has offsets of {name}, which is no longer read" for name in found.not_read]
    if not said:
        return None
    total = sum(map(len, lost))
    return OffsetsVanished(
        f"{counted(total, 'offset')} of {counted(len(lost), 'partition')} expired unread"
        if lost
        else "offsets of the checkpoint are no longer read",
        cause=_listed(said),
        next_command=WITHOUT_THEM,
        facts={"offsets": total, "partitions": said},
    )


def beyond(found: Standing) -> PenstockError | None:
    """A position behind the end of its partition, with which no run begins, whatever the spec says of lost records."""
    behind = [each for each in found.partitions if each.next > each.end]
    if behind and found.query is None:
        return _not_there(behind)
    return went_back([(each.topic, each.partition, each.next, each.end) for each in behind]) if behind else None


def _not_there(partitions: Iterable[Waiting]) -> StartNotThere:
    said = [
        f"{each.topic}-{each.partition}: offset {each.next} is wanted, Kafka holds {each.first} to {each.end}"
        for each in partitions
    ]
    return StartNotThere(
        "`start` names offsets that are not in Kafka",
        cause=_listed(said),
        next_command="correct `start`; -2 is the first offset there is, -1 the end",
        facts={"partitions": said},
    )


def _listed(said: Sequence[str]) -> str:
    return "; ".join(said[:_NAMED]) + f"; and {len(said) - _NAMED:,} more" * (len(said) > _NAMED)


def running(home: Home) -> int | None:
    """The process that holds the lock of the checkpoint.

    The lock is not tried: held for a moment it could turn a run away that is just starting.
    """
    try:
        process = psutil.Process(int(home.lock.read_text()))
        held = str(home.lock.resolve()) in {str(Path(file.path).resolve()) for file in process.open_files()}
    except psutil.AccessDenied:
        return process.pid  # of another user; the file says that it ran last, and it does run
    except (OSError, ValueError, psutil.Error):
        return None
    return process.pid if held else None


def looks(home: Home) -> Iterator[None]:
    """One; and while a run goes on some more, for whoever found something wrong: between two reads it may have ended a
    batch, and Spark removed an old one."""
    yield
    for _ in range(_LOOKS):
        if running(home) is None:
            return
        time.sleep(_PAUSE_S)
        yield


def steady(home: Home, look: Callable[[], T]) -> T:
    """What a look at the checkpoint finds. Raises what is wrong with it, and stays wrong."""
    wrong: Exception | None = None
    for _ in looks(home):
        try:
            return look()
        except (CheckpointForeign, CheckpointMissing, LedgerDamaged, LedgerMissing, FileNotFoundError) as error:
            wrong = error
    assert wrong is not None  # there was one look at least
    raise wrong


def if_sound(look: Callable[[], T]) -> T | None:
    """What a look at the checkpoint finds; None where its files cannot be read, which `lasting_damage` says."""
    try:
        return look()
    except CheckpointForeign:
        return None


def lasting_damage(home: Home) -> list[Damage]:
    """Files that are damaged, and stay so while a run goes on."""
    found: dict[str, Damage] | None = None
    for _ in looks(home):
        now = {each.file: each for each in if_sound(lambda: damage.find(home)) or []}
        found = now if found is None else {file: each for file, each in now.items() if file in found}
        if not found:
            return []
    return list((found or {}).values())


def _position(source: Source) -> StartAt:
    if isinstance(source.start, StartAt):
        return source.start
    return StartAt.model_validate({"offsets": {}, "others": source.start})


def _waiting(where: tuple[str, int], mark: tuple[int, int], at: int) -> Waiting:
    low, high = mark
    return Waiting(*where, low, {EARLIEST: low, LATEST: high}.get(at, at), high)
