"""Clusters that are not there: the error says why, nothing is left behind, and no start waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.payments import Payments

STARTS = """
from pathlib import Path
from penstock.errors import EngineFailed
from penstock import watch
from penstock.spark import session
from penstock.spec.load import load

watch._EVERY_S, session._ANSWERS_WITHIN_S = 2.0, 5.0
try:
    session.start(load(Path({spec!r})), Path({logs!r}), waiting=lambda said: print(said, flush=True))
except EngineFailed as error:
    print(error.cause, error.next_command, sep="\\n")
"""


def test_plan_says_why_a_cluster_cannot_be_reached_and_leaves_nothing_behind(
    payments: Payments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    payments.spec["spark"] = {"master": "yarn"}
    told = payments.cli("plan", str(payments.file), "--json", expect=5, TMPDIR=str(scratch))
    [problem] = json.loads(told.stdout)["problems"]
    assert "HADOOP_CONF_DIR or YARN_CONF_DIR must be set" in problem["cause"]
    assert problem["next"].startswith("export HADOOP_CONF_DIR=")
    assert list(scratch.iterdir()) == []


def test_start_that_a_cluster_does_not_answer_is_told_and_has_an_end(payments: Payments, tmp_path: Path) -> None:
    payments.spec["spark"] = {"master": "spark://127.0.0.1:1"}  # by itself it gives up after a minute
    script = STARTS.format(spec=str(payments.file), logs=str(tmp_path / "logs"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    *waited, cause, advice = done.stdout.splitlines()
    assert waited[-1].startswith("starting the engine, ")
    assert "waiting for spark://127.0.0.1:1 (Failed to connect to /127.0.0.1:1: Connection refused" in waited[-1]
    assert cause.startswith("spark://127.0.0.1:1 did not let the engine start within 5 s")
    assert "Failed to connect to /127.0.0.1:1" in cause
    assert advice.startswith("nc -vz 127.0.0.1 1")
    assert done.stderr == ""
