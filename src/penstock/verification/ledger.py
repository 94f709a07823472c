"""Step 1 of `verify`: the ledger is whole, and what it says was never read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.checkpoint.audit import Fault, audit, breaks
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.record import OffsetRange, ends_of
from penstock.source.position import if_sound
from penstock.verification.offsets import without
from penstock.verification.report import Finding, Report


def as_written(home: Home, pipeline: str, report: Report, whose: str | None = None) -> None:
    """Every line is as it was written. `whose`: of a ledger beside the one that is judged, and its evidence too."""
    found = audit(Ledger(home.ledger).files(), if_sound(SparkLog(home.spark).query_id), pipeline)
    for fault in found.faults:
        _report(replace(fault, text=f"ledger of {whose}: {fault.text}", batch=None) if whose else fault, report)


def follow_on(entries: list[Entry], log: SparkLog, report: Report) -> None:
    """A batch the ledger skips, or a range that does not begin where the one before it ended."""
    for fault in breaks(entries):
        _report(fault, report)
    committed = log.committed()
    if committed is not None and committed > entries[-1].batch:
        text = f"Spark committed batch {committed}, the ledger ends at batch {entries[-1].batch}"
        report.findings.append(Finding("ledger-gap", text))


def _report(fault: Fault, report: Report) -> None:
    if fault.accepted is not None:
        report.unproven.append(str(fault))
    else:
        report.findings.append(Finding(fault.kind, fault.text, fault.batch, *(fault.partition or ())))


def in_flight(log: SparkLog, entries: Sequence[Entry]) -> list[OffsetRange]:
    """What is planned beyond the ledger: it may be in sinks and dead letters already, or not yet."""
    planned = log.planned()
    if planned is None or (entries and planned <= entries[-1].batch):
        return []
    done = ends_of(entries[-1].ranges) if entries else log.start()
    ahead = [OffsetRange(t, p, done.get((t, p), 0), end) for (t, p), end in log.end_of(planned).items()]
    return sorted(r for r in ahead if r.end > r.start)


def never_read(entries: list[Entry]) -> list[OffsetRange]:
    """What the operator skipped, without what a later seek went back to: a batch has read that, or will."""
    former: list[OffsetRange] = []  # in topics that were deleted since
    left: list[OffsetRange] = []
    for entry in entries:
        former += [r for r in left if r.topic in entry.renewed]
        left = [r for r in left if r.topic not in entry.renewed]
        left += [part for r in entry.skipped for part in without(r, entry.lost)]  # what had expired is not skipped
        left = [part for r in left for part in without(r, [*entry.ranges, *entry.again])]
    return sorted([*former, *left])
