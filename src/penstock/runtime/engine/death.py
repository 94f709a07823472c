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
_ENGINE_ADVICE = (
    f"give it more memory (`spark: {{conf: {{spark.driver.memory: 4g}}}}`; 1g unless it is set), or {_SMALLER}"
)
_WORKER_ADVICE = (
    f"give the machine more memory, or the pipeline fewer cores (`spark: {{master: 'local[1]'}}`), or {_SMALLER}"
)

_log: Path | None = None  # of the engine that this process has; None: it has none
_kills_before: int | None = None


def watched(log: Path) -> None:
    """Called when the engine is started: from here on kills by the kernel are counted."""
    global _log, _kills_before
    _log, _kills_before = log, _kills()


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
    return OutOfMemory(
        "the engine ran out of memory", cause=cause, next_command=f"{_ENGINE_ADVICE}; then: penstock run FILE"
    )


def worker_out_of_memory(cause: str) -> OutOfMemory:
    advice = f"{_WORKER_ADVICE}; then: penstock run FILE"
    return OutOfMemory("a Python worker ran out of memory", cause=cause, next_command=advice)


def of_worker(said: str, log: Path) -> PenstockError:
    """What to say where a Python worker ended without a word. `said`: by the engine."""
    if killed := _killed_by_kernel():
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
    return f"since the engine started the kernel killed {killed} for want of memory"


def _kills() -> int | None:
    """How many processes the kernel has killed for want of memory; None where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
