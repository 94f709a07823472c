"""Named places where a crash test kills the driver, off unless PENSTOCK_FAILPOINT says otherwise.

`PENSTOCK_FAILPOINT=after-sinks:2` kills Python driver and JVM with SIGKILL when batch 2 reaches that place: nothing is
flushed, closed or handed on. The places, in the order of a batch:

    before-sinks  during-sinks  after-sinks  after-dead-letters  after-ledger
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VARIABLE = "PENSTOCK_FAILPOINT"


def reach(place: str, batch: int, rows: DataFrame) -> None:
    if _armed(place, batch):
        _kill(_driver(rows))


def midway(place: str, batch: int, rows: DataFrame) -> DataFrame:
    """The same rows; when armed, the first task to have passed on some of them kills the driver."""
    if not _armed(place, batch):
        return rows
    victims = _driver(rows)

    def pass_on_then_kill(batches: Iterable[Any]) -> Iterator[Any]:
        for number, part in enumerate(batches):
            if number:
                _kill(victims)
            yield part

    return rows.mapInArrow(pass_on_then_kill, rows.schema)


def _armed(place: str, batch: int) -> bool:
    return os.environ.get(VARIABLE) == f"{place}:{batch}"


def _driver(rows: DataFrame) -> list[int]:
    jvm: Any = rows.sparkSession._jvm
    return [int(jvm.java.lang.ProcessHandle.current().pid()), os.getpid()]


def _kill(victims: list[int]) -> None:
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
