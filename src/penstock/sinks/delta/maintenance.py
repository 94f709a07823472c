"""Upkeep of a Delta table on a schedule: small files are joined (optimize), files nobody refers to removed (vacuum).

It runs in a process of its own, started when a batch is done and something is due, and never two at once:

1. An append goes on beside it: joining files does not conflict with adding some.
2. A merge rewrites files itself, and whoever commits second loses. So before a merge the process is given `at_most` to
   come to an end, and is then killed. Delta's commits are atomic: what it had committed counts, the rest is files that
   a vacuum removes. The batch never loses, and never waits longer than that.
3. It ends with the pipeline, however that ends: it watches a pipe that only the pipeline holds open.

When something was done last is read from the table's own log, so a restart does not begin anew.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any, Literal

from penstock.errors import first_line

Task = Literal["optimize", "vacuum"]
_DONE: dict[str, Task] = {"OPTIMIZE": "optimize", "VACUUM END": "vacuum"}  # how the table's log calls them
_log = logging.getLogger("penstock.maintenance")


@dataclass(frozen=True)
class Schedule:
    optimize_every: timedelta | None = None
    vacuum_every: timedelta | None = None
    keep: timedelta = timedelta(days=7)  # files that a reader may still be reading, or a batch be writing
    target_size: int | None = None  # bytes of a joined file; None: what the table says, or 100 MB
    at_most: timedelta = timedelta(seconds=10)  # how long a batch may wait for it

    def due(self, now: float, last: Mapping[Task, float]) -> list[Task]:
        """What is to be done, by when it was done last (seconds since 1970)."""
        every: dict[Task, timedelta | None] = {"optimize": self.optimize_every, "vacuum": self.vacuum_every}
        return [task for task, after in every.items() if after and now - last.get(task, 0.0) >= after.total_seconds()]


@dataclass
class Maintenance:
    """Of one table. A sink calls `after_batch` when a batch is written, and before a merge `give_way`."""

    path: Path
    schedule: Schedule
    _last: dict[Task, float] | None = None
    _running: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def after_batch(self) -> None:
        """Start what is due; returns at once. What goes wrong here is no reason for the batch to fail."""
        self._collect()
        if self._running:
            return
        try:
            self._start_due()
        except Exception as error:
            _log.warning("upkeep of %s could not be started: %s", self.path, first_line(error))

    def _start_due(self) -> None:
        if self._last is None:
            self._last = last_done(self.path)
            atexit.register(self.give_way)
        now = time.time()
        tasks = self.schedule.due(now, self._last)
        if tasks:
            self._last.update(dict.fromkeys(tasks, now))
            self._running = _start(self.path, tasks, self.schedule)

    def give_way(self) -> None:
        """Returns when nothing runs any more: after `at_most` at the latest."""
        if self._running:
            try:
                self._running.wait(self.schedule.at_most.total_seconds())
            except subprocess.TimeoutExpired:
                self._running.kill()
                self._running.wait()
            self._collect()

    @property
    def running(self) -> bool:
        self._collect()
        return self._running is not None

    def _collect(self) -> None:
        """A failure of the upkeep is no failure of the pipeline; it is said, and tried again when it is due again."""
        process = self._running
        if process is None or process.poll() is None:
            return
        said = process.stderr.read().decode(errors="replace").strip() if process.stderr else ""
        if process.returncode == -signal.SIGKILL:
            _log.warning("upkeep of %s gave way to a batch; it goes on when it is due again", self.path)
        elif process.returncode:
            why = said.splitlines()[-1] if said else f"exit status {process.returncode}"
            _log.warning("upkeep of %s failed: %s", self.path, why)
        for pipe in (process.stdin, process.stderr):
            if pipe:
                pipe.close()
        self._running = None


def last_done(path: Path) -> dict[Task, float]:
    """By the table's log. What was never done counts from the oldest commit there is."""
    from deltalake import DeltaTable

    history = DeltaTable(str(path)).history()
    oldest = min((commit["timestamp"] for commit in history), default=0) / 1000
    found: dict[Task, float] = {"optimize": oldest, "vacuum": oldest}
    for commit in history:
        task = _DONE.get(str(commit.get("operation")))
        if task:
            found[task] = max(found[task], commit["timestamp"] / 1000)
    return found


def _start(path: Path, tasks: list[Task], schedule: Schedule) -> subprocess.Popen[bytes]:
    order = {
        "path": str(path),
        "tasks": tasks,
        # Never none: a batch that is being written is not in the log yet, and its files are only known by their age.
        "keep_hours": max(1, ceil(schedule.keep.total_seconds() / 3600)),
        "target_size": schedule.target_size,
        "commit_every_s": schedule.at_most.total_seconds() / 2,
    }
    return subprocess.Popen(
        [sys.executable, "-m", __name__, json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def run(order: dict[str, Any]) -> None:
    """The work, in the process that was started for it."""
    from deltalake import DeltaTable, PostCommitHookProperties

    # The pipeline's engine writes the checkpoints of the log and cleans it; two that do are one too many.
    only_commit = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    if "optimize" in order["tasks"]:
        DeltaTable(order["path"]).optimize.compact(
            target_size=order["target_size"],
            max_concurrent_tasks=1,
            # What is done by then is committed, and need not be done again when a batch ends the rest.
            min_commit_interval=timedelta(seconds=order["commit_every_s"]),
            post_commithook_properties=only_commit,
        )
    if "vacuum" in order["tasks"]:
        DeltaTable(order["path"]).vacuum(
            retention_hours=order["keep_hours"],
            dry_run=False,
            full=True,  # also what no commit ever named: the files of a write or an upkeep that died
            enforce_retention_duration=False,  # the spec has its own lower bound
            post_commithook_properties=only_commit,
        )


def _child() -> None:
    def end_with_the_pipeline() -> None:
        os.read(0, 1)  # nothing is ever written to it: it returns when the other end is closed
        os._exit(0)

    threading.Thread(target=end_with_the_pipeline, daemon=True).start()
    os.nice(10)  # a batch comes first
    try:
        run(json.loads(sys.argv[1]))
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(0)  # at once: the thread above is still waiting


if __name__ == "__main__":
    _child()
