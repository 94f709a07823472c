"""Topics as the brokers hold them: who leads a partition, which copies are in sync, what offsets there are.

Asked by people who want to know what is wrong, so a part of a cluster that is down is an answer and not an error: what
it alone would know is None.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from penstock.kafka.connection import Config
from penstock.kafka.session import Session, session

if TYPE_CHECKING:
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin._config import ConfigEntry
    from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo
    from confluent_kafka.admin._metadata import TopicMetadata
    from confluent_kafka.admin._topic import TopicDescription

T = TypeVar("T")
R = TypeVar("R")

Place = tuple[str, int]

_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
PATIENCE_S = 4  # for what one can do without


@dataclass(frozen=True)
class Partition:
    number: int
    leader: int | None  # a broker's id; None where no copy can lead: it is offline
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first: int | None  # the first offset that is kept
    end: int | None  # the high watermark: the offset of the next record

    @property
    def offline(self) -> bool:
        return self.leader is None

    @property
    def under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def silent(self) -> bool:
        """Its leader has not said which offsets it holds: it may have just died."""
        return not self.offline and self.offsets is None

    @property
    def offsets(self) -> int | None:
        """As many records as there can be: markers of transactions and what was compacted away count too."""
        return None if self.first is None or self.end is None else self.end - self.first


@dataclass(frozen=True)
class Topic:
    name: str
    id: str | None  # Kafka's own; None where nobody said
    internal: bool
    partitions: tuple[Partition, ...]
    config: dict[str, str]  # in Kafka's own names; empty where it could not be read

    @property
    def replication(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)

    @property
    def min_in_sync(self) -> int | None:
        found = self.config.get("min.insync.replicas", "")
        return int(found) if found.isdecimal() else None

    @property
    def offsets(self) -> int:
        """Over the partitions that answer."""
        return sum(each.offsets or 0 for each in self.partitions)

    @property
    def whole(self) -> bool:
        """Every partition has said which offsets it holds."""
        return not any(each.offsets is None for each in self.partitions)

    @property
    def silent(self) -> list[Partition]:
        return [each for each in self.partitions if each.silent]

    @property
    def under_replicated(self) -> list[Partition]:
        return [each for each in self.partitions if each.under_replicated]

    @property
    def offline(self) -> list[Partition]:
        return [each for each in self.partitions if each.offline]

    @property
    def read_only(self) -> list[Partition]:
        """Partitions that have a leader, and too few copies in sync for a write with acks=all. Kafka never asks for
        more copies than a partition has, whatever `min.insync.replicas` says."""
        least = self.min_in_sync or 1
        return [
            each for each in self.partitions if not each.offline and len(each.in_sync) < min(least, len(each.replicas))
        ]

    def state(self, each: Partition) -> str:
        """What is wrong with a partition, in a word, the worst of it; empty when nothing is."""
        if each.offline:
            return "offline"
        if each in self.read_only:
            return "read-only"
        if each.silent:
            return "silent"
        return "under-replicated" if each.under_replicated else ""


@dataclass(frozen=True)
class Cluster:
    brokers: tuple[int, ...]  # those that the others know to be there
    topics: tuple[Topic, ...]
    missing: tuple[str, ...]  # names that were asked for and fit no topic


def look(config: Config, names: Iterable[str] = (), *, internal: bool = False) -> Cluster:
    """The topics that fit one of the names, which may hold `*` and `?`; without names all but the internal ones.
    Creates none, even where brokers do that for names they are asked about.

    Only the list must be had: any broker has it. The rest is asked for at once, and may be waiting for a broker that
    died a moment ago.
    """
    wanted = list(names)
    with session(config) as opened:
        listed = opened.client.list_topics(timeout=opened.timeout)
        # An internal topic is shown where it is named, not where a pattern happens to fit it.
        shown = [name for name in fitting(listed.topics, wanted) if internal or name not in _INTERNAL or name in wanted]
        ids, configs = _ask_ids(opened, shown), _ask_configs(opened, shown)
        led = [(name, p.id) for name in shown for p in listed.topics[name].partitions.values() if p.leader >= 0]
        held = _marks(opened, led)
        found = tuple(
            Topic(
                name,
                answer(opened, ids.get(name), lambda of: str(of.topic_id)),
                name in _INTERNAL,
                _partitions(listed.topics[name], held),
                answer(opened, configs.get(name), _as_text) or {},
            )
            for name in shown
        )
    return Cluster(tuple(sorted(listed.brokers)), found, tuple(name for name in wanted if not fitting(shown, [name])))


def fitting(there: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those that fit one of the names; all of them where no name is given."""
    wanted = list(names)
    return sorted(one for one in there if not wanted or any(fnmatch.fnmatchcase(one, name) for name in wanted))


