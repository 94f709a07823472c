"""How the engine, or a Python worker of it, died: for want of memory, or otherwise.

Java ends with a status of its own when it runs out of memory. Without that (`JAVA_OPTION`) any of its threads may die
of it: sometimes the batch fails, sometimes the engine hangs or no longer answers. A process that the kernel kills for
want of memory looks like any other that is killed; what tells is the kernel's count of them.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import EngineFailed, OutOfMemory, PenstockError, counted

JAVA_OPTION = "-XX:+ExitOnOutOfMemoryError"
_STATUS = 3  # of Java, with this option
_LAST_WORDS = "Terminating due to "
_ENDING_S = 5.0  # how long a process that no longer answers may take to end
_TAIL = 20_000  # bytes of a log in which last words are looked for
_SMALLER = "make the batch smaller: penstock split FILE (and `rate: {max_offsets: ...}` for those after it)"
_MORE_FOR_ENGINE = "give it more memory (`spark: {conf: {spark.driver.memory: 4g}}`; 1g unless it is set)"
_MORE_FOR_EXECUTOR = "give executors more memory (`spark: {conf: {spark.executor.memory: 4g}}`; 1g unless it is set)"
_MORE_FOR_WORKER = "give the machine more memory, or the pipeline fewer cores (`spark: {master: 'local[1]'}`)"
_MORE_FOR_WORKER_OF_EXECUTOR = (
    "give executors more memory beside Java's (`spark: {conf: {spark.executor.memoryOverhead: 2g}}`), or fewer cores "
    "(`spark.executor.cores`)"
)

_log: Path | None = None  # of the engine that this process has; None: it has none
_is_local = True  # its tasks run in it, and not in executors on a cluster
_kills_before: int | None = None


def watched(log: Path, *, is_local: bool) -> None:
    """Called when the engine is started: from here on kills by the kernel are counted."""
    global _log, _is_local, _kills_before
    _log, _is_local, _kills_before = log, is_local, _kills()


def of_engine() -> PenstockError | None:
    """What to say where the engine's process has ended; None where it is there, or was never started."""
    status = None if _log is None else _exit_status()
    if status is None:
        return None
    if status == _STATUS:
        return engine_out_of_memory(_last_words() or "Java ended with its status for that")
    killed = _killed_by_kernel() if status == -signal.SIGKILL else None
    if killed:
        return engine_out_of_memory(f"its process was killed, and {killed}")
    how = f"it was killed by signal {-status}" if status < 0 else f"it ended with status {status}"
    return EngineFailed(
        "the engine is gone: its process ended",
        cause=how,
        next_command=f"penstock run FILE; what the engine said last is in {_log}",
        facts={"died": "engine"},
    )


def engine_out_of_memory(cause: str) -> OutOfMemory:
    return _out_of_memory("the engine", cause, _MORE_FOR_ENGINE)


def task_out_of_memory(cause: str) -> OutOfMemory:
    """Of Java, wherever the tasks run."""
    return engine_out_of_memory(cause) if _is_local else _out_of_memory("an executor", cause, _MORE_FOR_EXECUTOR)


def worker_out_of_memory(cause: str) -> OutOfMemory:
    return _out_of_memory("a Python worker", cause, _MORE_FOR_WORKER if _is_local else _MORE_FOR_WORKER_OF_EXECUTOR)


def _out_of_memory(who: str, cause: str, more: str) -> OutOfMemory:
    return OutOfMemory(
        f"{who} ran out of memory", cause=cause, next_command=f"{more}, or {_SMALLER}; then: penstock run FILE"
    )


def of_worker(said: str, log: Path) -> PenstockError:
    """What to say where a Python worker ended without a word. `said`: by the engine."""
    if _is_local and (killed := _killed_by_kernel()):
        return worker_out_of_memory(f"its process was killed, and {killed}")
    return EngineFailed(
        "a Python worker of the engine died",
        cause=f"{said}: it was killed, or crashed",
        next_command=f"penstock run FILE; what the engine said last is in {log}",
        facts={"died": "worker"},
    )


def _exit_status() -> int | None:
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    if not _answers():
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_S)
    status: int | None = process.poll()
    return status


def _answers() -> bool:
    from pyspark import SparkContext

    try:
        engine: Any = SparkContext._jvm
        engine.java.lang.System.nanoTime()
    except Exception:  # whatever py4j says of it
        return False
    return True


def _last_words() -> str | None:
    assert _log is not None
    try:
        with _log.open("rb") as file:
            file.seek(max(0, _log.stat().st_size - _TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.removeprefix(_LAST_WORDS) for line in reversed(lines) if line.startswith(_LAST_WORDS)), None)


def _killed_by_kernel() -> str | None:
    now = _kills()
    if now is None or _kills_before is None or now == _kills_before:
        return None
    killed = counted(now - _kills_before, "process", "processes")
    return f"the kernel's OOM killer has ended {killed} since the engine started"


def _kills() -> int | None:
    """How many processes the kernel has killed for want of memory: of our control group, such as a container, where it
    says so, else of the machine. None where it does not say."""
    groups = Path("/proc/self/cgroup")
    with suppress(OSError):
        group = next((g[3:] for g in groups.read_text().splitlines() if g.startswith("0::")), "").strip("/")
        return _count_in(Path("/sys/fs/cgroup", group, "memory.events"))
    with suppress(OSError):
        return _count_in(Path("/proc/vmstat"))
    return None


def _count_in(file: Path) -> int | None:
    return next((int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("oom_kill ")), None)
