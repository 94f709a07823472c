"""What crash tests counted, per sink: `make chaos` keeps it in build/chaos.jsonl and ends with it as a table."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from penstock.testing.acknowledged import Acknowledged, Place, places
from tests.crash.driver import ROOT, ROUNDS, Driver

_FILE = ROOT / "build" / "chaos.jsonl"


@dataclass(frozen=True)
class Score:
    sink: str
    killed: str  # what
    kills: int
    restarts: int
    records: int
    lost: int
    repeated: int

    def keep(self) -> None:
        if ROUNDS > 1:  # the short form says nothing worth keeping
            _FILE.parent.mkdir(exist_ok=True)
            with _FILE.open("a") as file:
                file.write(json.dumps(asdict(self)) + "\n")


def keep_score(
    sink: str, driver: Driver, sent: list[Acknowledged], found: Counter[Place], killed: str = "driver"
) -> None:
    """`found`: the records that a reader sees, by where they came from."""
    expected = Counter(place for part in sent for place in places(part.kept()))
    lost, repeated = expected - found, found - expected
    Score(sink, killed, driver.kills, driver.starts - 1, expected.total(), lost.total(), repeated.total()).keep()


def table(file: Path = _FILE) -> str:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for line in file.read_text().splitlines():
        sink, killed, *numbers = json.loads(line).values()
        sums[sink, killed] = [a + b for a, b in zip(sums[sink, killed], numbers, strict=True)]
    rows = [[field.name for field in fields(Score)], ["---"] * 7]
    rows += [[*of, *(f"{number:,}" for number in numbers)] for of, numbers in sorted(sums.items())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
