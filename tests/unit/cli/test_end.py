"""How a command ends: everything in order, and without the step in which native threads can abort the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading, time
from penstock.cli import main

class Torn:
    def __del__(self):
        print("torn down")

def beside():
    time.sleep(0.3)
    print("the thread beside it is done")

def command():
    print("said")
    threading.Thread(target=beside).start()
    {end}

torn = Torn()
atexit.register(lambda: print("tidied up"))
main.main = command
main.entry()
"""


@pytest.mark.parametrize(
    ("end", "status"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("return", 0), ("sys.exit('no status')", 1)]
)
def test_end_waits_for_threads_tidies_up_and_leaves_the_interpreter_whole(end: str, status: int) -> None:
    program = PROGRAM.format(end=end)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["said", "the thread beside it is done", "tidied up"], done.stderr
    assert done.returncode == status
