"""What a worker is asked to do, as it travels to it; and the time a stream took, as Spark's own files tell it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ANSWER = "answer.json"


@dataclass(frozen=True)
class Order:
    """One job, once."""

    system: str
    work: str
    shape: str
    topic: str
    out: str  # a name that no other order has: of a topic, a table, a pipeline
    directory: str  # this order's own; the one above it is the worker's
    bootstrap: str
    registry: str
    postgres: str
    max_offsets: int

    @property
    def home(self) -> Path:
        return Path(self.directory)

    @property
    def lake(self) -> Path:
        return self.home / "lake"

    @property
    def warehouse(self) -> Path:
        """For all orders of a worker: Spark keeps one place per catalog."""
        return self.home.parent / "warehouse"

    @property
    def iceberg(self) -> Path:
        return self.warehouse / "bench" / self.table

    @property
    def checkpoint(self) -> Path:
        return self.home / "checkpoint" / "spark"

    @property
    def table(self) -> str:
        return self.out.replace("-", "_")

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Answer:
    """What the worker says. Streams say nothing: they are judged by what they left behind."""

    seconds: float | None = None
    rows: int | None = None
    bad: int | None = None
    error: str | None = None


def order_from(text: str) -> Order:
    return Order(**json.loads(text))


def answer(order: Order, said: Answer) -> None:
    """Whole or not at all: the other side waits for the file to appear."""
    new = order.home / f"{ANSWER}.new"
    new.write_text(json.dumps(asdict(said)))
    new.rename(order.home / ANSWER)


def answered(order: Order) -> Answer | None:
    file = order.home / ANSWER
    return Answer(**json.loads(file.read_text())) if file.exists() else None


def stream_seconds(checkpoint: Path) -> float:
    """From Spark's first offset log entry to its last commit, the same files for every system: the first batch's start
    to the last batch's end. What comes before, of a session or of a query, is left out."""
    commits = [f.stat().st_mtime for f in (checkpoint / "commits").iterdir() if f.name.isdigit()]
    return max(commits) - (checkpoint / "offsets" / "0").stat().st_mtime


def stream_read(checkpoint: Path) -> int:
    """Offsets read by the last committed batch, from the beginning of the topic."""
    last = max(int(f.name) for f in (checkpoint / "commits").iterdir() if f.name.isdigit())
    ends = json.loads((checkpoint / "offsets" / str(last)).read_text().splitlines()[-1])
    return sum(offset for partitions in ends.values() for offset in partitions.values())
