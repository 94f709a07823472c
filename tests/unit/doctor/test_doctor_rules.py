"""Each rule names its cause, and each other one stays silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.facts import Damaged, Dying, Facts, Failed, Files, Held, Ran, Recreated, Stuck
from penstock.doctor.rules import examine
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
BACK = PartitionLag("t", 0, 9, None, 4, None, False, None)
FULL = [ran(n, offsets=10_000) for n in range(10)]


def held(number: int, rows: int, watermark: float) -> Ran:
    return replace(ran(number), state={"w": Held(rows, watermark)})


def behind(*lags: int, capacity: float = 5_000.0, **facts: Any) -> Any:
    return measured([partition(p, lag, **facts) for p, lag in enumerate(lags)], capacity)


CASES: dict[str, Facts] = {
    "not-running": replace(HEALTHY, running=False),
    "never-ran": replace(HEALTHY, running=False, rest="never-ran", begun=False, lag=behind(9, behind_s=7 * 86_399.0)),
    "between-runs": replace(HEALTHY, running=False, rest="caught-up"),
    "stuck-batch": replace(HEALTHY, stuck=Stuck(10, 3_000.0)),
    "offsets-expired": replace(HEALTHY, lag=behind(500, 500, 500, first=6)),
    "offsets-went-back": replace(HEALTHY, running=False, lag=measured([BACK], 5_000.0)),
    "start-not-there": replace(HEALTHY, running=False, begun=False, lag=measured([BACK], 5_000.0)),
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
    "topic-recreated": replace(HEALTHY, running=False, recreated=[Recreated("t", "it was a, now it is b", "seek")]),
    "checkpoint-damaged": replace(HEALTHY, running=False, damage=Damaged(("metadata is gone",), "repair", stops=True)),
    "dead-letter-budget": replace(
        HEALTHY, running=False, stuck=Stuck(10, 5.0), failed=Failed("dead-letter-budget", "9 of 10 are dead")
    ),
    "dead-letters": replace(HEALTHY, dying=Dying(3, 1_000, 910)),
    "partition-offline": replace(HEALTHY, states={"offline": ["t-1"]}),
    "partition-read-only": replace(HEALTHY, states={"read-only": ["out-0"]}),
    "partition-silent": replace(HEALTHY, states={"silent": ["t-1"]}),
    "partition-under-replicated": replace(HEALTHY, states={"under-replicated": ["t-1"]}),
    "target-below-overhead": replace(HEALTHY, adaptive=True, target_s=2.0, overhead_s=3.0),
    "partition-stall": replace(HEALTHY, verdicts={("t", 0): "OK", ("t", 1): "STALL"}),
    "partition-stop": replace(HEALTHY, stuck=Stuck(10, 50.0), verdicts={("t", 0): "OK", ("t", 1): "STOP"}),
    "partition-rewind": replace(HEALTHY, verdicts={("t", 0): "OK", ("t", 1): "REWIND"}),
}


def test_healthy_pipeline_has_no_findings() -> None:
    assert examine(HEALTHY) == []


@pytest.mark.parametrize("cause", CASES)
def test_cause_is_named_and_no_other(cause: str) -> None:
    assert [finding.cause for finding in examine(CASES[cause])] == [cause]


def test_worst_comes_first() -> None:
    both = replace(HEALTHY, registry="refused", lag=behind(500, 500, 500, first=6))
    assert [finding.severity for finding in examine(both)] == ["critical", "warning"]


def test_first_loss_is_foretold_beside_what_brings_it_about() -> None:
    late = replace(HEALTHY, lag=behind(5_000, 5_000, 5_000, capacity=200.0, behind_s=3_000.0))
    assert [f.cause for f in examine(late)] == ["input-above-capacity"]
    soon = replace(late, retention_s={"t": 3_600.0})
    assert [f.cause for f in examine(soon)] == ["retention-overtakes", "input-above-capacity"]
    between = replace(soon, running=False, rest="caught-up")
    assert [f.cause for f in examine(between)] == ["retention-overtakes", "between-runs"]


def test_run_that_ended_as_it_should_and_has_nothing_to_read_is_healthy() -> None:
    assert examine(replace(HEALTHY, running=False, rest="caught-up", lag=behind(0, 0, 0))) == []


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


STOPPED = replace(HEALTHY, running=False)


@pytest.mark.parametrize("since_s", [24.0, 90_000.0])
def test_batch_of_a_driver_that_was_killed_once_is_not_stuck_it_only_does_not_run(since_s: float) -> None:
    [found] = examine(replace(STOPPED, stuck=Stuck(10, since_s, deaths=1)))
    assert (found.cause, found.fix) == ("not-running", "penstock run FILE")
    assert "batch 10 was cut off; it runs again, with the same offsets" in found.evidence


def test_batch_that_a_start_refuses_is_stuck_and_the_fix_is_not_to_start() -> None:
    split = "penstock split FILE, which makes the batch smaller"
    killed = replace(STOPPED, stuck=Stuck(10, 24.0, deaths=2, too_large=split))
    refused = replace(killed, failed=Failed("batch-too-large", "the driver died 2 times", None, split))
    for facts in (killed, refused):
        [found] = examine(facts)
        assert (found.cause, found.fix) == ("stuck-batch", split)
        assert "the driver died 2 times while it ran it, and a start is refused now" in found.evidence
    also = [finding.cause for finding in examine(replace(killed, states={"silent": ["t-0"]}))]
    assert also == ["stuck-batch", "partition-silent"]  # a start is refused, whatever Kafka does


def test_after_a_failure_the_fix_is_what_its_error_advises() -> None:
    failed = Failed("rule-stopped", "a record broke a rule", None, "mend the rule, then: penstock run FILE")
    [once] = examine(replace(STOPPED, failed=failed, stuck=Stuck(10, 5.0, ("rule-stopped",))))
    assert (once.cause, once.fix) == ("not-running", failed.advice)
    assert "the last run ended with rule-stopped: a record broke a rule" in once.evidence
    [twice] = examine(replace(STOPPED, failed=failed, stuck=Stuck(10, 5.0, ("rule-stopped",) * 2)))
    assert (twice.cause, twice.fix) == ("stuck-batch", failed.advice)


def test_silence_is_told_as_a_note_where_nothing_else_explains_it() -> None:
    silent = replace(HEALTHY, verdicts={("t", 0): "STOP", ("t", 1): "STOP"})
    [found] = examine(silent)
    assert (found.cause, found.severity, found.facts) == ("partition-stop", "note", {"partitions": ["t-0", "t-1"]})
    assert found.evidence == ("verdict STOP: t-0, t-1", "no batch is planned")
    for other, explains in {
        "stuck-batch": replace(silent, stuck=Stuck(10, 3_000.0)),
        "not-running": replace(silent, running=False),
        "registry-down": replace(silent, registry="refused"),
        "partition-offline": replace(silent, states={"offline": ["t-0"]}),
        "offsets-expired": replace(silent, lag=behind(500, 500, 500, first=6)),
    }.items():
        assert [finding.cause for finding in examine(explains)] == [other]


def test_advice_that_ends_before_the_start_goes_on_with_it() -> None:
    [found] = examine(replace(STOPPED, failed=Failed("engine-failed", "it failed", None, "read engine.log")))
    assert found.fix == "read engine.log; then: penstock run FILE"


def test_spent_budget_is_the_cause_as_long_as_its_batch_is_the_next_one_and_nobody_tries_it() -> None:
    failed = Failed("dead-letter-budget", "9 of 10 records are dead", "8 × malformed\n1 × null-value", "mend the spec")
    spent = replace(STOPPED, failed=failed, stuck=Stuck(10, 5.0))
    [found] = examine(spent)
    assert (found.cause, found.fix) == ("dead-letter-budget", "mend the spec")
    assert found.evidence[:2] == ("8 × malformed", "1 × null-value")
    assert examine(replace(spent, running=True)) == []
    assert [finding.cause for finding in examine(replace(spent, stuck=None))] == ["not-running"]


def test_expired_offsets_are_counted_by_partition() -> None:
    [found] = examine(replace(STOPPED, lag=behind(10, 500, first=6)))
    assert found.what == "12 offsets expired unread"
    assert found.evidence[0] == ("t-0 goes on at 0, Kafka holds nothing before 6: 6 of 10 waiting offsets gone")
    assert found.facts == {"offsets": 12, "partitions": {"t-0": 6, "t-1": 6}}
    [again] = examine(replace(STOPPED, lag=behind(10, 500, first=6), goes_on=True))
    assert again.fix.startswith("penstock run FILE: ")


def test_offsets_that_went_back_are_named_before_the_batch_that_fails_on_them() -> None:
    failed = Failed("offsets-went-back", "Kafka has lost records", None, "a new checkpoint")
    stuck = Stuck(10, 5.0, ("offsets-went-back",) * 2)
    [found] = examine(replace(STOPPED, lag=measured([BACK], 1.0), stuck=stuck, failed=failed))
    assert (found.cause, found.facts) == ("offsets-went-back", {"partitions": {"t-0": 5}})
    assert found.evidence[0] == "t-0 was read up to offset 9, and ends at 4"
    assert "new `checkpoint:`" in found.fix
    [again] = examine(replace(STOPPED, stuck=stuck, failed=failed))  # more was written since; the batch cannot run
    assert (again.cause, again.fix) == ("stuck-batch", "a new checkpoint")


def test_position_behind_an_end_that_was_asked_for_before_a_batch_ended_is_no_loss() -> None:
    assert examine(replace(HEALTHY, lag=measured([BACK], 1.0))) == []


def test_start_that_has_expired_is_corrected_or_gone_on_without() -> None:
    early = replace(STOPPED, begun=False, lag=behind(10, 500, first=6))
    [found] = examine(early)
    assert (found.cause, found.fix.split(";")[0]) == ("start-not-there", "correct `start`")
    assert found.evidence[0] == "t-0: offset 0 is wanted, Kafka holds 6 to 10"
    assert [finding.cause for finding in examine(replace(early, goes_on=True))] == ["offsets-expired"]


def test_damage_that_stops_no_start_is_told_beside_what_else_is_wrong() -> None:
    old = Damaged(("spark/offsets/0 is missing",), "penstock checkpoint repair FILE", stops=False)
    causes = [(finding.cause, finding.severity) for finding in examine(replace(STOPPED, damage=old))]
    assert causes == [("not-running", "critical"), ("checkpoint-damaged", "warning")]


def test_other_findings_are_kept_beside_a_topic_that_was_made_again() -> None:
    both = replace(STOPPED, recreated=[Recreated("t", "another id", "seek")], registry="refused", lag=measured([], 1.0))
    assert [finding.cause for finding in examine(both)] == ["topic-recreated", "registry-down"]


def test_batch_that_waits_for_a_partition_is_not_stuck_by_itself() -> None:
    waits = replace(HEALTHY, stuck=Stuck(10, 30.0, ("kafka-unreachable",) * 4), states={"offline": ["t-0", "t-1"]})
    [found] = examine(waits)
    assert found.cause == "partition-offline"
    assert found.what.startswith("2 partitions are offline: ")
    assert found.evidence == ("t-0, t-1",)


def test_lag_of_partitions_that_do_not_answer_is_not_left_out_silently() -> None:
    away = PartitionLag("t", 1, 5, 0, None, None, False, None, state="offline")
    [_, found] = examine(replace(STOPPED, lag=measured([partition(0, 500), away], 1.0), states={"offline": ["t-1"]}))
    assert found.evidence[0] == "at least 500 offsets wait"
    [alone] = examine(replace(STOPPED, lag=measured([partition(0, 1)], 1.0)))
    assert alone.evidence[0] == "1 offset waits"


def test_target_above_the_cost_of_a_batch_is_met_by_its_size() -> None:
    assert examine(replace(CASES["target-below-overhead"], target_s=4.0)) == []


def test_target_of_a_pipeline_that_is_stopped_and_has_nothing_to_read_is_no_finding() -> None:
    stopped = replace(CASES["target-below-overhead"], running=False)
    assert [finding.cause for finding in examine(stopped)] == ["not-running", "target-below-overhead"]
    assert examine(replace(stopped, lag=behind(0, 0, 0))) == []


def test_hot_partition_is_held_against_the_others_in_what_arrives_and_in_what_waits() -> None:
    parts = [partition(0, 163_098, arriving=333.0), *(partition(p, 148_514, arriving=0.0) for p in (1, 2))]
    [found] = examine(replace(HEALTHY, lag=measured(parts, 5_000.0)))
    assert (found.cause, found.evidence) == (
        "hot-partition",
        (
            "333 offsets/s arrive in it, none in the others",
            "163,098 offsets wait in it, on average 148,514 in each of the others",
        ),
    )


def test_hot_partition_that_gets_nothing_now_is_held_against_the_others_in_what_waits() -> None:
    parts = [partition(0, 9_000, arriving=0.0), *(partition(p, 0, arriving=0.0) for p in (1, 2))]
    [found] = examine(replace(HEALTHY, lag=measured(parts, 5_000.0)))
    assert (found.cause, found.evidence) == ("hot-partition", ("9,000 offsets wait in it, none in the others",))


def test_smaller_batches_do_not_make_a_sink_slow() -> None:
    small = [*(ran(n) for n in range(7)), *(ran(n, 10, 1.0, rows=10, sink=0.5) for n in range(7, 10))]
    assert examine(replace(HEALTHY, batches=small)) == []


def test_what_a_batch_costs_anyway_does_not_make_a_sink_slow() -> None:
    def single(took: float) -> list[str]:
        batches = [*(ran(n, 2, rows=2, sink=0.5) for n in range(7)), *(ran(n, 2, rows=1, sink=took) for n in (7, 8, 9))]
        return [finding.cause for finding in examine(replace(HEALTHY, batches=batches))]

    assert single(3.0) == []
    assert single(30.0) == ["slow-sink"]


def test_sink_is_held_to_its_good_batches_not_to_its_first_ones() -> None:
    cold = [ran(0, sink=60.0), ran(1, sink=30.0), *(ran(n) for n in range(2, 10))]
    assert examine(replace(HEALTHY, batches=cold)) == []
    assert examine(replace(HEALTHY, batches=cold[:6])) == []


def test_first_batches_after_starts_do_not_make_a_sink_slow() -> None:
    restarted = [*(ran(n) for n in range(7)), ran(7, sink=60.0), ran(8, sink=60.0), ran(9)]
    assert [finding.cause for finding in examine(replace(HEALTHY, batches=restarted))] == ["slow-sink"]
    cold = [replace(each, cold=each.batch in (7, 8)) for each in restarted]
    assert examine(replace(HEALTHY, batches=cold)) == []
    assert examine(replace(HEALTHY, batches=[replace(each, cold=True) for each in restarted])) == []


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
    assert "event time went on by 4 min 10 s; a row should stay for 1 min" in found.evidence[1]
    [forever] = examine(replace(kept, batches=filling, keeps_s={}))
    assert "nothing in the step makes it forget a key" in forever.evidence


def test_every_cause_is_in_the_documents() -> None:
    told = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    assert [cause for cause in CASES if f"`{cause}`" not in told] == []


@pytest.mark.parametrize(
    ("dying", "severity"),
    [
        (Dying(3, 1_000, 500), "critical"),
        (Dying(3, 1_000, 499), "warning"),
        (Dying(3, 1_000, 100), "warning"),
        (Dying(3, 1_000, 99), None),
        (Dying(1, 9, 9), None),  # few records say nothing
        (Dying(3, 1_000, 12, 10, 10_000, 40), "warning"),  # three times as many as before
        (Dying(3, 1_000, 12, 10, 10_000, 41), None),
        (Dying(3, 10_000, 99, 10, 10_000, 0), None),  # less than 1 %
        (Dying(3, 1_000, 12, 1, 99, 0), None),  # too few before to compare with
    ],
)
def test_share_of_dead_letters_is_named_where_it_is_high_or_has_risen(dying: Dying, severity: str | None) -> None:
    found = examine(replace(HEALTHY, dying=dying))
    assert [each.severity for each in found] == ([severity] if severity else [])


def test_dead_letters_are_named_with_the_reason_and_the_command_and_not_beside_a_spent_budget() -> None:
    dying = Dying(3, 1_000, 910, 20, 20_000, 80, [("decode, malformed: t-0 offset 4: no JSON", 900)])
    [found] = examine(replace(HEALTHY, dying=dying))
    assert found.what == "91.0% of records are dead letters, up from 0.4%"
    assert found.evidence == (
        "910 of 1,000 records of the last 3 batches are dead letters",
        "in the 20 batches before it was 0.4%",
        "900 × decode, malformed: t-0 offset 4: no JSON",
    )
    assert found.fix.startswith("penstock dlq stats FILE")
    assert [each.cause for each in examine(replace(CASES["dead-letter-budget"], dying=dying))] == ["dead-letter-budget"]
