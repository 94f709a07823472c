"""From times to rows: medians, ratios, the table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from statistics import median
from typing import TYPE_CHECKING

from bench.cases import PENSTOCK, Case, Job, label

if TYPE_CHECKING:
    from bench.alternate import Measured

Row = dict[str, object]


def rows(case: Case, found: Mapping[Job, Measured]) -> list[Row]:
    """Per baseline two rows: the baseline's, and ours with the ratio to it. Above 1 we are faster."""
    made: list[Row] = []
    for baseline in case.against:
        for system, job in ((label(baseline), baseline), (PENSTOCK, case.ours)):
            ratio = _rate(found[job]) / _rate(found[baseline])
            made.append(
                {
                    "case": case.name,
                    "system": system,
                    "records_per_s": round(_rate(found[job])),
                    "peak_mb": round(found[job].peak_mb),
                    "ratio": round(ratio, 2),
                    "against": label(baseline),
                    "records": found[job].records,
                    "rounds": len(found[job].seconds),
                }
            )
    return made


def _rate(found: Measured) -> float:
    return found.records / median(found.seconds)


def table(group: str, results: Iterable[Row]) -> str:
    lines = [f"{group}", f"{'case':<29} {'system':<26} {'records/s':>10} {'peak MB':>8} {'ratio':>6}"]
    lines += [
        f"{r['case']:<29} {r['system']:<26} {r['records_per_s']:>10,} {r['peak_mb']:>8,} {r['ratio']:>5}x"
        for r in results
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
