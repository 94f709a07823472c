from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import JavaMissing
from penstock.spark import java


def install(home: Path, version: str, *, release: bool = True, exit_status: int = 0) -> Path:
    """A Java as far as `find` can see: an executable that tells its version, and the file beside it."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\nexit {exit_status}\n")
    executable.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Neither JAVA_HOME nor a java on PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # /bin holds the shell the scripts need; a PATH of only our directory finds no other java.
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return tmp_path


def test_java_home_is_preferred_to_path(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "a", "17.0.15")))
    monkeypatch.setenv("PATH", str(install(nowhere / "b", "21.0.2") / "bin"))
    assert java.find() == java.Java(nowhere / "a", nowhere / "a" / "bin" / "java", 17)


def test_old_java_home_falls_through_to_an_accepted_java_on_path(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "a", "11.0.1")))
    monkeypatch.setenv("PATH", str(install(nowhere / "b", "21.0.2") / "bin"))
    assert java.find().major == 21


def test_a_link_on_path_leads_to_the_real_home(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = install(nowhere / "jvm", "17.0.15")
    (nowhere / "links").mkdir()
    (nowhere / "links" / "java").symlink_to(real / "bin" / "java")
    monkeypatch.setenv("PATH", str(nowhere / "links"))
    assert java.find().home == real


def test_without_a_release_file_the_version_is_asked_for(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "a", "21.0.2", release=False)))
    assert java.find().major == 21


@pytest.mark.parametrize(("version", "named"), [("1.8.0_402", "Java 8"), ("11.0.1", "Java 11"), ("25", "Java 25")])
def test_unsuitable_java_is_named_in_one_line(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, version: str, named: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(nowhere / "a", version)))
    with pytest.raises(JavaMissing) as raised:
        java.find()
    assert named in raised.value.what
    assert "\n" not in raised.value.what
    assert raised.value.next_command


def test_no_java_at_all_says_what_to_install(nowhere: Path) -> None:
    with pytest.raises(JavaMissing) as raised:
        java.find()
    assert "none was found" in raised.value.what
    assert raised.value.next_command


def test_java_home_that_points_nowhere_is_named(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "gone"))
    with pytest.raises(JavaMissing) as raised:
        java.find()
    assert "JAVA_HOME has no executable" in raised.value.what


def test_java_that_does_not_run_is_rejected(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = install(nowhere / "a", "", release=False, exit_status=1)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaMissing) as raised:
        java.find()
    assert "not a working Java" in raised.value.what


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID=debian\n", "apt-get install"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ("ID=alpine\n", "apk add"),
        ("ID=plan9\n", "JAVA_HOME"),
    ],
)
def test_install_hint_follows_the_distribution(tmp_path: Path, text: str, expected: str) -> None:
    release = tmp_path / "os-release"
    release.write_text(text)
    assert expected in java.install_hint(release)
