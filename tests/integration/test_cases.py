"""`penstock test`: cases run on the real engine, without a broker, a registry or a database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commands import document
from tests.processes import PENSTOCK, QUICK_JVM

from penstock.errors import SpecInvalid
from penstock.testing import case

CASES = Path(__file__).parent / "cases"  # under other names than `*.test.yaml`, or pytest would run them itself
EXAMPLES = Path(__file__).parents[2] / "examples"
SNAPSHOT = CASES / "wrong-80.txt"
FROM_OUTSIDE = ("KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL", "POSTGRES_URL")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A spec with tests that pass, and others that do not."""
    (tmp_path / "shop.yaml").write_text((CASES / "shop.yaml").read_text())
    for name in ("shop", "wrong"):
        (tmp_path / f"{name}.test.yaml").write_text((CASES / f"{name}-tests.yaml").read_text())
    return tmp_path


def done(*words: str, directory: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in FROM_OUTSIDE}
    return subprocess.run(
        words,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, **QUICK_JVM, **more},
        check=False,
    )


def beside_bytecode() -> set[Path]:
    """What is in the examples, but for what Python keeps of modules it has imported."""
    return {file for file in EXAMPLES.rglob("*") if "__pycache__" not in file.parts}


def test_tests_of_the_examples_pass_without_a_server_or_a_secret(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in `--json`; and nothing is left behind."""
    for name in FROM_OUTSIDE:
        monkeypatch.delenv(name, raising=False)
    before = beside_bytecode()
    found = document("test", EXAMPLES)
    assert (found["failed"], found["ok"]) == (0, True), found
    assert {Path(each["file"]).name for each in found["cases"]} >= {"payments.test.yaml", "spec.test.yaml"}
    assert found["passed"] == len(found["cases"]) >= 8
    assert beside_bytecode() == before


def test_rules_steps_conditions_records_and_views_of_a_case(spark: Any, shop: Path) -> None:
    results = list(case.run(shop / "shop.test.yaml"))
    assert {r.name for r in results if not r.passed} == set(), [r.text() for r in results]
    assert len(results) == 4


def test_case_gives_the_rows_of_tables_in_a_database_a_delta_table_and_a_topic(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "priced.yaml").write_text((CASES / "priced.yaml").read_text())
    (tmp_path / "priced.test.yaml").write_text((CASES / "priced-tests.yaml").read_text())
    results = list(case.run(tmp_path / "priced.yaml"))
    assert {r.name for r in results if not r.passed} == set(), [r.text() for r in results]
    assert len(results) == 3


def test_cases_that_are_wrong_fail_with_a_readable_difference_and_exit_1(shop: Path) -> None:
    """In a process of its own.

    After a change that is meant: PENSTOCK_SNAPSHOTS=write pytest tests/integration/test_cases.py
    """
    ran = done(PENSTOCK, "test", "wrong.test.yaml", directory=shop, COLUMNS="80")
    assert ran.returncode == 1, ran.stderr
    assert all(len(line) <= 80 for line in ran.stdout.split("\n"))
    if os.environ.get("PENSTOCK_SNAPSHOTS") == "write":
        SNAPSHOT.write_text(ran.stdout)
    assert ran.stdout == SNAPSHOT.read_text()


def test_column_that_a_sink_does_not_have_is_a_mistake_with_its_line(spark: Any, shop: Path) -> None:
    file = shop / "shop.test.yaml"
    file.write_text("cases:\n- name: a\n  given: {orders: []}\n  expect:\n    sinks:\n      lake: [{amont: 1}]\n")
    with pytest.raises(SpecInvalid) as raised:
        list(case.run(file))
    (mistake,) = raised.value.facts["mistakes"]  # type: ignore[misc]
    assert (mistake["line"], mistake["message"]) == (6, "sink 'lake' has no column 'amont'")
    assert mistake["hint"] == "did you mean 'amount'?; it has: id, amount, parts, at, _kafka, part, clock"


def test_pytest_runs_each_case_as_a_test_of_its_own(shop: Path) -> None:
    (shop / "broken.test.yaml").write_text("cases: []\n")
    (shop / "other.yaml").write_text("not: ours\n")
    pytest_ = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "penstock.testing.pytest_plugin",
        "--continue-on-collection-errors",
    )
    ran = done(*pytest_, "-k", "counted or missing or broken", directory=shop, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert ran.returncode == 1, ran.stdout
    assert "1 failed, 1 passed, 8 deselected, 1 error" in ran.stdout, ran.stdout
    assert "wrong.test.yaml:5: an amount is another one, a row is missing, a row is too many" in ran.stdout
    assert "- o-1  30.5" in ran.stdout
    assert "broken.test.yaml:1:8: cases: must not be empty" in ran.stdout
    assert "Traceback" not in ran.stdout