def ends(opened: Session, places: Iterable[Place]) -> dict[Place, int | None]:
    """The high watermarks of partitions; None for one that does not answer, because no copy leads or it is gone."""
    return {place: end for place, (_, end) in marks(opened, places).items()}


def marks(
    opened: Session, places: Iterable[Place], **more: IsolationLevel
) -> dict[Place, tuple[int | None, int | None]]:
    """First and next offset of partitions; None and None for one that does not answer."""
    asked = list(places)
    known = opened.client.list_topics(timeout=opened.timeout).topics if asked else {}
    led = {(name, p.id) for name, topic in known.items() for p in topic.partitions.values() if p.leader >= 0}
    found = _marks(opened, [place for place in asked if place in led], **more)
    return {place: found.get(place, (None, None)) for place in asked}


def _marks(opened: Session, places: list[Place], **more: IsolationLevel) -> dict[Place, tuple[int | None, int | None]]:
    """First and next offset of partitions. One that has no leader must not be among them: the client would then give
    no answer for any."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin._listoffsets import OffsetSpec

    if not places:
        return {}
    # Both are under way before either is waited for: a leader that has just died costs the time-out once.
    asked = [
        opened.client.list_offsets(
            {TopicPartition(*place): spec for place in places}, request_timeout=PATIENCE_S, **more
        )
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
    ]
    low, high = (
        {(at.topic, at.partition): answer(opened, future, _offset) for at, future in answers.items()}
        for answers in asked
    )
    return {place: (low[place], high[place]) for place in places}


def _ask_ids(opened: Session, names: list[str]) -> dict[str, Future[TopicDescription]]:
    from confluent_kafka import TopicCollection

    return opened.client.describe_topics(TopicCollection(names), request_timeout=PATIENCE_S) if names else {}


def _ask_configs(opened: Session, names: list[str]) -> dict[str, Future[dict[str, ConfigEntry]]]:
    from confluent_kafka.admin._config import ConfigResource

    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    answers = opened.client.describe_configs(asked, request_timeout=PATIENCE_S) if asked else {}
    return {of.name: future for of, future in answers.items()}


def answer(opened: Session, future: Future[T] | None, meant: Callable[[T], R]) -> R | None:
    """None where there is none: nobody answered in time, the topic was deleted, or this user may not know."""
    from confluent_kafka import KafkaException

    try:
        return None if future is None else meant(opened.answer(future))
    except (KafkaException, TimeoutError):
        return None


def _offset(of: ListOffsetsResultInfo) -> int | None:
    return of.offset if of.offset >= 0 else None  # -1 and -1001 of a broker that is away


def _as_text(entries: dict[str, ConfigEntry]) -> dict[str, str]:
    return {key: str(entry.value) for key, entry in entries.items()}


def _partitions(of: TopicMetadata, marks: dict[Place, tuple[int | None, int | None]]) -> tuple[Partition, ...]:
    return tuple(
        Partition(
            p.id,
            p.leader if p.leader >= 0 else None,
            tuple(p.replicas),
            tuple(sorted(p.isrs)),
            *marks.get((str(of.topic), p.id), (None, None)),
        )
        for p in sorted(of.partitions.values(), key=lambda each: each.id)
    )
