"""Step 1 of `verify`: the ledger is whole, and what it says was never read."""

from __future__ import annotations

from penstock.checkpoint.ledger import Entry
from penstock.checkpoint.log import SparkLog
from penstock.errors import LedgerMissing
from penstock.record import OffsetRange, ends_of
from penstock.runtime.proof.offsets import without
from penstock.runtime.proof.report import Finding, Partition, Report


def follow_on(entries: list[Entry], log: SparkLog, report: Report) -> None:
    """A batch the ledger skips, or a range that does not begin where the one before it ended."""
    at: dict[Partition, int] = {}
    follows = 0
    for entry in entries:
        if entry.batch != follows:
            text = f"the ledger has no entry for batches {follows} to {entry.batch - 1}"
            if LedgerMissing.code in entry.accepted:
                report.unproven.append(f"{text}; accepted when batch {entry.batch} ran")
                at.clear()
            else:
                report.findings.append(Finding("ledger-gap", text))
        follows = entry.batch + 1
        at = {where: offset for where, offset in at.items() if where[0] not in entry.renewed}
        moved = {(r.topic, r.partition): (r.start, r.end) for r in entry.skipped}
        moved |= {(r.topic, r.partition): (r.end, r.start) for r in entry.again}
        for r in entry.ranges:
            expected = at.get((r.topic, r.partition), r.start)
            if moved.get((r.topic, r.partition)) != (expected, r.start) and r.start != expected:
                text = f"begins at offset {r.start}, the batch before ended at {expected}"
                report.findings.append(Finding("range-gap", text, entry.batch, r.topic, r.partition))
            at[r.topic, r.partition] = r.end
    committed = log.committed()
    if committed is not None and committed > entries[-1].batch:
        text = f"Spark committed batch {committed}, the ledger ends at batch {entries[-1].batch}"
        report.findings.append(Finding("ledger-gap", text))


def in_flight(log: SparkLog, entries: list[Entry]) -> list[OffsetRange]:
    """What Spark has planned beyond the ledger: it may be in sinks and dead letters already, or not yet."""
    planned = log.planned()
    if planned is None or planned <= entries[-1].batch:
        return []
    done = ends_of(entries[-1].ranges)
    ahead = [OffsetRange(t, p, done.get((t, p), 0), end) for (t, p), end in log.end_of(planned).items()]
    return sorted(r for r in ahead if r.end > r.start)


def never_read(entries: list[Entry]) -> list[OffsetRange]:
    """What the operator skipped, without what a later seek went back to: a batch has read that, or will."""
    former, left = _skipped(entries, but_taken_back=True)
    return sorted([*former, *left])


def skipped_now(entries: list[Entry]) -> list[OffsetRange]:
    """What no batch has read yet since the operator skipped it, in topics as they are now and not in those that were
    deleted since."""
    return sorted(_skipped(entries, but_taken_back=False)[1])


def _skipped(entries: list[Entry], *, but_taken_back: bool) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """In topics that were deleted since, and in those that are still the same."""
    former: list[OffsetRange] = []
    left: list[OffsetRange] = []
    for entry in entries:
        former += [r for r in left if r.topic in entry.renewed]
        left = [r for r in left if r.topic not in entry.renewed] + entry.skipped
        back = entry.again if but_taken_back else []
        left = [part for r in left for part in without(r, [*entry.ranges, *back])]
    return former, left
