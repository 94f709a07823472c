"""A process that writes batches and is killed with SIGKILL while it does: engine, driver and workers at once.

    python -m penstock.testing.doomed FILE

It is a session like the caller's, in a JVM of its own, so it takes seconds to start. Several sinks can be written to by
one such process, each in a thread of its own.
"""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

from penstock.testing.mishap import Tells, passed_on
from penstock.testing.portion import Portion
from penstock.testing.subject import Subject
from penstock.testing.trial import Broken, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Moment = Literal["halfway", "near the end"]
MOMENTS: tuple[Moment, ...] = ("halfway", "near the end")
_START_S = 180
_COMMIT_S = 0.6  # about as long as a commit takes: the kill falls into it, before it or after it
# Of the caller's session: what belongs to its own process.
_OWN = ("spark.app.", "spark.driver.port", "spark.executor.id", "spark.master", "spark.submit.", "spark.repl.")


@dataclass(frozen=True)
class Doomed:
    """A batch that is written by a process that dies."""

    subject: Subject
    pipeline: str
    query: str
    written: Portion  # the batch before it, which is in the ledger
    portion: Portion
    moment: Moment

    def write(self, spark: SparkSession, mishap: Tells) -> None:
        trial = Trial(self.subject, spark, self.pipeline, self.query)
        sink = trial.start(self.portion, written=self.written)
        rows = passed_on(self.portion.frame(spark), mishap, spark.sparkContext.accumulator(0))
        sink.write(trial.batch(self.portion), rows, replay=True)


@dataclass(frozen=True)
class _Order:
    """What the process is told."""

    settings: dict[str, str]
    every: list[tuple[Doomed, Tells]]


def kill(every: Sequence[Doomed], spark: SparkSession) -> None:
    """Write them all in one process, and kill it: when each of them waits at its moment, halfway through its rows or at
    their end, and those at the end were let go a random while ago."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        go = directory / "go"
        files = [directory / f"reached-{i}" for i in range(len(every))]
        told = [Tells(file, go, each.moment == "halfway") for file, each in zip(files, every, strict=True)]
        order = directory / "order"
        # Every batch holds a slot of the engine while it waits.
        settings = {**_settings(spark), "spark.master": f"local[{len(every) + 2}]"}
        order.write_bytes(pickle.dumps(_Order(settings, list(zip(every, told, strict=True)))))
        with (directory / "said").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(order)],
                stdout=said,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    # A JVM that lives for seconds spends most of them compiling.
                    "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -XX:TieredStopAtLevel=1".strip(),
                },
            )
        try:
            _await(process, files, directory / "said")
            go.touch()
            if any(each.moment == "near the end" for each in every):
                time.sleep(random.uniform(0, _COMMIT_S))
        finally:
            _kill(process)


def _await(process: subprocess.Popen[bytes], files: list[Path], said: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not all(file.exists() for file in files):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Broken(
                "a process of its own can write to the place, after `prepare` and `suits`",
                f"exit status {process.poll()}: {said.read_text(errors='replace')[-2000:]}",
            )
        time.sleep(0.02)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """All of it: a worker that lives on could finish what it has been handed."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait(60)


def _settings(spark: SparkSession) -> dict[str, str]:
    return {name: value for name, value in spark.sparkContext.getConf().getAll() if not name.startswith(_OWN)}


def main(file: str) -> None:
    from pyspark.sql import SparkSession

    order: _Order = pickle.loads(Path(file).read_bytes())
    builder = SparkSession.builder.appName("doomed")
    for name, value in order.settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def write(doomed: Doomed, mishap: Tells) -> None:
        try:
            session = spark.newSession()
            session.createDataFrame([], "nothing int")  # makes it the session of this thread
            doomed.write(session, mishap)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=write, args=pair) for pair in order.every]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(_START_S)  # it has written everything; it is killed all the same


if __name__ == "__main__":
    main(sys.argv[1])
