"""Each rule names its cause, and each other one stays silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.observe.doctor import Facts, Files, Held, Ran, Stuck, examine
from penstock.observe.lag import PartitionLag, measured


def partition(number: int, lag: int, **facts: Any) -> PartitionLag:
    given = {"group": 0, "behind_s": lag / 100 if lag else None, "estimated": False, "arriving": 100.0, **facts}
    return PartitionLag("t", number, 0, end=lag, **given)


def ran(number: int, offsets: int = 1_000, seconds: float = 10.0, rows: int = 1_000, sink: float = 8.0) -> Ran:
    return Ran(number, seconds, offsets, sinks={"lake": (rows, sink)})


HEALTHY = Facts(
    running=True,
    lag=measured([partition(p, 500) for p in range(3)], 5_000.0),
    cap=10_000,
    adaptive=False,
    batches=[ran(n) for n in range(10)],
    retention_s={"t": 7 * 86_400.0},
    files={"lake": Files(10, 10 << 30)},
)
FULL = [ran(n, offsets=10_000) for n in range(10)]


def held(number: int, rows: int, watermark: float) -> Ran:
    return replace(ran(number), state={"w": Held(rows, watermark)})


def behind(*lags: int, capacity: float = 5_000.0, **facts: Any) -> Any:
    return measured([partition(p, lag, **facts) for p, lag in enumerate(lags)], capacity)


CASES: dict[str, Facts] = {
    "not-running": replace(HEALTHY, running=False),
    "stuck-batch": replace(HEALTHY, stuck=Stuck(10, 3_000.0)),
    "offsets-expired": replace(HEALTHY, expired=[("t", 1)]),
    "registry-down": replace(HEALTHY, registry="refused"),
    "slow-sink": replace(HEALTHY, batches=[*(ran(n) for n in range(7)), *(ran(n, sink=60.0) for n in range(7, 10))]),
    "cap-too-low": replace(
        HEALTHY, lag=behind(20_000, 20_000, 20_000), batches=[ran(n, 10_000, 1.0, sink=0.8) for n in range(10)]
    ),
    "cap-too-high": replace(
        HEALTHY, batches=[ran(n, 10_000, 300.0, sink=280.0) for n in range(10)], lag=behind(500, 500, 500)
    ),
    "input-above-capacity": replace(HEALTHY, lag=behind(5_000, 5_000, 5_000, capacity=200.0)),
    "hot-partition": replace(HEALTHY, lag=behind(100, 100, 50_000)),
    "small-files": replace(HEALTHY, files={"lake": Files(5_000, 5_000 * 100_000)}),
    "state-growth": replace(HEALTHY, batches=[held(n, 100 * (n + 1), 50.0) for n in range(10)], keeps_s={"w": 60.0}),
    "partition-stall": replace(HEALTHY, verdicts={("t", 0): "OK", ("t", 1): "STALL"}),
    "partition-rewind": replace(HEALTHY, verdicts={("t", 0): "OK", ("t", 1): "REWIND"}),
}


def test_healthy_pipeline_has_no_findings() -> None:
    assert examine(HEALTHY) == []


@pytest.mark.parametrize("cause", CASES)
def test_cause_is_named_and_no_other(cause: str) -> None:
    assert [finding.cause for finding in examine(CASES[cause])] == [cause]


def test_worst_comes_first() -> None:
    both = replace(HEALTHY, registry="refused", expired=[("t", 1)])
    assert [finding.severity for finding in examine(both)] == ["critical", "warning"]


def test_first_loss_is_foretold_beside_what_brings_it_about() -> None:
    late = replace(HEALTHY, lag=behind(5_000, 5_000, 5_000, capacity=200.0, behind_s=3_000.0))
    assert [f.cause for f in examine(late)] == ["input-above-capacity"]
    soon = replace(late, retention_s={"t": 3_600.0})
    assert [f.cause for f in examine(soon)] == ["retention-overtakes", "input-above-capacity"]


def test_first_loss_of_a_stopped_pipeline_is_when_the_next_record_expires() -> None:
    stopped = replace(HEALTHY, running=False, retention_s={"t": 14_400.0}, lag=behind(10, 10, 10, behind_s=3_000.0))
    [found] = [f for f in examine(stopped) if f.cause == "retention-overtakes"]
    assert found.what == "first loss in 3 h 10 min"
    assert found.facts["seconds"] == pytest.approx(14_400 - 3_000)


def test_batch_that_ends_with_errors_again_and_again_is_stuck() -> None:
    assert examine(replace(HEALTHY, stuck=Stuck(10, 5.0))) == []
    failing = replace(HEALTHY, stuck=Stuck(10, 5.0, ("sink-failed", "sink-failed")))
    [found] = examine(failing)
    assert found.cause == "stuck-batch"
    assert "it ended with sink-failed, 2 times" in found.evidence


def test_smaller_batches_do_not_make_a_sink_slow() -> None:
    small = [*(ran(n) for n in range(7)), *(ran(n, 10, 1.0, rows=10, sink=0.5) for n in range(7, 10))]
    assert examine(replace(HEALTHY, batches=small)) == []


def test_sink_is_held_to_its_good_batches_not_to_its_first_ones() -> None:
    cold = [ran(0, sink=60.0), ran(1, sink=30.0), *(ran(n) for n in range(2, 10))]
    assert examine(replace(HEALTHY, batches=cold)) == []
    assert examine(replace(HEALTHY, batches=cold[:6])) == []


def test_adaptive_rate_needs_no_advice_about_the_cap() -> None:
    for cause in ("cap-too-low", "cap-too-high"):
        assert examine(replace(CASES[cause], adaptive=True)) == []


def test_state_that_fills_or_is_freed_is_not_growing() -> None:
    kept = replace(HEALTHY, keeps_s={"w": 600.0})
    filling = [held(n, 100 * (n + 1), 50.0 * n) for n in range(10)]  # the watermark has to come further
    steady = [held(n, 100 + n % 3, 50.0) for n in range(10)]
    assert examine(replace(kept, batches=filling)) == []
    assert examine(replace(kept, batches=steady)) == []
    past = replace(kept, batches=filling, keeps_s={"w": 60.0})
    [found] = examine(past)
    assert "event time went on by 4 min; a row should stay for 1 min" in found.evidence[1]
    [forever] = examine(replace(kept, batches=filling, keeps_s={}))
    assert "nothing in the step makes it forget a key" in forever.evidence
