"""What `doctor` finds out about a checkpoint, the next batch, the last run and the partitions, from files and facts."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints import checkpoint, entry, plan_batch

from penstock.checkpoint.attempts import Attempts
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.doctor import condition
from penstock.doctor.gather import began, ran, since_seek
from penstock.errors import BadArgument, DeadLetterBudget, OffsetsWentBack, SinkFailed, TopicMissing, TopicRecreated
from penstock.kafka.topics import Partition, Topic
from penstock.observe.events import EventLog
from penstock.observe.lag import measured
from penstock.observe.listeners import Recorder
from penstock.observe.measure_lag import waiting
from penstock.operations.split import split
from penstock.record import OffsetRange
from penstock.source.topics import require_forward
from penstock.spec.model import Pipeline
from penstock.spec.start import EARLIEST, LATEST


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return checkpoint(tmp_path / "home")


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "payments",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"payments": {"value": {"format": "string"}}}},
            "sinks": {"lake": {"from": "payments", "delta": {"path": "lake"}}},
        }
    )


def test_whole_checkpoint_and_none_at_all_are_sound(home: Home, pipeline: Pipeline, tmp_path: Path) -> None:
    assert condition.damage(pipeline, home) is None
    assert condition.damage(pipeline, Home(tmp_path / "never-ran")) is None


def test_metadata_that_was_removed_is_made_again_by_repair_and_by_nothing_that_reads_everything_again(
    home: Home, pipeline: Pipeline
) -> None:
    (home.spark / "metadata").unlink()
    found = condition.damage(pipeline, home)
    assert found is not None
    assert found.stops
    assert found.said[0].startswith("spark/metadata ")
    assert "penstock checkpoint repair FILE" in found.fix
    assert "--accept" not in found.fix


def test_ledger_of_garbage_is_damage_that_only_a_backup_can_mend(home: Home, pipeline: Pipeline) -> None:
    for file in home.ledger.glob("*.jsonl"):
        file.write_bytes(b"\xffgarbage\n")
    found = condition.damage(pipeline, home)
    assert found is not None
    assert found.stops
    assert any("ledger" in said for said in found.said)
    assert "; where it cannot: bring them" in found.fix


def test_checkpoint_that_is_gone_beside_its_ledger_is_damage(home: Home, pipeline: Pipeline) -> None:
    home.spark.rename(home.path / "elsewhere")
    found = condition.damage(pipeline, home)
    assert found is not None
    assert "Spark's checkpoint is gone" in found.said[0]


def test_offsets_that_cannot_be_read_do_not_end_the_examination(home: Home, pipeline: Pipeline) -> None:
    (home.spark / "offsets" / "3").write_text("v1")
    found = condition.damage(pipeline, home)
    assert found is not None
    assert any(said.startswith("spark/offsets/3 ") for said in found.said)


def log_of(home: Home) -> EventLog:
    return EventLog(home.path / "events")


def stuck(home: Home, *, runs: bool = False) -> condition.Stuck | None:
    return condition.stuck(home, log_of(home), time.time(), runs=runs)


def test_deaths_of_drivers_count_until_the_batch_is_split(home: Home) -> None:
    assert stuck(home) is None
    plan_batch(home, 4)
    once = stuck(home)
    assert once is not None
    assert (once.batch, once.deaths, once.too_large) == (4, 1, None)
    Attempts(home).begin(4)  # and dies again
    twice = stuck(home)
    assert twice is not None
    assert twice.deaths == 2
    assert str(twice.too_large).startswith("penstock split FILE")
    running = stuck(home, runs=True)
    assert running is not None
    assert running.too_large is None  # the third one was let through, and is under way
    Attempts(home).forgive()
    split = stuck(home)
    assert split is not None
    assert split.too_large is None


def test_batch_that_is_in_the_ledger_is_never_too_large(home: Home, pipeline: Pipeline) -> None:
    plan_batch(home, 4)
    Attempts(home).begin(4)  # and dies; the second time between its ledger entry and Spark's commit
    Ledger(home.ledger).append(entry(4))
    found = stuck(home)
    assert found is not None
    assert (found.deaths, found.too_large) == (0, None)
    with pytest.raises(BadArgument) as nothing:
        split(pipeline.model_copy(update={"checkpoint": str(home.path)}))
    assert nothing.value.cause == "batch 4 is in the ledger: it lacks only Spark's commit, which the next run adds"
    Attempts(home).check(frozenset())  # so the run that `split` advises does start


def test_refused_starts_are_no_failures_of_the_batch(home: Home) -> None:
    plan_batch(home, 4)
    os.utime(home.spark / "offsets" / "4", times=(0, time.time() - 1))
    recorder = Recorder(log_of(home).append)
    for error in (DeadLetterBudget("spent"), SinkFailed("no"), DeadLetterBudget("spent")):
        recorder.ended(error)
    found = stuck(home)
    assert found is not None
    assert found.failures == ("sink-failed",)


def test_last_run_failed_unless_something_happened_since(home: Home) -> None:
    log = log_of(home)
    assert condition.failed(log, None) is None
    Recorder(log.append).ended(DeadLetterBudget("9 of 10", cause="malformed", next_command="mend the spec"))
    found = condition.failed(log, None)
    assert found == condition.Failed("dead-letter-budget", "9 of 10", "malformed", "mend the spec")
    assert condition.failed(log, time.time() - 60) == found
    assert condition.failed(log, time.time() + 60) is None  # the batch was planned, or split, after it
    for since in ("started", "seek"):
        log.append(since)
        assert condition.failed(log, None) is None
        Recorder(log.append).ended(TopicMissing("no topic 'out'", next_command="penstock apply FILE"))
        assert condition.failed(log, None) == condition.Failed(
            "topic-missing", "no topic 'out'", None, "penstock apply FILE"
        )


def test_what_helped_against_a_trouble_that_is_over_is_not_advised_again(home: Home) -> None:
    Recorder(log_of(home).append).ended(TopicRecreated("made again", next_command="penstock checkpoint seek FILE"))
    assert condition.failed(log_of(home), None) == condition.Failed("topic-recreated", "made again")


def test_offsets_that_went_back_are_advised_about_even_where_the_end_has_passed_them_again(home: Home) -> None:
    """The batch that was planned then cannot run, wherever the partition ends by now."""
    log = SparkLog(home.spark)
    end = log.end_of(3)
    with pytest.raises(OffsetsWentBack) as raised:
        require_forward([OffsetRange(*place, end[place], end[place] - 1) for place in end])
    Recorder(log_of(home).append).ended(raised.value)
    found = condition.failed(log_of(home), None)
    assert found is not None
    assert (found.code, found.advice) == ("offsets-went-back", raised.value.next_command)


def test_failure_that_an_older_version_noted_has_no_advice(home: Home) -> None:
    log_of(home).append("failed", code="sink-failed", what="no", cause=None)
    assert condition.failed(log_of(home), None) == condition.Failed("sink-failed", "no")


@pytest.mark.parametrize(
    ("trigger", "told", "expected"),
    [
        ("available-now", [], None),
        ("continuous", [("ended", {"caught_up": True})], "caught-up"),
        ("available-now", [("ended", {"caught_up": False})], None),  # a person stopped it
        ("available-now", [("ended", {})], "caught-up"),  # by an older version
        ("continuous", [("ended", {})], None),
        ("available-now", [("ended", {"caught_up": True}), ("seek", {})], "caught-up"),
        ("available-now", [("ended", {"caught_up": True}), ("started", {})], None),  # and was killed
        ("available-now", [("failed", {"code": "sink-failed"})], None),
    ],
)
def test_nothing_has_to_run_what_has_read_all_there_was(
    home: Home, pipeline: Pipeline, trigger: str, told: list[tuple[str, dict[str, Any]]], expected: str | None
) -> None:
    log, of = log_of(home), pipeline.model_copy(update={"trigger": trigger})
    for kind, facts in told:
        log.append(kind, **facts)
    known = bool(told)
    assert condition.rest(of, log, begun=True, planned=not known) == expected
    assert condition.rest(of, log, begun=True, planned=True) is None
    without_events = condition.rest(of, EventLog(home.path / "none"), begun=True, planned=False)
    assert without_events == ("caught-up" if trigger == "available-now" else None)
    assert condition.rest(of, EventLog(home.path / "none"), begun=False, planned=False) == "never-ran"


READ = Topic(
    "t",
    None,
    False,
    (
        Partition(0, 1, (1, 2), (1, 2), 10, 100),
        Partition(1, 2, (2, 1), (2, 1), None, None),  # its broker was killed a moment ago
        Partition(2, None, (2,), (), None, None),
    ),
    {"retention.ms": "60000"},
)


def test_partitions_that_do_not_answer_have_no_end_and_the_others_have_their_lag() -> None:
    at = {("t", 0): 40, ("t", 1): 7, ("t", 2): 8}
    found = measured(waiting([("t", 2), ("t", 1), ("t", 0)], [READ], at), None)
    assert [(each.position, each.end, each.state) for each in found.partitions] == [
        (40, 100, ""),
        (7, None, "silent"),
        (8, None, "offline"),
    ]
    assert (found.total, len(found.unknown)) == (60, 2)


def test_start_that_only_the_partition_could_say_is_not_known() -> None:
    begin = {("t", 0): EARLIEST, ("t", 1): LATEST, ("t", 2): EARLIEST, ("t", 9): EARLIEST}
    found = waiting([("t", 0), ("t", 1), ("t", 2), ("t", 9)], [READ], begin)
    assert [(each.position, each.known) for each in found] == [(10, True), (None, False), (None, False), (None, False)]
    assert [each.position for each in waiting([("t", 0)], [READ], None)] == [None]


def test_partition_that_joined_without_its_first_offsets_has_lost_them() -> None:
    """As Spark has it, which begins a partition that was not there before at offset 0."""
    [found] = waiting([("t", 0)], [READ], {("t", 1): 7})
    assert (found.position, found.expired, found.lag) == (0, 10, 100)


def test_states_of_partitions_and_retention_of_topics() -> None:
    assert condition.states([READ]) == {"silent": ["t-1"], "offline": ["t-2"]}
    kept = Topic("forever", None, False, (), {"cleanup.policy": "compact", "retention.ms": "60000"})
    assert condition.retention([READ, kept]) == {"t": 60.0}


def test_positions_that_a_person_moved_are_judged_from_there_on() -> None:
    def entry(batch: int, begin: int, end: int, again: list[OffsetRange] | None = None) -> Entry:
        return Entry("p", "q", batch, "", "earliest", [OffsetRange("t", 0, begin, end)], {}, {}, {}, again=again or [])

    before, after = [entry(0, 0, 5), entry(1, 5, 9)], [entry(3, 2, 6)]
    seek = entry(2, 2, 2, [OffsetRange("t", 0, 2, 9)])
    assert since_seek([*before, seek, *after]) == [seek, *after]
    assert since_seek(before) == before
    assert since_seek([]) == []


def test_batch_is_cold_when_it_is_the_first_after_a_start(home: Home) -> None:
    events = EventLog(home.events)
    for batch, starts in enumerate([1, 0, 3, 0]):
        for _ in range(starts):
            events.append("started")
        events.append("batch", batch=batch, seconds=1.0)
    assert [(each.batch, each.cold) for each in ran([entry(n) for n in range(5)], events)] == [
        (0, True),
        (1, False),
        (2, True),
        (3, False),
    ]


def test_run_begins_with_its_lock_and_is_counted_from_its_engine_on(home: Home) -> None:
    events = EventLog(home.events)
    events.append("started")  # of the run before
    [before] = events.last(["started"], 1)
    with home.held():
        os.utime(home.lock, (before.time.timestamp() + 100,) * 2)
        assert began(home, events) == pytest.approx(before.time.timestamp() + 100)
        os.utime(home.lock, (before.time.timestamp() - 100,) * 2)
        assert began(home, events) == pytest.approx(before.time.timestamp())
