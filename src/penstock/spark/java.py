"""Which Java runs Spark, Ivy and the local servers: JAVA_HOME first, then PATH; 17 or 21."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import JavaMissing

ACCEPTED = (17, 21)

# What to type, by the ID (or ID_LIKE) of /etc/os-release. The newest releases have only 21.
_INSTALL = {
    "debian": "apt-get install openjdk-17-jre-headless (or openjdk-21-jre-headless)",
    "ubuntu": "apt-get install openjdk-21-jre-headless",
    "fedora": "dnf install java-21-openjdk-headless",
    "rhel": "dnf install java-21-openjdk-headless",
    "alpine": "apk add openjdk21-jre-headless",
    "arch": "pacman -S jre21-openjdk-headless",
    "suse": "zypper install java-21-openjdk-headless",
}
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)


@dataclass(frozen=True)
class Java:
    home: Path
    executable: Path
    major: int


def find() -> Java:
    """The first accepted Java. Called before any JVM; starts one itself only when a version is unknown."""
    rejected: list[str] = []
    for origin, executable in _candidates():
        if not (executable.is_file() and os.access(executable, os.X_OK)):
            rejected.append(f"{origin} has no executable {executable}")
            continue
        resolved = executable.resolve()
        home = resolved.parent.parent
        major = _major(home, executable)
        if major in ACCEPTED:
            # A wrapper script (jenv, macOS's /usr/bin/java) is not inside the home it leads to: keep it.
            inside = (home / "release").is_file()
            return Java(home, resolved if inside else executable, major)
        rejected.append(f"{origin} is {f'Java {major}' if major else 'not a working Java'} ({executable})")
    raise JavaMissing(
        "Java 17 or 21 is needed, and " + ("none was found" if not rejected else "; ".join(rejected)),
        cause="looked at JAVA_HOME, then PATH",
        next_command=install_hint(),
        facts={"accepted": list(ACCEPTED)},
    )


def install_hint(os_release: Path = Path("/etc/os-release")) -> str:
    """The command that installs a suitable Java on this distribution."""
    try:
        text = os_release.read_text(encoding="utf-8")
    except OSError:
        text = ""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    for name in names:
        if name in _INSTALL:
            return _INSTALL[name]
    return "install a Java 17 or 21 runtime, or set JAVA_HOME to one"


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("java on PATH", Path(on_path)))
    return found


def _major(home: Path, executable: Path) -> int | None:
    """The major version: from the `release` file beside the JVM (no process), else from `java -version`."""
    try:
        match = _RELEASE.search((home / "release").read_text(encoding="utf-8"))
    except OSError:
        match = None
    if match is None:
        try:
            done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return None
    # Before 9 the major version was the second number: 1.8.0.
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])
