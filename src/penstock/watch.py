"""What a run tells the outside, and how it is asked to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.checkpoint.home import Home
    from penstock.checkpoint.ledger import Entry
    from penstock.checkpoint.log import Positions
    from penstock.control.rate import Decision
    from penstock.errors import PenstockError
    from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class TableNews:
    """A reference table was read; or it could not be, and the one that was read before goes on."""

    name: str
    rows: int
    taken: float  # when the one that is used was read, in seconds since 1970
    error: PenstockError | None


class Watch:
    """Every method may be overridden; none may change the run."""

    def bounded(self, begins: Positions, ends: Positions) -> None:
        """Of a run that reads just this: called before `started`. What lies beyond is none of its business."""

    def starting(self, doing: str) -> None:
        """What a start does next, as a person would be told: it may take seconds. Called before `started`."""

    def started(self, pipeline: Pipeline, home: Home) -> None: ...
    def batch_done(self, entry: Entry, seconds: float) -> None: ...
    def decided(self, decision: Decision) -> None: ...
    def retrying(self, error: PenstockError, wait_s: float) -> None: ...
    def table_read(self, news: TableNews) -> None: ...
    def warn(self, text: str) -> None: ...

    def waiting(self, text: str) -> None:
        """What takes long, every few seconds while it does. From a thread of its own; also before `started`."""

    def ended(self, error: PenstockError | None, *, caught_up: bool = False) -> None: ...


CHECKING = "checking checkpoint, topics and sinks"
ENGINE = "starting the engine"
RESOLVING = "resolving rules, steps and sinks"
"""What a start does, in this order."""

Report = Callable[[str], None]
"""Who is told something in words: `Watch.warn`, `Watch.waiting`."""


def unheard(_text: str) -> None:
    """What is said before somebody listens."""


_EVERY_S = 10.0


@contextmanager
def telling(say: Report, what: str, doing: Callable[[], str]) -> Iterator[None]:
    """Around whatever may have to wait: says again and again how long it has been going on, and what it is at. Silent
    for what is done sooner."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(_EVERY_S):
            say(f"{what}, {time.monotonic() - began:.0f} s so far: {doing()}")

    thread = threading.Thread(target=tell, name="penstock-telling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class StopRequest:
    """Asked for from anywhere (a signal, another thread); obeyed at the next batch boundary."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def asked_within(self, seconds: float) -> bool:
        return self._asked.wait(seconds)
