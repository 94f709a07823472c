"""What `verify` says: what it counted, what is wrong and where, what nobody can prove."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import RECORDS_LOST
from penstock.record import OffsetRange

Partition = tuple[str, int]
_SHOWN = 10  # offsets a finding names; all of them are in the JSON facts up to NAMED
NAMED = 1000


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and where."""

    kind: str
    text: str
    batch: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        place = f"batch {self.batch}: " if self.batch is not None else ""
        if self.topic is not None:
            place += f"{self.topic}: " if self.partition is None else f"{self.topic}-{self.partition}: "
        shown = ", ".join(map(str, self.offsets[:_SHOWN])) + (", …" if len(self.offsets) > _SHOWN else "")
        return f"{place}{self.text}" + (f": offsets {shown}" if self.offsets else "")


@dataclass
class Report:
    pipeline: str
    batches: int = 0
    offsets: int = 0
    records: int = 0
    sinks: dict[str, int] = field(default_factory=dict)
    written: dict[str, dict[str, int]] = field(default_factory=dict)  # of those, as the ledgers say: by sink and writer
    dead: int = 0
    replayed: int = 0  # of those: dead no more, because a replay brought them home
    dropped: dict[str, int] = field(default_factory=dict)  # by rule
    left_out: dict[str, int] = field(default_factory=dict)  # by sink: what steps or its condition left out before it
    superseded: dict[str, int] = field(default_factory=dict)  # by sink: rows in whose place a newer one stands
    # `dropped` and `left_out` of records that were replayed
    dropped_in_replays: dict[str, int] = field(default_factory=dict)
    left_out_in_replays: dict[str, int] = field(default_factory=dict)
    # Of stateful steps, by view.
    taken: dict[str, int] = field(default_factory=dict)  # records that went into windows, joins, keys
    late: dict[str, int] = field(default_factory=dict)
    untimed: dict[str, int] = field(default_factory=dict)  # rows that SQL left without an event time
    ahead: dict[str, int] = field(default_factory=dict)  # rows that SQL gave one too far ahead of the clock
    duplicates: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)  # rows in its state now
    proof: dict[str, str] = field(default_factory=dict)  # sink -> "by offset" or "by count"
    expired: list[OffsetRange] = field(default_factory=list)  # Kafka no longer holds them: taken from the ledger
    lost: list[OffsetRange] = field(default_factory=list)  # expired unread; the ledger says so
    doubtful: int = 0  # records that may be lost, at most: they expired while they were read
    skipped: list[OffsetRange] = field(default_factory=list)  # by the operator (`checkpoint seek`), and never read
    former: list[OffsetRange] = field(default_factory=list)  # of topics that were deleted: taken from the ledger
    markers: int = 0  # offsets that are no record: markers of transactions, records of aborted ones
    gaps: int = 0  # the same in compacted topics, where most of them were compacted away before they could be read
    in_flight: list[OffsetRange] = field(default_factory=list)  # of a batch that is running, or was when it crashed
    compacted: list[str] = field(default_factory=list)  # topics from which Kafka removes records by itself
    unproven: list[str] = field(default_factory=list)  # what the operator accepted that nobody can prove any more
    findings: list[Finding] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.findings

    @property
    def records_lost(self) -> bool:
        """Records are gone that no batch has read, or may be: the ledger accounts for them, and nobody has them. What
        the operator skipped is no loss, but for what had expired by then."""
        return bool(self.lost or self.doubtful)

    @property
    def exit_status(self) -> int:
        """Of `penstock verify`."""
        return 1 if not self.complete else RECORDS_LOST if self.records_lost else 0

    def judged_from(self, partition: Partition) -> int:
        """The first offset of a partition that Kafka still speaks for."""
        return max((r.end for r in self.expired if (r.topic, r.partition) == partition), default=0)
