"""What is advised about a cap that somebody fixed, and after which batches nothing is."""

from __future__ import annotations

import pytest

from penstock.control.rate import Measurement, Policy, State, decide

FIXED = Policy(1000)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (Measurement(0, 210.8, 1000, 1000, first=True), "fixed"),  # the engine was cold
        (Measurement(1, 210.8, 1000, 1000), "advice"),
        (Measurement(1, 210.8, 17, 1000), "fixed"),  # half of the cap would not have made it smaller
        (Measurement(1, 210.8, 600, 1000), "advice"),
        (Measurement(0, 4.9, 1000, 1000, first=True), "fixed"),  # how long a start takes depends on the machine
        (Measurement(1, 4.9, 1000, 1000), "advice"),
    ],
)
def test_advice_follows_batches_whose_time_is_that_of_their_records(batch: Measurement, reason: str) -> None:
    _, decision = decide(State.at_start(FIXED), batch, FIXED)
    assert (decision.reason, decision.cap) == (reason, 1000)


def test_advice_is_not_spent_by_a_batch_that_gave_none() -> None:
    state, _ = decide(State.at_start(FIXED), Measurement(0, 210.8, 1000, 1000, first=True), FIXED)
    _, decision = decide(state, Measurement(1, 130.0, 1000, 1000), FIXED)
    assert (
        decision.said == "a batch of 1,000 offsets took 130.0 s: halve `rate.max_offsets`, or set `rate.target_batch`"
    )
