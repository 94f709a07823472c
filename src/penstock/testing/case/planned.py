"""What a query knows about its batches and topics, where there is none: made of the records of a case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.ledger import TopicFact
from penstock.checkpoint.log import SparkLog
from penstock.record import OffsetRange
from penstock.source.topics import Loss, TopicWatch
from penstock.testing.case.records import Sent


def ranges_of(planned: Sequence[Sequence[Sent]]) -> list[list[OffsetRange]]:
    """The offsets that each batch covers: as Spark plans them, from where the last one ended."""
    ends: dict[tuple[str, int], int] = {}
    ranges: list[list[OffsetRange]] = []
    for batch in planned:
        until = dict(ends)
        for each in batch:
            until[each.topic, each.partition] = each.offset + 1
        ranges.append([OffsetRange(t, p, ends.get((t, p), 0), end) for (t, p), end in sorted(until.items())])
        ends = until
    return ranges


@dataclass(frozen=True)
class Planned(SparkLog):
    """The offsets of a case's batches, where a query has Spark's log."""

    batches: Sequence[list[OffsetRange]]

    def query_id(self) -> str | None:
        return "test"

    def ranges(self, batch: int) -> list[OffsetRange]:
        return self.batches[batch]


@dataclass
class NoTopics(TopicWatch):
    """Topics that are only names."""

    def facts(self, topics: Iterable[str]) -> dict[str, TopicFact]:
        return {name: TopicFact(self.source.view_of(name), "") for name in sorted(set(topics))}

    def lost(self, _ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        return []

    def afterwards(self, _ranges: Iterable[OffsetRange], _before: list[OffsetRange], _read: Mapping[str, int]) -> Loss:
        return Loss()
