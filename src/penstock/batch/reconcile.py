"""The balance of a batch: what was read is what was written, dead or dropped, or the batch fails (G1)."""

from __future__ import annotations

from penstock.checkpoint.ledger import Entry
from penstock.errors import BatchUnbalanced, counted


def check(entry: Entry) -> None:
    spanned = sum(len(r) for r in entry.ranges)
    if entry.read > spanned:
        raise unbalanced(entry.batch, f"{counted(entry.read, 'record')} read from {counted(spanned, 'offset')}")
    for view, count in entry.views.items():
        if not count.balanced():
            raise unbalanced(entry.batch, f"view '{view}': {count}")
    for name, sink in entry.sinks.items():
        if sink.dropped is not None and sink.dropped < 0:
            raise unbalanced(entry.batch, f"sink '{name}' got more rows than records passed")
    for view, step in entry.stateful.items():
        if step.taken is None:
            continue
        parted = step.duplicates is not None and step.gave is not None
        if step.taken < 0 or (parted and step.taken != (step.duplicates or 0) + (step.gave or 0)):
            raise unbalanced(entry.batch, f"step '{view}': {step}")


def unbalanced(batch: int, what: str) -> BatchUnbalanced:
    return BatchUnbalanced(
        f"batch {batch} does not add up: {what}",
        cause="a rule or a step gives another result each time (rand(), current_timestamp()); or the batch was written "
        "before a crash, and since then the spec changed, records expired, or topics that records choose were made or "
        "deleted; or this is a defect",
        next_command="bring the spec back to what it was; or let what was written before a crash count: "
        f"penstock run FILE --accept {BatchUnbalanced.code}",
    )
