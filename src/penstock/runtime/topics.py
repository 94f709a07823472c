"""The topics of a batch, looked at from outside while the pipeline runs: are they still the same ones, and whole?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.ledger import TopicFact
from penstock.errors import TopicRecreated
from penstock.kafka import admin
from penstock.kafka.connection import Config
from penstock.record import OffsetRange
from penstock.spec.source import Source


@dataclass
class TopicWatch:
    """Made once per start with the topics of the last ledger entry; asked once per batch."""

    config: Config
    source: Source
    known: dict[str, TopicFact]
    counts: dict[str, int] = field(default_factory=dict)  # partitions of each topic, when it was asked for last

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFact]:
        """View and id of each topic. Raises TopicRecreated for one that is not the one it was (G3)."""
        names = sorted(set(topics))
        now = admin.require_topics(self.config, names)
        for name in names:
            before = self.known.get(name)
            if before is not None and before.id != now[name].topic_id:
                raise TopicRecreated(
                    f"topic '{name}' was deleted and created again",
                    cause=f"it was {before.id}, now it is {now[name].topic_id}: offsets of the checkpoint mean nothing "
                    "in it, and records of the new topic below them would be skipped",
                    next_command="give the pipeline a new `checkpoint:`, and read the new topic from its start",
                    facts={"topic": name},
                )
        self.counts = {name: now[name].partitions for name in names}
        self.known = {**self.known, **{n: TopicFact(self.source.view_of(n), now[n].topic_id) for n in names}}
        return {name: self.known[name] for name in names}

    def lost(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What of these ranges Kafka no longer holds, where the spec says to go on without it (S8).

        Called after `facts`, and before the batch is read: what expires later may have been read by then.
        """
        if self.source.on_data_loss == "fail":
            return []
        firsts = admin.first_offsets(self.config, self.counts)
        return expired(ranges, firsts)


def expired(ranges: Iterable[OffsetRange], firsts: Mapping[tuple[str, int], int]) -> list[OffsetRange]:
    """What of these ranges lies before the first offset of its partition."""
    found = []
    for r in ranges:
        first = firsts[r.topic, r.partition]
        if len(r) and first > r.start:
            found.append(OffsetRange(r.topic, r.partition, r.start, min(first, r.end)))
    return found
