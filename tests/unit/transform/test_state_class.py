"""Classes that keep state: what shows before any record comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StepFailed
from penstock.spec.stateful import State
from penstock.transform.state import processor

CLASS = """\
from pyspark.sql.streaming import StatefulProcessor


class Burst(StatefulProcessor):
    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield from ()

    def handleExpiredTimer(self, key, timerValues, {last}):
        yield from ()

    def close(self):
        pass
"""


def state(timers: str) -> State:
    return State.model_validate(
        {
            "from": "t",
            "key": ["k"],
            "processor": "burst:Burst",
            "fields": {"n": "int"},
            "timers": timers,
            **({"time": "at", "late_after": "1m"} if timers == "event" else {}),
        }
    )


def test_method_that_spark_calls_with_another_name_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "burst.py").write_text(CLASS.format(last="info"))
    with pytest.raises(StepFailed, match="step 'a' has no processor") as raised:
        processor("a", state("event"), tmp_path)
    cause = str(raised.value.cause)
    assert cause.startswith("handleExpiredTimer: ")
    assert "(burst.py:11)" in cause
    assert cause.endswith("Spark calls handleExpiredTimer(key, timerValues, expiredTimerInfo)")
    processor("a", state("none"), tmp_path)  # then nobody calls it


@pytest.mark.parametrize("last", ["expiredTimerInfo", "**others"])
def test_methods_that_take_what_spark_gives_are_fine(tmp_path: Path, last: str) -> None:
    (tmp_path / "burst.py").write_text(CLASS.format(last=last))
    processor("a", state("event"), tmp_path)
