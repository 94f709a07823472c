"""A run whose terminal is closed ends in order, and has nobody left to tell; under `nohup` it goes on."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.signals import leave_closed


def test_what_is_said_to_a_closed_terminal_goes_nowhere_and_to_an_open_one_still_arrives() -> None:
    ours, theirs = pty.openpty()
    leave_closed([theirs])
    os.write(theirs, b"still there")
    assert os.read(ours, 100) == b"still there"
    os.close(ours)
    with pytest.raises(OSError, match="Input/output"):
        os.write(theirs, b"too late")
    leave_closed([theirs])
    os.write(theirs, b"too late")
    assert Path(f"/proc/self/fd/{theirs}").readlink() == Path(os.devnull)
    os.close(theirs)


@pytest.mark.parametrize(("before", "heard"), [("SIG_DFL", "1 15 2"), ("SIG_IGN", "15 2")], ids=["as ever", "nohup"])
def test_closed_terminal_asks_for_an_end_as_other_signals_do_unless_it_is_to_be_ignored(
    before: str, heard: str
) -> None:
    program = f"""
import os, signal
from penstock.cli.signals import heeded
signal.signal(signal.SIGHUP, signal.{before})
with heeded(lambda number: print(number, end=" ", flush=True), lambda: False):
    for number in (1, 15, 2):
        os.kill(os.getpid(), number)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == heard.split()
