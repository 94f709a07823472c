"""What the engine is started with in real-time mode."""

from __future__ import annotations

import pytest

from penstock.lifecycle.realtime.run import suited
from penstock.spec.model import Pipeline


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


def pipeline(**spark: object) -> Pipeline:
    json = {"format": "json", "schema": {"fields": {"a": "int"}}}
    spec = {
        "name": "live",
        "kafka": {"bootstrap": "localhost:9092"},
        "source": {"topics": {"t": {"value": json}}},
        "sinks": {"out": {"from": "t", "kafka": {"topic": "o", "guarantee": "at-least-once"}}},
        "trigger": "real-time",
        "spark": spark,
    }
    return Pipeline.model_validate(spec)


def test_every_partition_has_a_task_on_a_local_master_unless_a_number_was_chosen() -> None:
    assert suited(pipeline(), 64).spark.master == "local[64]"
    assert suited(pipeline(master="local[3]"), 64).spark.master == "local[3]"
    assert suited(pipeline(master="spark://host:7077"), 64).spark.master == "spark://host:7077"


def test_processes_that_run_tasks_collect_with_short_pauses_unless_somebody_chose_otherwise() -> None:
    driver, executor = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
    conf = suited(pipeline(conf={driver: "-Da=b"}), 1).spark.conf
    assert "-XX:+UseG1GC -XX:MaxGCPauseMillis=" in str(conf[driver])
    assert str(conf[driver]).endswith(" -Da=b")
    assert "-XX:+UseG1GC" in str(conf[executor])
    conf = suited(pipeline(conf={executor: "-XX:+UseZGC"}), 1).spark.conf
    assert "G1" not in str(conf[executor])
    assert "G1" in str(conf[driver])


def test_java_compiles_the_large_methods_that_the_engine_makes() -> None:
    conf = suited(pipeline(conf={"spark.driver.extraJavaOptions": "-XX:+UseZGC"}), 1).spark.conf
    assert all(
        "-XX:-DontCompileHugeMethods" in str(conf[f"spark.{each}.extraJavaOptions"]) for each in ("driver", "executor")
    )
