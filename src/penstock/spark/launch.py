"""The engine's process, and what it is started with. Everybody on a machine can read a command line; so:

1. PySpark passes settings as words of a command line: only those that the spec writes out go that way.
2. Those with a reference go into a file that only this user can read. Java reads its options from such a file too.
3. The files are removed as soon as the engine answers, or has failed to start.
"""

from __future__ import annotations

import os
import shlex
import signal
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")


def launch(conf: Mapping[str, str], secret: Collection[str], log: Path) -> None:
    """Start the engine's process, unless this one has it already, in a process group of its own. `secret`: the settings
    that must not stand on a command line. `log`: takes what it prints, for as long as it lives.

    A signal to the group of the driver (`timeout`, a shell, a terminal that closes) is for the driver, which ends at a
    batch boundary. In the same group it would end the engine too, or the small commands that Hadoop runs while Spark
    writes its log. The engine still dies with the driver, however that dies: its standard input ends.
    """
    from pyspark import SparkConf, SparkContext, java_gateway

    start: Any = java_gateway.launch_gateway
    if SparkContext._gateway is None:
        with _kept_secret(conf, secret) as plain, log.open("ab") as printed:
            # Standard output too: what Java and its logger say of a log that cannot be written would be the pipeline's.
            to = {"process_group": 0, "stdout": printed, "stderr": printed}
            with _ended_if_cut_short():
                gateway = start(SparkConf().setAll(list(plain.items())), to)
        SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _ended_if_cut_short() -> Iterator[None]:
    """A process that is started and then not waited for would stay: the directory in which it wants to say that it is
    ready is removed, it fails on that, and never comes to look whether its standard input has ended."""
    known = {child.pid for child in psutil.Process().children()}
    try:
        yield
    except BaseException:
        for child in psutil.Process().children():
            if child.pid not in known and os.getpgid(child.pid) == child.pid:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        raise


@contextmanager
def _kept_secret(conf: Mapping[str, str], secret: Collection[str]) -> Iterator[dict[str, str]]:
    """What may stand on the command line. The rest is in files while this lasts."""
    plain = {name: value for name, value in conf.items() if name not in secret}
    if len(plain) == len(conf):
        yield plain
        return
    before = os.environ.get(_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="penstock-start-") as directory:  # and this is for no one else either
        hidden = {}
        for name in conf.keys() & set(secret):
            if name in JAVA_OPTIONS:
                options = _private(Path(directory, name), map(_word_of_java, shlex.split(conf[name])))
                plain[name] = f'"@{options}"'
            else:
                hidden[name] = conf[name]
        file = _private(Path(directory, "settings"), (f"{_escaped(n)}={_escaped(v)}" for n, v in hidden.items()))
        # The file would otherwise take the place of the defaults of this installation.
        words = f"--properties-file {shlex.quote(str(file))} --load-spark-defaults"
        os.environ[_ARGUMENTS] = f"{words} {before or 'pyspark-shell'}"
        try:
            yield plain
        finally:
            os.environ.pop(_ARGUMENTS)
            if before is not None:
                os.environ[_ARGUMENTS] = before


def _private(file: Path, lines: Iterator[str]) -> Path:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.writelines(f"{line}\n" for line in lines)
    return file


def _escaped(text: str) -> str:
    """For a file of Java's properties. Every character that means something there is written as its number."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-/") else _numbers(c) for c in text)


def _numbers(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _word_of_java(word: str) -> str:
    """For a file of Java's arguments."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'
