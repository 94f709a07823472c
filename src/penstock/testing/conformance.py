"""One conformance suite for every sink, Penstock's own and yours.

    from penstock.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_my_sink_keeps_the_contract(check, spark, tmp_path):
        check(MySubject(tmp_path), spark)

A check wants a place of its own each time. It raises `Broken`, with what the contract demands and what was found;
`unittest.SkipTest`, which pytest and unittest show with its reason, where a subject is excused from it. It needs
neither Kafka nor pytest. What a subject is: `penstock.testing.subject`. How to write a sink: docs/sinks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import SkipTest

from penstock.testing import crashing, keying, sharing, writing
from penstock.testing.subject import PARTITIONS, TOPIC, Subject, Traits, is_exactly_once
from penstock.testing.trial import Broken, Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CHECKS", "PARTITIONS", "TOPIC", "Broken", "Check", "Subject", "Traits", "check_called"]


@dataclass(frozen=True)
class Check:
    """One thing that the contract demands. Called with a subject and a session."""

    name: str
    demand: str
    run: Callable[[Trial], None]
    excusable: bool = False
    of_exactly_once: bool = False  # a sink that writes at least once keeps no books that could be checked

    def __call__(self, subject: Subject, spark: SparkSession) -> None:
        why = self._excuse(subject)
        if why:
            raise SkipTest(f"{self.name}: {why}")
        try:
            self.run(Trial(subject, spark))
        except Broken as broken:
            broken.check = self.name
            raise

    def __str__(self) -> str:
        return self.name

    def _excuse(self, subject: Subject) -> str:
        excused = subject.traits.excused
        allowed = {check.name for check in CHECKS if check.excusable}
        unknown = sorted(excused.keys() - allowed)
        if unknown:
            raise ValueError(f"no check can be excused that is called {unknown[0]}; these can: {sorted(allowed)}")
        if self.of_exactly_once and not is_exactly_once(subject):
            return "the sink's guarantee is at-least-once"
        return excused.get(self.name, "")


def _check(run: Callable[[Trial], None], *, excusable: bool = False, of_exactly_once: bool = False) -> Check:
    demand = (run.__doc__ or "").strip()
    return Check(run.__name__.replace("_", "-"), demand, run, excusable, of_exactly_once)


CHECKS: tuple[Check, ...] = (
    _check(writing.guarantee),
    _check(writing.first_write),
    _check(crashing.replay),
    _check(crashing.crash_during_write),
    _check(crashing.task_run_again),
    _check(crashing.killed),
    _check(sharing.two_attempts_at_once),
    _check(sharing.another_query),
    _check(sharing.lost_batches, of_exactly_once=True),
    _check(writing.empty_batch),
    _check(writing.large_batch),
    _check(writing.every_type, excusable=True),
    _check(keying.null_keys, excusable=True),
    _check(keying.deletes, excusable=True),
    _check(keying.rejected_row, excusable=True),
)


def check_called(name: str) -> Check:
    return next(check for check in CHECKS if check.name == name)
