"""The topics of a batch, looked at from outside while the pipeline runs: are they still the same ones, and whole?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
        self.known = {**self.known, **{n: TopicFact(self.source.view_of(n), now[n].topic_id) for n in names}}
        return {name: self.known[name] for name in names}

    def lost(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """What of these ranges Kafka no longer holds, where the spec says to go on without it (S8)."""
        if self.source.on_data_loss == "fail":
            return []
        spanned = [r for r in ranges if len(r)]
        marks = admin.watermarks(self.config, admin.partition_counts(self.config, {r.topic for r in spanned}))
        lost = []
        for r in spanned:
            low, _ = marks[r.topic, r.partition]
            if low > r.start:
                lost.append(OffsetRange(r.topic, r.partition, r.start, min(low, r.end)))
        return lost
