"""What `doctor` judges, and what it says: facts about a pipeline, and findings with their evidence and fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.doctor.lag_verdict import Verdict
from penstock.observe.lag import Lag

Severity = Literal["critical", "warning", "note"]
Place = tuple[str, int]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "note")


@dataclass(frozen=True)
class Held:
    """The state of a step after a batch."""

    rows: int
    watermark_s: float


@dataclass(frozen=True)
class Ran:
    """A batch that ended."""

    batch: int
    seconds: float
    offsets: int
    cap: int | None = None
    cold: bool = False  # the first after a start: the engine was cold, whatever the sinks did
    sinks: Mapping[str, tuple[int, float]] = field(default_factory=dict)  # rows and seconds
    state: Mapping[str, Held] = field(default_factory=dict)  # of stateful steps, by view


@dataclass(frozen=True)
class Stuck:
    """A batch whose offsets are fixed and that is not committed."""

    batch: int
    since_s: float
    failures: tuple[str, ...] = ()  # codes of the errors it ended with, since it was planned
    deaths: int = 0  # of drivers that ran it, where none runs now
    too_large: str | None = None  # what to do where a start refuses it because of them


@dataclass(frozen=True)
class Failed:
    """How the last run ended, or why the last start was refused."""

    code: str
    what: str
    cause: str | None = None
    advice: str | None = None  # the next command


Rest = Literal["never-ran", "caught-up"]
"""Why nothing has to run a pipeline: it was never started, or its last run was to read what there was, and has."""


@dataclass(frozen=True)
class Damaged:
    """What is wrong with the files of the checkpoint."""

    said: tuple[str, ...]
    fix: str
    stops: bool  # a start is refused


@dataclass(frozen=True)
class Recreated:
    """A topic that was deleted and created again: offsets of the checkpoint mean nothing in it."""

    topic: str
    cause: str
    fix: str


@dataclass(frozen=True)
class Files:
    """The data files of a table sink."""

    count: int
    bytes: int


@dataclass(frozen=True)
class Timed:
    """The step that event time is counted for, over the batches that are looked back at."""

    view: str
    came: int
    late: int
    late_after_s: float | None = None  # what the spec allows
    behind_s: Sequence[float] = ()  # of each batch with records and a watermark: how far that was behind the clock
    moved_s: float = 0.0  # how far the watermark went on in these
    unread: Sequence[str] = ()  # views of its late rows that nothing reads
    watermark_s: float = 0.0  # of the next batch; 0 before there is one
    ahead_s: float = 0.0  # how far that is ahead of the clock
    bound_s: float | None = None  # what the spec allows an event time to be ahead of the clock
    moved_by: int | None = None  # the batch that brought it ahead of the clock; None: not known any more
    moved_over: Sequence[str] = ()  # the offsets of that batch


@dataclass(frozen=True)
class Dying:
    """Dead letters of the newest batches that had records, and of those before them."""

    batches: int
    read: int
    dead: int  # without those that a replay has brought home, where `reasons` are known
    batches_before: int = 0
    read_before: int = 0
    dead_before: int = 0
    reasons: Sequence[tuple[str, int]] = ()  # the most frequent first, each with a sample, and how many

    @property
    def share(self) -> float:
        return self.dead / self.read if self.read else 0.0

    @property
    def share_before(self) -> float:
        return self.dead_before / self.read_before if self.read_before else 0.0


@dataclass(frozen=True)
class Facts:
    running: bool
    lag: Lag  # not of topics that were made again
    cap: int  # most offsets of a batch
    adaptive: bool
    batches: Sequence[Ran] = ()
    verdicts: Mapping[Place, Verdict] = field(default_factory=dict)
    stuck: Stuck | None = None
    failed: Failed | None = None
    rest: Rest | None = None
    damage: Damaged | None = None
    recreated: Sequence[Recreated] = ()
    states: Mapping[str, Sequence[str]] = field(default_factory=dict)  # offline, silent, ... -> partitions
    retention_s: Mapping[str, float] = field(default_factory=dict)  # topic -> how long Kafka keeps a record
    begun: bool = True  # positions are those of a checkpoint, and not of `start`
    goes_on: bool = False  # without records that expired unread (`on_data_loss: continue`)
    target_s: float | None = None  # how long a batch should take
    overhead_s: float | None = None  # how much of it is there at any size, as rate control found
    files: Mapping[str, Files] = field(default_factory=dict)  # of table sinks
    keeps_s: Mapping[str, float] = field(default_factory=dict)  # stateful step -> how long a row stays, in event time
    timed: Timed | None = None  # None: it keeps no state
    dying: Dying | None = None  # None: nothing was read yet
    registry: str | None = None  # why it cannot be asked; None: it answers, or there is none


@dataclass(frozen=True)
class Finding:
    cause: str  # stable: scripts match on it
    severity: Severity
    what: str
    evidence: tuple[str, ...]
    fix: str
    facts: Mapping[str, Any] = field(default_factory=dict)
