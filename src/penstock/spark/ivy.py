"""Downloading with the Apache Ivy inside pyspark. No repository address is written here: Ivy has its own.

Ivy runs as a separate process with settings of its own, so nothing in ~/.ivy2 is read or written.
"""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from penstock.errors import JarsUnavailable
from penstock.spark import java

# Without poms a pinned set takes seconds (with them a minute), and nothing is resolved behind our back.
# The time-outs make an unreachable network an error instead of a wait without end.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={directory}
          artifactPattern="[organisation]/[artifact]-[revision](-[classifier]).[ext]"/>
  <timeout-constraints>
    <timeout-constraint name="patience" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" timeoutConstraint="patience"/>
  </resolvers>
</ivysettings>
"""
# `conflict manager="all"`: two groups may pin two versions of one artifact, and both are wanted.
_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
    <conflict manager="all"/>
  </dependencies>
</ivy-module>
"""
_SUCCESSFUL = re.compile(r"\[SUCCESSFUL ?\] (\S+)#(\S+);(\S+)!")
_UNRESOLVED = re.compile(r":: (\S+)#([^;\s]+);([^:\s!]+): (.+)")
_FAILED = re.compile(r"\[FAILED *\] (\S+)#([^;\s]+);([^!\s]+)!\S+:? *(.*)")
_UNREACHABLE = re.compile(r"Server access error at url \S+ \((.+)\)|(Host \S+ not found)")


class Artifact(NamedTuple):
    org: str
    name: str
    version: str
    classifier: str | None
    ext: str


def download(
    artifacts: Sequence[Artifact], directory: Path, on_progress: Callable[[str], None] | None
) -> dict[tuple[str, str, str], str]:
    """Download into `directory`/org/name-version[-classifier].ext, and say which ones failed and why.

    Called by `jars` only, with an empty directory that is thrown away afterwards. Nothing in it is verified.
    """
    settings, module = directory / "settings.xml", directory / "ivy.xml"
    settings.write_text(_SETTINGS.format(directory=quoteattr(str(directory))), encoding="utf-8")
    module.write_text(_MODULE.format(dependencies="\n".join(map(_dependency, artifacts))), encoding="utf-8")
    command: list[str | Path] = [
        java.find().executable,
        "-jar",
        ivy_jar(),
        "-settings",
        settings,
        "-ivy",
        module,
    ]
    reasons: dict[tuple[str, str, str], str] = {}
    unreachable = None
    process: subprocess.Popen[str] | None = None
    try:
        with _signals_wait():
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        assert process.stdout is not None
        for line in process.stdout:
            if done := _SUCCESSFUL.search(line):
                if on_progress:
                    on_progress(f"fetched {done[2]} {done[3]}")
            elif bad := _FAILED.search(line) or _UNRESOLVED.search(line):
                reasons[bad[1], bad[2], bad[3]] = bad[4].strip() or "download failed"
            elif match := _UNREACHABLE.search(line):
                unreachable = match[1] or match[2]
        process.wait()
    finally:
        # Ctrl-C or SIGTERM turned into an exception: no download goes on behind the caller's back.
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        if process is not None and process.stdout:
            process.stdout.close()
    if unreachable:
        reasons = {key: f"{why} (repository unreachable: {unreachable})" for key, why in reasons.items()}
    return reasons


@contextmanager
def _signals_wait() -> Iterator[None]:
    """A signal that became an exception while a process is started would leave it running, known to nobody."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ivy_jar() -> Path:
    """Ivy's jar inside pyspark, found without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted(Path(location).glob("jars/ivy-*.jar")):
            return jar
    raise JarsUnavailable(
        "Ivy, which fetches jars, was not found inside pyspark",
        cause="pyspark is not installed, or is not the full wheel",
        next_command="make setup",
    )


def _dependency(artifact: Artifact) -> str:
    classifier = f" m:classifier={quoteattr(artifact.classifier)}" if artifact.classifier else ""
    ext = quoteattr(artifact.ext)
    return (
        f"    <dependency org={quoteattr(artifact.org)} name={quoteattr(artifact.name)} "
        f'rev={quoteattr(artifact.version)} transitive="false" conf="default->default">'
        f"<artifact name={quoteattr(artifact.name)} type={ext} ext={ext}{classifier}/></dependency>"
    )
