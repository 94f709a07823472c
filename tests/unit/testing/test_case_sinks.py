"""What takes the place of sinks in a case holds what they would hold."""

from __future__ import annotations

from penstock.testing.case.sinks import Gathered


def test_rows_of_a_view_that_is_whole_with_every_batch_are_those_of_the_last_one() -> None:
    batches = {0: [{"n": 1}], 2: [{"n": 4}], 1: [{"n": 2}]}
    assert Gathered("out", batches=batches).rows() == [{"n": 1}, {"n": 2}, {"n": 4}]
    assert Gathered("out", batches=batches, whole=True).rows() == [{"n": 4}]
    assert Gathered("out", whole=True).rows() == []
