"""Named places where a crash test kills a process, off unless PENSTOCK_FAILPOINT says otherwise.

`PENSTOCK_FAILPOINT=after-sinks:2` kills Python driver and JVM with SIGKILL when batch 2 reaches that place: nothing is
flushed, closed or handed on. The places, in the order of a batch:

    before-sinks  during-sinks  after-sinks  after-dead-letters  after-ledger

and inside a task that writes to Kafka:

    before-init  after-init  mid-produce  after-offsets  during-commit  after-commit

There a third word names the victim: `mid-produce:2:worker` kills the Python worker itself, `:executor` also the JVM
that started it, `:driver` also both processes of the driver; `:pause` stops the worker with SIGSTOP. Each fires once,
if PENSTOCK_FAILPOINT_ONCE names a file: it is made by the one that fires.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import DataFrame

VARIABLE = "PENSTOCK_FAILPOINT"
ONCE = "PENSTOCK_FAILPOINT_ONCE"
DURING_COMMIT = "during-commit"
_LISTEN_S = 30.0


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


@dataclass(frozen=True)
class Crash:
    """A failpoint inside a task. Pickled to the workers, whose environment may be another one."""

    place: str
    victim: str
    driver: tuple[int, ...]
    once: str | None

    def reach(self, place: str) -> None:
        if place != self.place or not self._first():
            return
        if self.victim == "pause":
            if os.getsid(0) != os.getpid():  # of a worker that was paused before it is one already
                os.setsid()  # or the kernel would end it together with the driver
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        above = {"worker": [], "executor": [_jvm_above()], "driver": list(self.driver)}[self.victim]
        _kill([*above, os.getpid()])  # a worker that lives on could finish what it has been handed

    @property
    def settings(self) -> dict[str, str]:
        """What a client of Kafka has to be told for this place: its log says when a request was sent."""
        return {"debug": "protocol"} if self.place == DURING_COMMIT else {}

    def watch(self, producer: Producer, log: logging.Logger) -> None:
        """Before a commit: whoever dies during it dies when the request was sent, and never sees the answer."""
        if self.place != DURING_COMMIT:
            return
        log.addHandler(_OnceSent(self))
        log.setLevel(logging.DEBUG)
        threading.Thread(target=_heard, args=[producer], daemon=True).start()

    def _first(self) -> bool:
        if self.once is None:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class _OnceSent(logging.Handler):
    def __init__(self, crash: Crash) -> None:
        super().__init__()
        self._crash = crash

    def emit(self, line: logging.LogRecord) -> None:
        if "Sent EndTxnRequest" in line.getMessage():
            self._crash.reach(DURING_COMMIT)


def crash(batch: int, rows: DataFrame) -> Crash | None:
    """The armed failpoint inside the tasks of this batch, if there is one."""
    place, _, rest = os.environ.get(VARIABLE, "").partition(":")
    number, _, victim = rest.partition(":")
    if not victim or number != str(batch):
        return None
    return Crash(place, victim, tuple(_driver(rows)), os.environ.get(ONCE))


def _heard(producer: Producer) -> None:
    """A client hands its log lines on when it is asked for events, and a commit does not ask."""
    until = time.monotonic() + _LISTEN_S
    while time.monotonic() < until:
        producer.poll(0.001)


def _armed(place: str, batch: int) -> bool:
    return os.environ.get(VARIABLE) == f"{place}:{batch}"


def _driver(rows: DataFrame) -> list[int]:
    jvm: Any = rows.sparkSession._jvm
    return [int(jvm.java.lang.ProcessHandle.current().pid()), os.getpid()]


def _jvm_above() -> int:
    """The worker's parent is the daemon that forked it, and the daemon's parent the JVM that started it."""
    said = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(said.rsplit(")", 1)[1].split()[1])


def _kill(victims: list[int]) -> None:
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
