"""How far behind a pipeline is, as numbers: arithmetic over positions, ends, rates and times. Asks nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import counted

_HOT_SHARE = 3.0  # times the average of the others
_FEW = 1_000  # offsets that no partition is hot for


@dataclass(frozen=True)
class PartitionLag:
    """One partition. Offsets count markers and gaps too; `behind_s` is the age of the next record to be read."""

    topic: str
    partition: int
    position: int | None  # by the checkpoint, which is the truth; None: where it begins Kafka did not say
    group: int | None  # by the mirror in Kafka
    end: int | None  # None: the partition does not answer
    behind_s: float | None  # None: nothing waits, or it could not be told
    estimated: bool  # from the times of other offsets, not from the record itself
    arriving: float | None  # offsets per second over the last minute
    first: int = 0  # that Kafka still holds
    state: str = ""  # why it does not answer: silent, offline
    gone: int = 0  # offsets before `first`, where a pipeline that has not run yet begins there because it is the first

    @property
    def known(self) -> bool:
        return self.position is not None and self.end is not None

    @property
    def expired(self) -> int:
        """Offsets that wait, and that Kafka no longer holds."""
        return 0 if self.position is None else max(0, self.first - self.position)

    @property
    def beyond(self) -> int:
        """How far the next offset to be read lies behind the end."""
        return 0 if self.position is None or self.end is None else max(0, self.position - self.end)

    @property
    def lag(self) -> int:
        """None is counted where it is not known."""
        return 0 if self.position is None or self.end is None else max(0, self.end - self.position)

    @property
    def group_lag(self) -> int | None:
        return None if self.group is None or self.end is None else max(0, self.end - self.group)


@dataclass(frozen=True)
class Lag:
    partitions: tuple[PartitionLag, ...]
    capacity: float | None  # offsets per second while a batch runs, over the last batches
    hot: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """Over the partitions that answer: at least so much waits."""
        return sum(each.lag for each in self.partitions)

    def behind(self, at_least: bool = False) -> str:
        """How much waits, in words. `at_least`: nobody can say what else does."""
        if not self.total:
            return "lag unknown" if at_least else "caught up"
        return f"{'at least ' * at_least}{counted(self.total, 'offset')} behind"

    @property
    def unknown(self) -> list[PartitionLag]:
        return [each for each in self.partitions if not each.known]

    @property
    def expired(self) -> dict[tuple[str, int], int]:
        """Partitions whose next offset Kafka no longer holds, and how many it does not."""
        return {(each.topic, each.partition): each.expired for each in self.partitions if each.expired}

    @property
    def gone(self) -> int:
        """Offsets that expired before the first run. They do not wait: `start` asks for the first that is there."""
        return sum(each.gone for each in self.partitions)

    @property
    def behind_s(self) -> float | None:
        return max((each.behind_s for each in self.partitions if each.behind_s is not None), default=None)

    @property
    def arriving(self) -> float | None:
        known = [each.arriving for each in self.partitions if each.arriving is not None]
        return sum(known) if known else None

    @property
    def catch_up_s(self) -> float | None:
        """Time until nothing waits, with what arrives meanwhile; infinite where more arrives than is read. None where
        that cannot be told."""
        if self.unknown:
            return None
        if not self.total:
            return 0.0
        if self.capacity is None:
            return None
        gain = self.capacity - (self.arriving or 0.0)
        return self.total / gain if gain > 0 else float("inf")


def measured(partitions: Sequence[PartitionLag], capacity: float | None) -> Lag:
    return Lag(tuple(partitions), capacity, tuple(_hot(partitions)))


def _hot(partitions: Sequence[PartitionLag]) -> list[tuple[str, int]]:
    """Partitions that wait, or get, several times as much as the others on average."""
    known = [each for each in partitions if each.known]
    lag, arriving, others = sum(p.lag for p in known), sum(p.arriving or 0.0 for p in known), len(known) - 1
    found = []
    for each in known if others else ():
        gets = each.arriving or 0.0
        waits_more = each.lag > _FEW and each.lag * others > _HOT_SHARE * (lag - each.lag)
        gets_more = gets * 60 > _FEW and gets * others > _HOT_SHARE * (arriving - gets)
        if waits_more or gets_more:
            found.append((each.topic, each.partition))
    return found
