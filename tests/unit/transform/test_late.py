"""Which rows a step can miss at all; when they are late is held against oracles with the engine."""

from __future__ import annotations

import pytest

from penstock.spec.stateful import State
from penstock.transform.watermark import late


@pytest.mark.parametrize("timers", ["none", "processing"])
def test_nothing_is_late_for_a_class_whose_timers_are_not_in_event_time(timers: str) -> None:
    """The engine hands it every row: whatever has an event time is taken."""
    state = {"from": "events", "key": ["key"], "processor": "quiet:Quiet", "fields": {"n": "int"}}
    of = State.model_validate({**state, "time": "at", "late_after": "1m", "timers": timers})
    assert late(of, 0, 1_800_000_000_000) is None
