"""How well doctor judges: what scenarios brought about against what it named, kept in build/doctor.jsonl.

`python -m tests.doctor_score` prints precision and recall per cause.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_FILE = Path(__file__).parents[1] / "build" / "doctor.jsonl"


def named(brought_about: Iterable[str], found: Iterable[str]) -> None:
    """Keep the result of a scenario, then hold doctor to it: these causes, and no other."""
    expected, got = list(brought_about), list(found)
    _FILE.parent.mkdir(exist_ok=True)
    with _FILE.open("a") as file:
        file.write(json.dumps([expected, got]) + "\n")
    assert got == expected


def table(file: Path = _FILE) -> str:
    expected, right, wrong = Counter[str](), Counter[str](), Counter[str]()
    scenarios = [json.loads(line) for line in file.read_text().splitlines()]
    for brought_about, found in scenarios:
        expected.update(brought_about)
        right.update(set(brought_about) & set(found))
        wrong.update(set(found) - set(brought_about))
    rows = [["cause", "brought about", "named", "named wrongly", "precision", "recall"], ["---"] * 6]
    for cause in sorted(expected | wrong):
        rows.append([f"`{cause}`", *_line(expected[cause], right[cause], wrong[cause])])
    rows.append([f"all, in {len(scenarios)} scenarios", *_line(expected.total(), right.total(), wrong.total())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _line(expected: int, right: int, wrong: int) -> list[str]:
    precision = f"{right / (right + wrong):.2f}" if right + wrong else "-"
    recall = f"{right / expected:.2f}" if expected else "-"
    return [str(expected), str(right), str(wrong), precision, recall]


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
