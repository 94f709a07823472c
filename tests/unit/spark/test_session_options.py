"""What Java is started with: never two collectors, and what a spec says still counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark.session import java_options

LOG = Path("/logs/log4j2.properties")
DIES_OF_IT = "-XX:+ExitOnOutOfMemoryError"


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


def test_collector_for_throughput_unless_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "-Dlog4j2.configurationFile=file:///logs/log4j2.properties"
    assert java_options({}, LOG) == f"{log} -XX:+UseParallelGC {DIES_OF_IT}"
    for which in ("default", "extra"):
        assert "Parallel" not in java_options({f"spark.driver.{which}JavaOptions": "-Da=b -XX:+UseZGC"}, LOG)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
    assert "Parallel" not in java_options({}, LOG)


def test_default_options_of_the_spec_are_kept() -> None:
    assert java_options({"spark.driver.defaultJavaOptions": "-Da=b"}, LOG).endswith(
        f"-XX:+UseParallelGC {DIES_OF_IT} -Da=b"
    )
    assert java_options({"spark.driver.extraJavaOptions": "-XX:+UseNUMA"}, LOG).endswith(
        f"-XX:+UseParallelGC {DIES_OF_IT}"
    )
