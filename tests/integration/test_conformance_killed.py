"""K1: check `killed` of the suite of all sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broken_sinks import CommitsFirst, Files
from tests.sink_kinds import KILLED, TABLES, TABLES_IN_ONE_PASS, TOPICS, TOPICS_IN_ONE_PASS, Make

from penstock.testing import doomed
from penstock.testing.conformance import Broken
from penstock.testing.crashing import Victim
from penstock.testing.trial import Trial


def test_process_that_writes_is_killed(make: Make, spark: Any) -> None:
    """What the check does to one sink, to all of them in one process, each at one of the moments: a JVM is slow to
    start."""
    kinds = [*TABLES, *TOPICS, *TABLES_IN_ONE_PASS, *TOPICS_IN_ONE_PASS]
    victims = [Victim(Trial(make(kind), spark)) for kind in kinds]
    moments = doomed.MOMENTS[::-1] * len(kinds)
    doomed.kill([victim.next(moment) for victim, moment in zip(victims, moments, strict=False)], spark)
    for victim in victims:
        victim.survives()


def test_commit_before_the_write_is_caught_when_the_process_is_killed(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Broken, match="and the batch was written again, nothing is lost"):
        KILLED(Files(tmp_path, CommitsFirst), spark)
