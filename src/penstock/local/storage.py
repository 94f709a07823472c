"""Kafka's one-time formatting of the data directories of new brokers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import ServerFailed
from penstock.local.layout import Broker, Layout
from penstock.local.process import Signals
from penstock.spark import java


def format_new(
    directory: Path, layout: Layout, brokers: Sequence[Broker], jar_paths: Sequence[Path], signals: Signals
) -> None:
    """Format what is not formatted yet, several brokers side by side. Called by `Cluster` before each launch.

    The marker is written last, so a directory left by a formatting that died is known, and made anew: nothing
    can be in it, because no broker starts before the marker exists.
    """
    running: list[tuple[Broker, subprocess.Popen[str]]] = []
    try:
        for broker in brokers:
            if _marker(directory, broker).exists():
                continue
            shutil.rmtree(directory / broker.name / "data", ignore_errors=True)
            running.append((broker, _formatting(directory, layout, broker, jar_paths)))
        for broker, process in running:
            output = _wait(process, signals)
            if process.returncode != 0:
                raise ServerFailed(f"the storage of {broker.name} could not be formatted", cause=output)
            _marker(directory, broker).write_text("", encoding="utf-8")
    finally:
        for _, process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def _marker(directory: Path, broker: Broker) -> Path:
    return directory / broker.name / "formatted"


def _formatting(directory: Path, layout: Layout, broker: Broker, jar_paths: Sequence[Path]) -> subprocess.Popen[str]:
    command = [str(java.find().executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"]
    command += [f"-Dpenstock.log={directory / 'logs' / f'{broker.name}.log'}"]
    command += ["-cp", os.pathsep.join(map(str, jar_paths)), "kafka.tools.StorageTool", "format"]
    command += ["--cluster-id", layout.cluster_id]
    command += ["--config", str(directory / broker.name / "server.properties")]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[str], signals: Signals) -> str:
    while True:
        signals.check()
        try:
            return process.communicate(timeout=0.2)[0].strip()
        except subprocess.TimeoutExpired:
            continue
