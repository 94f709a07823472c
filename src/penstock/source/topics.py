"""The topics of a batch, looked at from outside while the pipeline runs: are they still the same ones, and whole?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.checkpoint.ledger import TopicFact
from penstock.errors import ANEW, OffsetsWentBack, TopicRecreated
from penstock.kafka import admin
from penstock.kafka.admin import TopicFacts
from penstock.kafka.connection import Config
from penstock.kafka.session import Kept
from penstock.record import OffsetRange, ends_of
from penstock.spec.source import Source


@dataclass(frozen=True)
class Loss:
    """What of a batch expired unread (S8)."""

    lost: list[OffsetRange] = field(default_factory=list)
    doubtful: list[OffsetRange] = field(default_factory=list)  # some of these; see `settled`


@dataclass
class TopicWatch:
    """Made once per start with the topics of the last ledger entry; asked before and after a batch is read."""

    config: Config
    source: Source
    known: dict[str, TopicFact]
    instead: str | None = None  # what helps where `penstock checkpoint seek` cannot go on with a topic made again
    counts: dict[str, int] = field(default_factory=dict)  # partitions of each topic, when it was asked for last
    _kept: Kept = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._kept = Kept(self.config)

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFact]:
        """View and id of each topic. Raises TopicRecreated for one that is not the one it was (G3)."""
        names = sorted(set(topics))
        now = admin.require_topics(self.config, names, read=self.known, kept=self._kept)
        require_same({name: fact for name, fact in self.known.items() if name in now}, now, self.instead)
        self.counts = {name: now[name].partitions for name in names}
        self.known = {**self.known, **{n: TopicFact(self.source.view_of(n), now[n].topic_id) for n in names}}
        return {name: self.known[name] for name in names}

    def lost(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What of these ranges Kafka no longer holds, where the spec says to go on without it (S8).

        Called after `facts`, and before the batch is read: what expires later may have been read by then.
        """
        if self.source.on_data_loss == "fail":
            return []
        return expired(ranges, admin.first_offsets(self.config, self.counts, kept=self._kept))

    def afterwards(self, ranges: Iterable[OffsetRange], before: list[OffsetRange], read: Mapping[str, int]) -> Loss:
        """The second look, once the batch is read and before it counts. `before`: what `lost` found; `read`: records of
        each view. Raises TopicRecreated: then nobody knows which of two topics was read.

        A topic that is gone is no error here: what was read of it was read, and the next batch will say so.
        """
        by_view: dict[str, list[OffsetRange]] = {}
        for r in ranges:
            by_view.setdefault(self.source.view_of(r.topic), []).append(r)
        there = admin.of_those_there(self._kept, {r.topic for some in by_view.values() for r in some})
        require_same({name: fact for name, fact in self.known.items() if name in there}, there, self.instead)
        missing = {view: sum(map(len, some)) - read.get(view, 0) for view, some in by_view.items()}
        if self.source.on_data_loss == "fail" or not any(missing.values()):
            return Loss()
        counts = {name: n for name, n in self.counts.items() if name in there}
        firsts = admin.first_offsets(self.config, counts, kept=self._kept)
        settled_ = [
            settled(
                [r for r in before if self.source.view_of(r.topic) == view],
                expired(some, {(r.topic, r.partition): firsts.get((r.topic, r.partition), r.end) for r in some}),
                missing[view],
            )
            for view, some in by_view.items()
        ]
        return Loss(
            sorted(r for each in settled_ for r in each.lost), sorted(r for each in settled_ for r in each.doubtful)
        )


def made_again(known: Mapping[str, TopicFact], there: Mapping[str, TopicFacts]) -> dict[str, str]:
    """Topics that are not those the ledger knows, and the ids they had."""
    return {name: was.id for name, was in known.items() if name in there and there[name].topic_id != was.id}


def require_same(known: Mapping[str, TopicFact], there: Mapping[str, TopicFacts], instead: str | None) -> None:
    for name, before in sorted(made_again(known, there).items()):
        raise recreated(name, before, there[name].topic_id, instead)


def recreated(name: str, before: str, now: str, instead: str | None) -> TopicRecreated:
    seek = (
        "to read the new one from its start, and go on with the others where they are: "
        f"penstock checkpoint seek FILE --topic {name} --to earliest --accept {TopicRecreated.code}"
    )
    return TopicRecreated(
        f"topic '{name}' was deleted and created again",
        cause=f"it was {before}, now it is {now}: offsets of the checkpoint mean nothing in it, and records of the new "
        "topic below them would be skipped",
        next_command=instead or seek,
        facts={"topic": name},
    )


def require_forward(ranges: Iterable[OffsetRange]) -> None:
    """Raises OffsetsWentBack for a partition that ends before the offset it was read up to: Kafka has lost its end, and
    gives the offsets of what was read to other records."""
    back = [(r.topic, r.partition, r.start, r.end) for r in ranges if r.end < r.start]
    if back:
        raise went_back(back)


def went_back(partitions: Sequence[tuple[str, int, int, int]]) -> OffsetsWentBack:
    """`partitions`: of each the topic, its number, up to where it was read, and where it ends."""
    return OffsetsWentBack(
        "offsets went backwards: Kafka has lost records that were read",
        cause="; ".join(
            f"{topic}-{partition} was read up to offset {read}, and ends at {end}"
            for topic, partition, read, end in partitions[:10]
        )
        + "; a broker that lacked them became the leader, or its disk was lost",
        next_command=ANEW,
        facts={"partitions": [f"{topic}-{partition}" for topic, partition, *_ in partitions]},
    )


def expired(ranges: Iterable[OffsetRange], firsts: Mapping[tuple[str, int], int]) -> list[OffsetRange]:
    """What of these ranges lies before the first offset of its partition."""
    found = []
    for r in ranges:
        first = firsts[r.topic, r.partition]
        if len(r) and first > r.start:
            found.append(OffsetRange(r.topic, r.partition, r.start, min(first, r.end)))
    return found


def settled(before: list[OffsetRange], after: list[OffsetRange], missing: int) -> Loss:
    """What of one view is lost. `before`, `after`: what had expired before it was read, and has by now; `missing`: how
    many offsets have not become a record.

    Something that expires while it is read was read, or was passed over without a word. Where just as
    many are missing, it is lost. Otherwise those may as well be markers of transactions: it is in doubt.
    """
    if missing <= 0:
        return Loss()
    gone = sum(map(len, after))
    if missing <= sum(map(len, before)) or gone <= sum(map(len, before)):
        return Loss(before)
    if missing == gone:
        return Loss(after)
    ends = ends_of(before)
    between = [OffsetRange(r.topic, r.partition, ends.get((r.topic, r.partition), r.start), r.end) for r in after]
    return Loss(before, [r for r in between if len(r)])
