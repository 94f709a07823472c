"""`checkpoint show`: what a checkpoint holds, read while a run may go on. Kafka is only asked for the lag (C1)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.checkpoint import backup
from penstock.checkpoint.damage import Damage
from penstock.checkpoint.files import size_of
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import Positions, SparkLog
from penstock.errors import CheckpointForeign, PenstockError
from penstock.kafka import admin
from penstock.kafka.connection import client_config
from penstock.lifecycle import preconditions
from penstock.operations import fork
from penstock.record import OffsetRange
from penstock.source import position
from penstock.spec.model import Pipeline
from penstock.verification.ledger import never_read

_PARTS = (
    *("spark/offsets", "spark/commits", "spark/sources", "spark/state"),
    *("ledger", "schemas", "logs", "backfill", "replay"),
)
_ASK_S = 3.0  # for Kafka to answer: the rest can be shown without it


@dataclass(frozen=True)
class Pending:
    """The batch that is running, or will run again (`SparkLog.pending`)."""

    batch: int
    since: str  # by the time of its file
    seconds: int
    written: bool  # the ledger has it: only Spark's commit is missing
    ranges: list[OffsetRange]


@dataclass(frozen=True)
class Place:
    topic: str
    partition: int
    next: int
    first: int | None = None  # as Kafka has it; None where Kafka did not say
    end: int | None = None

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.next)


@dataclass(frozen=True)
class Books:
    """The ledger, added up."""

    entries: int = 0
    first: int | None = None
    last: int | None = None
    time: str | None = None  # of the last entry
    read: int = 0
    written: dict[str, int] = field(default_factory=dict)
    dead: int = 0
    lost: list[OffsetRange] = field(default_factory=list)
    doubtful: list[OffsetRange] = field(default_factory=list)  # expired while they were read; some are lost
    skipped: list[OffsetRange] = field(default_factory=list)  # without what a later seek took back
    seeks: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class StateStore:
    operator: int
    partitions: int
    bytes: int


@dataclass(frozen=True)
class Inspection:
    pipeline: str
    checkpoint: str
    query: str | None
    running: int | None
    committed: int | None  # the newest batch
    planned: int | None
    pending: Pending | None
    partitions: list[Place]
    no_lag: str | None  # why there is no lag
    bytes: dict[str, int]
    ledger: Books
    state: list[StateStore]
    damage: list[Damage]
    backups: list[str]
    aside: list[str]  # what a restore or a repair replaced
    forked: dict[str, Any] | None

    @property
    def lag(self) -> int | None:
        return None if self.no_lag else sum(place.lag or 0 for place in self.partitions)


def inspect(pipeline: Pipeline) -> Inspection:
    home = Home.of(pipeline)
    if not any(home.ledger.glob("*.jsonl")):
        preconditions.require_checkpoint(home)
    log, running = SparkLog(home.spark), position.running(home)
    entries = list(Ledger(home.ledger).entries())
    places, why = _with_lag(pipeline, position.known_positions(log, entries) or {})
    return Inspection(
        pipeline=pipeline.name,
        checkpoint=str(home.path),
        query=_query(log, entries),
        running=running,
        committed=log.committed(),
        planned=log.planned(),
        pending=_pending(log, entries),
        partitions=places,
        no_lag=why,
        bytes={name: size_of(home.path / name) for name in _PARTS if (home.path / name).exists()},
        ledger=_books(entries),
        state=_state(home.spark / "state"),
        damage=_damage(home, running),
        backups=[str(path) for path in backup.kept(home)],
        aside=[str(path) for path in backup.aside(home)],
        forked=fork.origin(home),
    )


def _query(log: SparkLog, entries: list[Entry]) -> str | None:
    try:
        return log.query_id() or (entries[-1].query if entries else None)
    except CheckpointForeign:  # its metadata is damaged, which is said elsewhere
        return entries[-1].query if entries else None


def _with_lag(pipeline: Pipeline, at: Positions) -> tuple[list[Place], str | None]:
    topics = sorted({topic for topic, _ in at})
    try:
        config = client_config(pipeline)
        sizes = {name: facts.partitions for name, facts in admin.require_topics(config, topics, timeout=_ASK_S).items()}
        marks = admin.watermarks(config, sizes) if topics else {}
    except PenstockError as error:
        why = error.what + (f" ({error.cause})" if error.cause else "")
        return [Place(*where, offset) for where, offset in sorted(at.items())], why
    places = {where: at.get(where, position.JOINED) for where in marks if where in at or _joins(pipeline, where)}
    return [Place(*where, places[where], *marks[where]) for where in sorted(places)], None


def _joins(pipeline: Pipeline, where: tuple[str, int]) -> bool:
    topic = pipeline.source.topics.get(where[0])
    return pipeline.source.reads_topic(where[0]) and (topic is None or topic.partitions is None)


def _pending(log: SparkLog, entries: list[Entry]) -> Pending | None:
    batch = log.pending()
    since = log.planned_at(batch) if batch is not None else None
    if batch is None or since is None:
        return None
    try:
        ranges = [r for r in log.ranges(batch) if r.end > r.start]
    except CheckpointForeign:
        ranges = []
    return Pending(
        batch=batch,
        since=datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
        seconds=max(0, round(time.time() - since)),
        written=bool(entries) and entries[-1].batch >= batch,
        ranges=ranges,
    )


def _books(entries: list[Entry]) -> Books:
    if not entries:
        return Books()
    written: dict[str, int] = {}
    for entry in entries:
        for name, count in entry.sinks.items():
            written[name] = written.get(name, 0) + count.written
    return Books(
        entries=len(entries),
        first=entries[0].batch,
        last=entries[-1].batch,
        time=entries[-1].time,
        read=sum(entry.read for entry in entries),
        written=written,
        dead=sum(entry.dead for entry in entries),
        lost=[r for entry in entries for r in entry.lost],
        doubtful=[r for entry in entries for r in entry.doubtful],
        skipped=never_read(entries),
        seeks=[entry.batch for entry in entries if entry.is_seek],
    )


def _state(directory: Path) -> list[StateStore]:
    """Spark keeps one directory per stateful operator, and in it one per partition."""
    operators = sorted(int(d.name) for d in directory.iterdir() if d.name.isdigit()) if directory.is_dir() else []
    return [
        StateStore(
            operator=number,
            partitions=sum(d.name.isdigit() for d in (directory / str(number)).iterdir()),
            bytes=size_of(directory / str(number)),
        )
        for number in operators
    ]


def _damage(home: Home, running: int | None) -> list[Damage]:
    found = position.lasting_damage(home)
    if not found and running is None and any(home.ledger.glob("*.jsonl")) and not home.spark.is_dir():
        return [Damage("spark", "is missing: see `penstock plan FILE`", None)]
    return found
