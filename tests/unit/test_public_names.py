"""The curated list of public names, and what asking for one of them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock

HEAVY = {"pyspark", "py4j", "confluent_kafka"}


def imported_by(statement: str) -> set[str]:
    """Packages a fresh interpreter holds after one statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_public_names_are_these_and_no_others() -> None:
    assert penstock.__all__ == ["PenstockError", "Pipeline", "__version__", "run", "verify"]


def test_every_public_name_can_be_imported_and_is_what_it_is_called() -> None:
    taken: dict[str, object] = {}
    exec("from penstock import *", taken)
    assert taken["__version__"]
    for name in {*penstock.__all__} - {"__version__"}:
        assert getattr(taken[name], "__name__", None) == name
    assert dir(penstock) == penstock.__all__


def test_name_that_is_not_public_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="nothing_of_the_kind"):
        exec("from penstock import nothing_of_the_kind")
    assert not hasattr(penstock, "nothing_of_the_kind")


@pytest.mark.parametrize("statement", ["import penstock", "from penstock import Pipeline, PenstockError"])
def test_import_needs_neither_an_engine_nor_a_kafka_client(statement: str) -> None:
    packages = imported_by(statement)
    assert "penstock" in packages
    assert packages.isdisjoint(HEAVY)
