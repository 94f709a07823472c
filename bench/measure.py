"""Running one system as a process of its own, and measuring it from outside."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

_SAMPLE_S = 0.25
_LIMIT_S = 900


@dataclass(frozen=True)
class Measured:
    seconds: float
    peak_mb: float


def measure(command: list[str], checkpoint: Path | None, log: Path, environment: dict[str, str]) -> Measured:
    """Run to the end. The time is from Spark's first offset log entry to its last commit, the same files for every
    system: process start and JVM start are left out, warming up is not. Without a checkpoint the last line of the log
    says it."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    peak, deadline = 0.0, time.monotonic() + _LIMIT_S
    while process.poll() is None:
        peak = max(peak, _memory(process.pid))
        if time.monotonic() > deadline:
            process.kill()
        time.sleep(_SAMPLE_S)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}; see {log}")
    if checkpoint is None:
        return Measured(json.loads(log.read_text().splitlines()[-1])["seconds"], peak / 2**20)
    commits = [f.stat().st_mtime for f in (checkpoint / "commits").iterdir() if f.name.isdigit()]
    return Measured(max(commits) - (checkpoint / "offsets" / "0").stat().st_mtime, peak / 2**20)


def _memory(pid: int) -> float:
    """Memory of a process and all below it, shared pages counted once (PSS)."""
    total = 0.0
    try:
        top = psutil.Process(pid)
        for process in [top, *top.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:
                continue  # it ended while we looked
    except psutil.Error:
        pass
    return total
