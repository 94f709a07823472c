"""Progress of a run as numbers: arithmetic over ledger entries and high watermarks. The terminal only prints it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.checkpoint.ledger import Entry
from penstock.observe.books import Share, shares

_RECENT = 5  # batches the rate is taken over: enough to be steady, few enough to follow a change


@dataclass
class Progress:
    """Fed by the run after each batch, and by a clock with what Kafka's ends are."""

    batches: int = 0
    read: int = 0
    sinks: dict[str, Share] = field(default_factory=dict)
    dead: int = 0
    dropped: int = 0  # by rules
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    _last: int | None = None
    _recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def batch_done(self, entry: Entry, seconds: float) -> bool:
        """Whether it counts: a batch that was complete but not committed by Spark is run again, and is one batch."""
        if entry.batch == self._last:
            return False
        self._last = entry.batch
        self.batches += 1
        self.read += entry.read
        self.dead += entry.dead
        self.dropped += entry.dropped
        for name, share in shares(entry).items():
            self.sinks[name] = self.sinks.get(name, Share()) + share
        for r in entry.ranges:
            self.positions[r.topic, r.partition] = r.end
        self._recent.append((sum(len(r) for r in entry.ranges), seconds))
        return True

    def ends_are(self, ends: Mapping[tuple[str, int], int]) -> None:
        self.ends = dict(ends)

    @property
    def rate(self) -> float | None:
        """Offsets per second over the last batches; None before the first one ended."""
        recent = list(self._recent)  # at one blow: the display reads while the run writes
        seconds = sum(s for _, s in recent)
        return sum(n for n, _ in recent) / seconds if seconds > 0 else None

    @property
    def lag(self) -> int | None:
        """Offsets in Kafka behind which we are; None before both sides are known."""
        if not self.ends or not self.positions:
            return None
        return sum(max(0, end - self.positions.get(p, 0)) for p, end in self.ends.items())

    @property
    def seconds_left(self) -> float | None:
        """Time to catch up at the present rate, if nothing new came."""
        return self.lag / self.rate if self.lag is not None and self.rate else None
