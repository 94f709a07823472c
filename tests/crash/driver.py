"""The product as a process that a test lets die."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock import failpoint as failpoints
from penstock.checkpoint.ledger import Ledger
from penstock.errors import BatchTooLarge, EngineFailed
from tests.payments import PENSTOCK, Payments
from tests.processes import QUICK_JVM

ROUNDS = int(os.environ.get("PENSTOCK_CHAOS_ROUNDS", "1"))
ROOT = Path(__file__).parent.parent.parent
MARK = "PENSTOCK_TEST_MARK"


class Driver:
    """`penstock run FILE --until-caught-up` as a process that a test lets die."""

    def __init__(self, payments: Payments, program: tuple[str, ...] = (PENSTOCK,)) -> None:
        self.payments = payments
        # Accepted: drivers are killed again and again at the same batch, and it is not the batch they die of.
        self.command = [*program, "run", str(payments.file), "--until-caught-up", "--accept", BatchTooLarge.code]
        self.mark = uuid.uuid4().hex
        self.starts = self.kills = 0

    def start(self, failpoint: str = "", once: Path | None = None) -> subprocess.Popen[str]:
        """With `once` the failpoint fires one time, whatever is tried again; the file then exists."""
        self.starts += 1
        environment = {
            **os.environ,
            **QUICK_JVM,
            MARK: self.mark,
            "PENSTOCK_FAILPOINT": failpoint,
            **({"PENSTOCK_FAILPOINT_ONCE": str(once)} if once else {}),
            "PYTHONPATH": str(ROOT),
        }
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
        )

    def dies_at(self, failpoint: str) -> None:
        process = self.start(failpoint)
        said, _ = process.communicate(timeout=180)
        assert process.returncode == -signal.SIGKILL, (failpoint, process.returncode, said)
        self.kills += 1
        self.nothing_is_left()

    def dies_at_any_moment(self, moment: random.Random, within_s: float) -> bool:
        """Up to its first batch nothing can be lost; from there on any moment may be the wrong one. False: it had ended
        before."""
        process, killed = self.start(), False
        try:
            self.waits_for_work(process)
            time.sleep(moment.uniform(0, within_s))
            killed = process.poll() is None
        finally:
            self.kill(process)
            self.kills -= not killed
            process.communicate()
        self.nothing_is_left()
        return killed

    def taken_over(self) -> None:
        """What is left, by a run in this process: whoever died left nothing but what is on disk and in Kafka, and here
        an engine is running already (the fixture `spark`)."""
        self.starts += 1
        self.payments.run(accept=[BatchTooLarge.code])

    def finishes(self, failpoint: str = "", once: Path | None = None) -> str:
        """Also where something below the driver dies at a failpoint."""
        process = self.start(failpoint, once)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
        self.nothing_is_left()
        return said

    def nothing_is_left(self) -> None:
        """Python workers and JVM notice that their driver is gone, and end by themselves."""
        deadline = time.monotonic() + 30
        while left := [p for p in psutil.process_iter() if self._is_ours(p)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.2)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def waits_for_work(self, process: subprocess.Popen[str]) -> None:
        """Until this driver has written a ledger entry of its own; before that it may still be starting."""
        deadline, ledger = time.monotonic() + 120, Ledger(self.payments.home / "ledger")
        before = [entry.time for entry in ledger.entries()]
        while [entry.time for entry in ledger.entries()] == before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def kill(self, process: subprocess.Popen[str], spare: frozenset[int] = frozenset()) -> None:
        """The driver and everything below it, but for `spare`."""
        self.kills += 1
        try:
            family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        except psutil.NoSuchProcess:
            return
        for member in family:
            if member.pid in spare:
                continue
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue

    def paused_worker(self, process: subprocess.Popen[str]) -> int:
        """The worker that a failpoint pauses, once it does."""
        deadline = time.monotonic() + 120
        while not (paused := [each.pid for each in psutil.process_iter() if _stopped(each) and self._is_ours(each)]):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        return paused[0]


class Here(Driver):
    """A driver in this process, where an engine is running already (the fixture `spark`): it ends by an exception where
    the other one is killed. For tests in which something else than the driver dies, or in which it has to die only so
    that the judge has something to find."""

    def dies_at(self, failpoint: str) -> None:
        reached: list[str] = []

        def reach(place: str, batch: int, _rows: Any) -> None:
            if f"{place}:{batch}" == failpoint:
                reached.append(place)
                raise RuntimeError("as if it was killed")

        self.starts += 1
        with pytest.MonkeyPatch.context() as patched, pytest.raises(EngineFailed):
            patched.setattr(failpoints, "reach", reach)
            self.payments.run()
        assert reached, failpoint
        self.kills += 1

    def finishes(self, failpoint: str = "", once: Path | None = None) -> str:
        assert not failpoint
        self.taken_over()
        return ""

    @contextmanager
    def pauses_at(self, failpoint: str, once: Path) -> Iterator[int]:
        """The worker that a failpoint pauses. After the block it goes on, and the run must end well."""
        self.starts += 1
        with pytest.MonkeyPatch.context() as environment, ThreadPoolExecutor(1) as beside:
            environment.setenv(failpoints.VARIABLE, f"{failpoint}:pause")
            environment.setenv(failpoints.ONCE, str(once))
            run = beside.submit(self.payments.run)
            paused = _stopped_below(run)
            try:
                yield paused
            finally:
                with suppress(ProcessLookupError):
                    os.kill(paused, signal.SIGCONT)
            run.result(300)


def _stopped_below(run: Future[None]) -> int:
    deadline = time.monotonic() + 120
    while not (paused := [each.pid for each in psutil.Process().children(recursive=True) if _stopped(each)]):
        assert time.monotonic() < deadline
        assert not run.done(), run.exception()
        time.sleep(0.1)
    return paused[0]


def _stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False
