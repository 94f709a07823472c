"""What happens to a task while it hands rows to a sink. Runs in the Python workers, before the sink sees a row."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.testing.subject import PARTITIONS

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import DataFrame


class Mishap(Protocol):
    def halfway(self) -> None:
        """The last task has passed on half of its rows; the other tasks may be done."""

    def at_the_end(self) -> None:
        """It has passed on all of them."""


class TaskLost(Exception):
    """Raised on purpose."""


@dataclass(frozen=True)
class Fails:
    attempts: int | None = None  # the task's first ones; None: all of them

    def halfway(self) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        if self.attempts is None or (context is not None and context.attemptNumber() < self.attempts):
            raise TaskLost("on purpose, by the conformance suite")

    def at_the_end(self) -> None: ...


@dataclass(frozen=True)
class Waits:
    """So that whoever looks or writes at the same time has the time to do it."""

    seconds: float

    def halfway(self) -> None:
        time.sleep(self.seconds)

    def at_the_end(self) -> None: ...


@dataclass(frozen=True)
class Tells:
    """Makes a file when its place is reached, for the process that will kill this one, and stays there: halfway for
    good, at the end until there is a file `go`."""

    file: Path
    go: Path
    halfway_only: bool

    def halfway(self) -> None:
        if self.halfway_only:
            self.file.touch()
            time.sleep(600)

    def at_the_end(self) -> None:
        self.file.touch()
        while not self.go.exists():
            time.sleep(0.01)


@dataclass(frozen=True)
class Passing:
    mishap: Mishap | None
    read: Accumulator[int]

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        last = context is not None and context.partitionId() == PARTITIONS - 1
        struck = False
        for batch in batches:
            self.read.add(batch.num_rows)
            if last and self.mishap is not None and not struck:
                struck, half = True, batch.num_rows // 2
                yield batch.slice(0, half)
                self.mishap.halfway()
                yield batch.slice(half)
            else:
                yield batch
        if last and self.mishap is not None:
            self.mishap.at_the_end()


def passed_on(rows: DataFrame, mishap: Mishap | None, read: Accumulator[int]) -> DataFrame:
    """The same rows, counted in `read` by the workers as they are read."""
    return rows.mapInArrow(Passing(mishap, read), rows.schema)
