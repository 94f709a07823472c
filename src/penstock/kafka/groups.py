"""Consumer groups: who is in them, how far they have come, and how far the ends are away.

Penstock itself keeps some of its books in groups: what it has written exactly once. Where their offsets are those of
the topic they are shown like any other; where they are numbers of batches they say nothing about lag.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.kafka.connection import Config
from penstock.kafka.session import Session, session
from penstock.kafka.topics import PATIENCE_S, Place, answer, ends, fitting

if TYPE_CHECKING:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin._group import ConsumerGroupDescription

# Groups of Penstock whose offsets are numbers of batches (`deadletters.topic`, `sinks.kafka.exactly_once`).
_BOOKS = ("penstock.", (".dead-letters", ".batches"))


@dataclass(frozen=True)
class Member:
    id: str
    client: str
    host: str
    partitions: tuple[Place, ...]


@dataclass(frozen=True)
class Position:
    """`committed` is the next offset the group will read; None where a member has the partition and committed none."""

    topic: str
    partition: int
    committed: int | None
    end: int | None  # the high watermark; None for a partition that is gone or offline
    member: str | None

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True)
class Group:
    name: str
    state: str
    members: tuple[Member, ...]
    positions: tuple[Position, ...]

    @property
    def books(self) -> bool:
        """Its offsets are numbers of batches: a ledger of Penstock, and no reader's position."""
        return self.name.startswith(_BOOKS[0]) and self.name.endswith(_BOOKS[1])

    @property
    def lag(self) -> int | None:
        """Over the partitions whose lag is known; None where that is none of them."""
        found = [each.lag for each in self.positions if each.lag is not None]
        return sum(found) if found and not self.books else None


@dataclass(frozen=True)
class Groups:
    found: tuple[Group, ...]
    missing: tuple[str, ...]  # names that were asked for and fit no group
    complete: bool  # every broker has answered; else there may be groups, members and positions that are not here


def look(config: Config, names: Iterable[str] = (), *, topics: Collection[str] | None = None) -> Groups:
    """The groups that fit one of the names, which may hold `*` and `?`. `topics`: only groups that have read or are
    reading one of these."""
    wanted = list(names)
    with session(config) as opened:
        listed = opened.answer(opened.client.list_consumer_groups(request_timeout=PATIENCE_S))
        there = [group.group_id for group in listed.valid]
        picked = fitting(there, wanted)
        described, offsets = _ask_described(opened, picked), _ask_committed(opened, picked)
        members = {name: answer(opened, described[name], lambda of: of) for name in picked}
        committed = {name: answer(opened, offsets[name], _as_places) for name in picked}
        silent = any(found[name] is None for found in (members, committed) for name in picked)
        places = {name: {*(committed[name] or {}), *_held(members[name])} for name in picked}
        if topics is not None:
            places = {n: held for n, held in places.items() if any(topic in topics for topic, _ in held)}
        high = ends(opened, sorted({place for held in places.values() for place in held}))
    return Groups(
        tuple(_group(name, members[name], committed[name] or {}, high) for name in sorted(places)),
        tuple(name for name in wanted if not fitting(there, [name])),
        complete=not silent and not listed.errors,
    )


def _ask_described(opened: Session, names: list[str]) -> dict[str, Future[ConsumerGroupDescription]]:
    return opened.client.describe_consumer_groups(names, request_timeout=PATIENCE_S) if names else {}


def _ask_committed(opened: Session, names: list[str]) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
    for name in names:  # the client takes one group at a time
        request = [ConsumerGroupTopicPartitions(name)]
        asked |= opened.client.list_consumer_group_offsets(request, request_timeout=PATIENCE_S)
    return asked


def _as_places(found: ConsumerGroupTopicPartitions) -> dict[Place, int]:
    return {(at.topic, at.partition): at.offset for at in found.topic_partitions or () if at.offset >= 0}


def _held(of: ConsumerGroupDescription | None) -> set[Place]:
    members = of.members if of else ()
    return {(at.topic, at.partition) for member in members for at in member.assignment.topic_partitions}


def _group(
    name: str, of: ConsumerGroupDescription | None, committed: Mapping[Place, int], high: Mapping[Place, int | None]
) -> Group:
    members = tuple(
        Member(
            member.member_id,
            member.client_id,
            member.host.removeprefix("/"),
            tuple(sorted((at.topic, at.partition) for at in member.assignment.topic_partitions)),
        )
        for member in (of.members if of else ())
    )
    owner = {place: member.id for member in members for place in member.partitions}
    return Group(
        name,
        of.state.name.lower().replace("_", "-") if of else "unknown",
        members,
        tuple(
            Position(*place, committed.get(place), high.get(place), owner.get(place))
            for place in sorted({*committed, *owner})
        ),
    )
