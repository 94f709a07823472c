"""How signals end `penstock run`.

While it starts: at once. Nothing was read yet, and whatever a start had begun the next one does again.
While it runs: at the end of the batch. The caller does that.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ENDS_WITHIN_S = 1.5  # to unwind; then the process ends whatever it waits for


class StoppedInStart(KeyboardInterrupt):
    """Raised in the main thread, wherever its start is. Code that handles errors lets it pass, as it does Ctrl-C."""


@contextmanager
def heeded(asked: Callable[[int], None], is_starting: Callable[[], bool]) -> Iterator[threading.Event]:
    """Signals that ask for an end ask for it, and do not end the process. Entered in the main thread. Yields whether
    one came during the start: whatever the start then fails with is its consequence.

    A client that waits for a server in native code keeps the main thread from its signals, for half a minute. So a
    thread hears of them too, and ends the process; the engine's process ends with it, and the lock is free. While
    PySpark starts the engine it takes Ctrl-C for itself, which only that thread hears then.
    """
    came_in_start = threading.Event()
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def come(number: int, _frame: FrameType | None) -> None:
        leave_closed(terminals)
        asked(number)

    heard, told = socket.socketpair()

    def end_stuck_start() -> None:
        with heard:
            while number := heard.recv(1):
                if number[0] in _ENDING and is_starting():
                    came_in_start.set()
                    time.sleep(_ENDS_WITHIN_S)
                    if is_starting():  # the main thread may have come to its batches meanwhile, and ends at one's end
                        os._exit(0)

    with told:
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        complained, sys.unraisablehook = sys.unraisablehook, _quiet_about_stops
        for number in _ENDING:
            if (
                number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            ):  # `nohup` outlives its terminal
                signal.signal(number, come)
        threading.Thread(target=end_stuck_start, name="penstock-signals", daemon=True).start()
        try:
            yield came_in_start
        finally:
            signal.set_wakeup_fd(before)
            sys.unraisablehook = complained


def _quiet_about_stops(lost: sys.UnraisableHookArgs) -> None:
    """A signal may come where nothing can be raised (in a callback of native code). The thread ends the start then."""
    if not issubclass(lost.exc_type, StoppedInStart):
        sys.__unraisablehook__(lost)


def leave_closed(terminals: Iterable[int]) -> None:
    """What is still to be said to a terminal that was closed goes nowhere: written to it, it would fail the run."""
    for descriptor in terminals:
        if not os.isatty(descriptor):
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), descriptor)
