"""Topics that are gone, or were deleted and created again, for `verify`: which offsets of the ledger are of those.

The ledger says of every batch which topic it read, by Kafka's own id. What was read of a former topic is in Kafka no
more, and its offsets are those of other records by now. So nobody can recount it; the sinks still hold it, and are
judged by what the ledger says of former and present records together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.ledger import Entry
from penstock.record import OffsetRange

_GONE = ""  # no topic has this id


@dataclass(frozen=True)
class Former:
    ids: Mapping[str, str] = field(default_factory=dict)  # of the topics, as Kafka says now; those that are gone: none

    @classmethod
    def of(cls, entries: Iterable[Entry], there: Mapping[str, str]) -> Former:
        """`there`: the topics that Kafka has, and their ids."""
        read = {r.topic for entry in entries for r in entry.ranges}
        return cls({name: there.get(name, _GONE) for name in read})

    @property
    def gone(self) -> list[str]:
        return sorted(name for name, id_ in self.ids.items() if id_ == _GONE)

    def ranges(self, entry: Entry) -> list[OffsetRange]:
        """What the batch read of topics that are gone."""
        return [r for r in entry.ranges if len(r) and not self._present(entry, r)]

    def present(self, entry: Entry) -> list[OffsetRange]:
        """What it read of topics that are still the same."""
        return [r for r in entry.ranges if self._present(entry, r)]

    def all(self, entries: Iterable[Entry]) -> list[OffsetRange]:
        return [r for entry in entries for r in self.ranges(entry)]

    def _present(self, entry: Entry, r: OffsetRange) -> bool:
        fact = entry.topics.get(r.topic)
        return fact is None or self.ids.get(r.topic, fact.id) == fact.id
