"""What becomes of the lag of a partition, judged without thresholds over the last commits, as Burrow does.

OK       nothing waited at some moment, or the lag shrinks at times
WARN     it is read, and the lag only ever grows: the pipeline falls behind
STALL    batches are committed, and this partition does not move although something waits
STOP     something waits and nothing runs; or it runs, and has committed nothing for longer than these commits took
REWIND   the position went back
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Verdict = Literal["OK", "WARN", "STALL", "STOP", "REWIND"]
_ENOUGH = 3  # commits: fewer say nothing about a trend


@dataclass(frozen=True)
class Commit:
    """Where a partition was after a batch, and where it ended in Kafka then. Times in seconds."""

    time: float
    position: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)


def verdict(
    commits: Sequence[Commit], now: float, end: int, *, running: bool, begin: int | None = None, since: float = 0.0
) -> Verdict:
    """Of one partition. `commits` oldest first; `end`: where it ends now; `begin`: where it is read from, which counts
    where nothing was committed yet; `since`: when the present run began, which cannot have been silent before."""
    if any(later.position < earlier.position for earlier, later in pairwise(commits)):
        return "REWIND"
    at = commits[-1].position if commits else begin
    waits = at is not None and end > at
    if waits and not running:
        return "STOP"
    if len(commits) < _ENOUGH or any(commit.lag == 0 for commit in commits):
        return "STOP" if waits and _silent(commits, now, since) else "OK"
    if waits and _silent(commits, now, since):
        return "STOP"
    growing = all(later.lag >= earlier.lag for earlier, later in pairwise(commits))
    if commits[-1].position == commits[0].position:
        return "STALL" if waits else "OK"
    return "WARN" if growing and commits[-1].lag > commits[0].lag else "OK"


def _silent(commits: Sequence[Commit], now: float, since: float) -> bool:
    """For longer than all the commits looked at took together."""
    if len(commits) < _ENOUGH:
        return False
    return now - max(commits[-1].time, since) > commits[-1].time - commits[0].time
