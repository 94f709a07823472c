"""The product as a process that a test lets die."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import psutil

from penstock.checkpoint.ledger import Ledger
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
        self.command = [*program, "run", str(payments.file), "--until-caught-up", "--accept", "batch-too-large"]
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

    def finishes(self, failpoint: str = "", once: Path | None = None) -> str:
        """Also where something below the driver dies at a failpoint."""
        return self.ends_well(self.start(failpoint, once))

    def ends_well(self, process: subprocess.Popen[str]) -> str:
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
        while (paused := self._stopped_worker()) is None:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        return paused

    def _stopped_worker(self) -> int | None:
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() == psutil.STATUS_STOPPED:
                    return process.pid
            except psutil.Error:
                continue
        return None
