"""Where an operator asks a seek to go: words on the command line as positions of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import Positions
from penstock.errors import BadArgument
from penstock.kafka.connection import client_config
from penstock.source import parse_position, start
from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class Wanted:
    """In the operator's words."""

    to: str | None = None
    to_batch: int | None = None
    topics: tuple[str, ...] = ()  # only these move; none: all that the position names
    accepted: frozenset[str] = frozenset()


def asked(
    pipeline: Pipeline,
    wanted: Wanted,
    entries: list[Entry],
    partitions: list[tuple[str, int]],
    renewed: Mapping[str, str],
) -> Positions:
    """Where partitions shall be that are asked for; the others stay. -2 and -1 stand for the ends."""
    read = sorted({topic for topic, _ in partitions})
    strange = sorted(set(wanted.topics) - set(read))
    if strange:
        raise BadArgument(
            f"topic '{strange[0]}' is not read by this pipeline",
            cause=f"it reads {', '.join(read)}",
            next_command="give --topic one of these",
        )
    some = [where for where in partitions if not wanted.topics or where[0] in wanted.topics]
    if wanted.to_batch is None:
        position = parse_position.parsed(wanted.to or "", "latest")
        found = start.resolve(client_config(pipeline), position, some)
        return {where: found[where] for where in position.places() or found}
    began = {where: at for where, at in _before(entries, wanted.to_batch).items() if where in some}
    since = [name for entry in entries if entry.batch >= wanted.to_batch for name in entry.renewed]
    for name in sorted({*since, *renewed} & {topic for topic, _ in began}):
        raise BadArgument(
            f"topic '{name}' was deleted and created again after batch {wanted.to_batch}",
            cause="where that batch began in it means nothing in the new one",
            next_command="name the topics that shall move: --topic TOPIC",
        )
    return began


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
