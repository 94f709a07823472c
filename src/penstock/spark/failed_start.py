"""Why the engine did not start: what it says itself is often only that its process ended. Its log knows the cause."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.errors import EngineFailed, first_line

_READ_BYTES = 1_000_000  # of the end of the log
# What the engine's process says on standard error before there is a log.
_BEFORE_ANY_LOG = re.compile(
    r'^(?:Exception in thread "main" |Error: (?!A JNI|Could not create)'
    r"|Error occurred during initialization of VM\n)(.+)",
    re.MULTILINE,
)
_CHAIN = re.compile(r"(?:^Caused by: .*\n(?:^\s.*\n?)*)+", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
_JAVA_SAYS = re.compile(r"^: (.*)", re.MULTILINE)
_CLASS = re.compile(r"^(?:[\w$]+\.)+[\w$]+: (?:\w+\(\.\.\) failed with error\(-?\d+\): )?")  # the latter is Netty's
_TOLD = re.compile(  # what went wrong; on YARN also what it waits for
    r"^\d{4}-\S+ (?:ERROR \S+|INFO org\.apache\.(?:hadoop\.ipc|spark\.deploy\.yarn)\.Client:) (.*)", re.MULTILINE
)
_STOPPED = "stopped SparkContext"  # the engine gave up meanwhile, and the log says why
_NO_HADOOP = "HADOOP_CONF_DIR"


def explained(error: BaseException, log: Path, since: int, master: str) -> EngineFailed:
    """`since`: bytes that the log had before the start."""
    said = said_since(log, since)
    if isinstance(error, TimeoutError):  # ours
        trouble = why("", said)
        cause = f"{error}{f': {trouble}' * bool(trouble)}"
    else:
        cause = why(str(error), said)
    return EngineFailed("Spark did not start", cause=cause, next_command=_advice(cause, master) or f"read {log}")


def said_since(log: Path, since: int) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(since if since <= end else 0, end - _READ_BYTES))  # it may have begun a new file
        return file.read().decode(errors="replace")


def why(error: str, log: str) -> str:
    """The error where it knows; else what the engine wrote down."""
    if _STOPPED not in error and (said := _chain(error) or _last(_JAVA_SAYS, error)):
        return said
    return _last(_BEFORE_ANY_LOG, log) or _chain(log) or _last(_TOLD, log) or first_line(error)


def _chain(text: str) -> str:
    """The last chain of causes: its first one, which names the server, and its last one, where that says more."""
    chains = _CHAIN.findall(text)
    causes = [_CLASS.sub("", cause.strip()) for cause in _CAUSE.findall(chains[-1])] if chains else []
    return ": ".join([causes[0], *(last for last in causes[-1:] if last not in causes[0])]) if causes else ""


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.findall(text)
    return _CLASS.sub("", found[-1].strip()) if found else ""


def _advice(cause: str, master: str) -> str | None:
    if _NO_HADOOP in cause:
        return (
            "export HADOOP_CONF_DIR=/etc/hadoop/conf, the directory with core-site.xml and yarn-site.xml of the "
            "cluster; then: penstock run FILE"
        )
    server = re.match(r"(?:spark|k8s)://(?:https?://)?([^/,:]+)(?::(\d+))?", master)
    if server:
        return f"nc -vz {server[1]} {server[2] or '443'}; or correct `spark.master`"
    return "yarn node -list" if master == "yarn" else None
