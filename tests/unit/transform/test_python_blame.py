"""Whose fault an exception in a worker is: a record's, where a function of a Python step raised it."""

from __future__ import annotations

import pytest

from penstock.transform import python, python_module

WORKER = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/pyspark.zip/pyspark/worker.py", line 3410, in main
    process()
  File "{file}", line 12, in risk
    return rates[account]
           ~~~~~^^^^^^^^^
{raised}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:664)
"""


@pytest.fixture(autouse=True)
def _steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_module, "files", {"steps.py", "worker.py", "jobs/risk.py"})


def said(raised: str = "KeyError: 'a-1'", file: str = "/tmp/spark/userFiles-1/steps.py") -> str | None:
    return python.blame(WORKER.format(raised=raised, file=file))


def test_exception_of_a_step_is_said_in_one_line_with_its_place() -> None:
    assert said() == "KeyError: 'a-1' (steps.py:12, in risk)"
    assert (
        said("decimal.DivisionByZero: [<class 'x'>]") == "decimal.DivisionByZero: [<class 'x'>] (steps.py:12, in risk)"
    )
    assert said("AssertionError") == "AssertionError (steps.py:12, in risk)"
    assert said(file="/data/jobs/risk.py") == "KeyError: 'a-1' (risk.py:12, in risk)"


@pytest.mark.parametrize(
    ("raised", "file"),
    [
        ("KeyError: 1", "/srv/app/penstock/spec/steps.py"),  # ours, though it is called as the user's file is
        ("KeyError: 1", "/opt/pyspark.zip/pyspark/worker.py"),
        ("KeyError: 1", "/srv/other/lib.py"),
        ("ModuleNotFoundError: No module named 'x'", "/tmp/spark/userFiles-1/steps.py"),
        ("MemoryError", "/tmp/spark/userFiles-1/steps.py"),
        ("penstock.errors.RegistryUnreachable: away", "/tmp/spark/userFiles-1/steps.py"),
    ],
)
def test_whatever_no_record_can_be_blamed_for_is_not_said(raised: str, file: str) -> None:
    assert said(raised, file) is None


@pytest.mark.parametrize("raised", ["KeyError: 'a-1'", "ModuleNotFoundError: No module named 'x'"])
def test_whatever_a_class_raises_is_said_where_it_is_in_its_own_module(raised: str) -> None:
    text = WORKER.format(raised=raised, file="/data/jobs/risk.py")
    assert python.raised_in("jobs.risk", text) == f"{raised} (risk.py:12, in risk)"
    assert python.raised_in("risk", text) == f"{raised} (risk.py:12, in risk)"
    assert python.raised_in("steps", text) is None
