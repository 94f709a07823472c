"""A Spark cluster on this machine: a master and two workers, each a process of its own, with executors below them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyspark

from penstock.local import ports
from penstock.spark import java
from tests.processes import QUICK_JVM

_HOME = Path(pyspark.__file__).parent
_START_SECONDS = 60


class Standalone:
    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory, self.workers = directory, workers
        self.port = ports.pick(set())
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://{ports.HOST}:{self.port}"

    def up(self) -> None:
        self._start("master.Master", "--port", str(self.port))
        self._wait(lambda: ports.accepts(self.port))
        for number in range(self.workers):
            place = self.directory / f"worker-{number}"
            self._start("worker.Worker", self.master, "--cores", "1", "--memory", "1g", "--work-dir", str(place))

    def down(self) -> None:
        for process in reversed(self.processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                for member in psutil.Process(process.pid).children(recursive=True):
                    member.kill()
            process.kill()
            process.wait()

    def _start(self, what: str, *words: str) -> None:
        environment = {
            **os.environ,
            **QUICK_JVM,
            "JAVA_HOME": str(java.find().home),
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": ports.HOST,
        }
        command = [
            str(_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{what}",
            "--host",
            ports.HOST,
            "--webui-port",
            "0",
            *words,
        ]
        with (self.directory / f"{what}-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.directory)
            )

    def _wait(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not ready():
            assert all(process.poll() is None for process in self.processes), self.directory
            assert time.monotonic() < deadline, self.directory
            time.sleep(0.2)
