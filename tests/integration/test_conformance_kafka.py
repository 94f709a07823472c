"""K1: sinks that write to Kafka, held to the suite of all sinks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sink_kinds import TOPICS, TOPICS_IN_ONE_PASS, Make, held_to

from penstock.testing.conformance import Check


@pytest.mark.parametrize(("kind", "check"), held_to(TOPICS))
def test_sink_keeps_the_contract(kind: str, check: Check, make: Make, spark: Any) -> None:
    check(make(kind), spark)


@pytest.mark.parametrize(("kind", "check"), held_to(TOPICS_IN_ONE_PASS))
def test_batch_in_one_pass_keeps_the_contract(kind: str, check: Check, make: Make, spark: Any) -> None:
    check(make(kind), spark)
