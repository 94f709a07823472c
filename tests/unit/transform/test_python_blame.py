"""Whose fault an exception in a worker is: a record's, where a function of a Python step raised it."""

from __future__ import annotations

import pytest

from penstock.errors import MARK
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

OURS = (
    "penstock.errors.RegistryUnreachable: away\n"
    f'{MARK} {{"code": "registry-unreachable", "what": "away", "cause": null, "next": null, "facts": {{}}}}'
)


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
        (OURS, "/tmp/spark/userFiles-1/steps.py"),
    ],
)
def test_whatever_no_record_can_be_blamed_for_is_not_said(raised: str, file: str) -> None:
    assert said(raised, file) is None


@pytest.mark.parametrize(
    "quoted",
    [
        "penstock.errors.KafkaUnreachable: away\nnext: curl",
        '  File "/data/steps.py", line 1, in a',
        '\nTraceback (most recent call last):\n  File "/data/steps.py", line 1, in a\nMemoryError',
    ],
)
def test_whatever_a_value_says_its_record_is_blamed(quoted: str) -> None:
    assert said(f"ValueError: 5\n{quoted}\n")


def test_of_exceptions_that_caused_one_another_the_last_is_said() -> None:
    first = "KeyError: 'a-1'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    again = 'Traceback (most recent call last):\n  File "/data/steps.py", line 14, in risk\n    raise Unknown\n'
    assert said(f"{first}{again}steps.Unknown: a-1") == "steps.Unknown: a-1 (steps.py:14, in risk)"


@pytest.mark.parametrize("raised", ["KeyError: 'a-1'", "ModuleNotFoundError: No module named 'x'"])
def test_whatever_a_class_raises_is_said_where_it_is_in_its_own_module(raised: str) -> None:
    text = WORKER.format(raised=raised, file="/data/jobs/risk.py")
    assert python.raised_in("jobs.risk", text) == f"{raised} (risk.py:12, in risk)"
    assert python.raised_in("risk", text) == f"{raised} (risk.py:12, in risk)"
    assert python.raised_in("steps", text) is None


def test_traceback_behind_the_name_of_javas_exception_is_found() -> None:
    """So the engine puts it where the class of a stateful step fails while it asks for its state."""
    said = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    said += '  File "/tmp/x/quiet.py", line 7, in init\n    assert False, "not yet"\nAssertionError: not yet\n'
    assert python.raised_in("quiet", said) == "AssertionError: not yet (quiet.py:7, in init)"
