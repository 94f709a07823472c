"""The rule of `doctor` about dead letters: too many records die, or many more than before.

A pipeline that buries nearly everything commits batch after batch, and looks well to every other rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.doctor.facts import Dying, Facts, Finding
from penstock.doctor.stopped import spent_budget
from penstock.errors import counted

_HIGH, _MOST = 0.1, 0.5  # of the records
_FEW = 10  # dead letters: fewer are stragglers in small batches
_RISEN, _RISEN_TO = 3.0, 0.01  # times what it was before, and not less than this
_ENOUGH = 100  # records that say what it was before


def dead_letters(facts: Facts) -> Iterator[Finding]:
    found = facts.dying
    if found is None or not (high(found) or risen(found)) or any(spent_budget(facts)):
        return
    share, before = found.share, found.share_before
    batches = "batch" if found.batches == 1 else f"{found.batches} batches"
    evidence = [f"{found.dead:,} of {found.read:,} records of the last {batches} are dead letters"]
    if found.read_before >= _ENOUGH:
        evidence.append(f"in the {counted(found.batches_before, 'batch', 'batches')} before it was {before:.1%}")
    evidence += [f"{n:,} × {reason}" for reason, n in found.reasons]
    yield Finding(
        "dead-letters",
        "critical" if share >= _MOST else "warning",
        f"{share:.1%} of records are dead letters" + (f", up from {before:.1%}" if risen(found) else ""),
        tuple(evidence),
        "penstock dlq stats FILE; fix the spec or the producer, then: penstock dlq replay FILE",
        {"share": round(share, 6), "share_before": round(before, 6), "read": found.read, "dead": found.dead},
    )


def high(found: Dying) -> bool:
    return found.dead >= _FEW and found.share >= _HIGH


def risen(found: Dying) -> bool:
    much = found.share >= _RISEN_TO and found.share >= _RISEN * found.share_before
    return found.dead >= _FEW and found.read_before >= _ENOUGH and much
