"""A worker as seen from outside: started, given orders, watched for its memory, ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from bench.order import Answer, Order, answered

_SAMPLE_S = 0.25
_LIMIT_S = 420  # one order; the slowest takes less than a minute on an idle machine
_END_S = 30
_ROOT = Path(__file__).parent.parent


class Worker:
    def __init__(self, directory: Path) -> None:
        """`directory` becomes its working directory: what Spark leaves lying about stays in there."""
        directory.mkdir(parents=True)
        self.log = directory / "log"
        self._busy = False
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "TZ": "UTC"}
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.worker"],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=directory,
                text=True,
            )

    def do(self, order: Order) -> tuple[Answer, float]:
        """The answer, and the most memory in use meanwhile, in MB. A worker that fails or hangs ends the whole run."""
        assert self._process.stdin is not None
        self._process.stdin.write(order.text() + "\n")
        self._process.stdin.flush()
        self._busy = True
        peak, deadline = 0.0, time.monotonic() + _LIMIT_S
        while (said := answered(order)) is None:
            peak = max(peak, memory(self._process.pid))
            if self._process.poll() is not None:
                raise SystemExit(f"{order.out}: the worker ended with {self._process.returncode}; see {self.log}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{order.out}: not done after {_LIMIT_S} s; see {self.log}")
            time.sleep(_SAMPLE_S)
        self._busy = False
        if said.error:
            raise SystemExit(f"{order.out}: {said.error}; see {self.log}")
        return said, peak / 2**20

    def close(self) -> None:
        """Without input it ends by itself; unless it is busy with an order that nobody waits for any more. What is left
        then, of it and its children, is killed."""
        tree = _tree(self._process.pid)
        if self._process.stdin:
            self._process.stdin.close()
        _, left = psutil.wait_procs(tree, timeout=0 if self._busy else _END_S)
        for process in left:
            process.kill()
        self._process.wait()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def memory(pid: int) -> float:
    """Memory of a process and all below it, shared pages counted once (PSS)."""
    total = 0.0
    for process in _tree(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue  # it ended while we looked
    return total
