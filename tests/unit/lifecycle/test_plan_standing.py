"""What `plan` concludes from checkpoint, ledger and Kafka's offsets, without any of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, SinkCount, TopicFact
from penstock.lifecycle.changes import changes
from penstock.source.position import Standing, Waiting, refusals, running, vanished
from penstock.spec.model import Pipeline


def pipeline(topics: list[str], sinks: list[str]) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {name: {"value": {"format": "string"}} for name in topics}},
            "sinks": {name: {"from": topics[0], "delta": {"path": name}} for name in sinks},
        }
    )


def entry(topics: list[str], sinks: list[str]) -> Entry:
    facts: dict[str, Any] = {"topics": {name: TopicFact(name, "id") for name in topics}}
    return Entry(
        "p",
        "q",
        3,
        "2026-01-01T00:00:00Z",
        "earliest",
        [],
        views={},
        sinks={s: SinkCount(1, 0) for s in sinks},
        **facts,
    )


def test_before_the_first_batch_nothing_has_changed() -> None:
    assert changes(pipeline(["a"], ["s"]), None, ["a"]) == []


def test_topics_and_sinks_that_came_and_went_since_the_last_batch() -> None:
    found = changes(pipeline(["a", "b"], ["s", "new"]), entry(["a", "old"], ["s", "gone"]), ["a", "b"])
    assert [(each.what, each.name) for each in found] == [
        ("topic-added", "b"),
        ("topic-removed", "old"),
        ("sink-added", "new"),
        ("sink-removed", "gone"),
    ]


@pytest.mark.parametrize(
    ("next_", "of_a_checkpoint", "of_the_spec"),
    [
        (9, ["offsets-vanished"], ["start-not-there"]),
        (10, [], []),
        (20, [], []),
        (21, ["offsets-went-back"], ["start-not-there"]),
    ],
)
def test_next_offset_must_be_one_that_kafka_holds_or_the_end(
    next_: int, of_a_checkpoint: list[str], of_the_spec: list[str]
) -> None:
    for query, codes in (("q", of_a_checkpoint), (None, of_the_spec)):
        stands = Standing("earliest", query, 1, partitions=[Waiting("a", 0, 0, 5, 5), Waiting("a", 1, 10, next_, 20)])
        found = refusals(stands, pipeline(["a"], ["s"]).source)
        assert [each.code for each in found] == codes
        assert all(str(each.cause).startswith("a-1") and each.next_command for each in found)


def test_each_range_that_is_gone_is_named_with_how_many_offsets_it_has() -> None:
    stands = Standing("earliest", "q", 1, partitions=[Waiting("a", n, 7, at, 9) for n, at in enumerate((3, 7, 6, 8))])
    found = vanished(stands)
    assert found is not None
    assert found.what == "5 offsets of 2 partitions expired unread"
    assert found.cause == "a-0 [3, 7) (4 offsets); a-2 [6, 7) (1 offset)"
    assert found.facts["offsets"] == 5


def test_what_expired_is_no_refusal_where_the_spec_goes_on_without_it() -> None:
    waits = [Waiting("a", 0, 10, 9, 20), Waiting("a", 1, 0, 21, 20)]
    source = pipeline(["a"], ["s"]).source.model_copy(update={"on_data_loss": "continue"})
    [back] = refusals(Standing("earliest", "q", 1, partitions=waits), source)
    assert back.code == "offsets-went-back"
    [wrong] = refusals(Standing("earliest", partitions=waits), source)
    assert wrong.cause == "a-1: offset 21 is wanted, Kafka holds 0 to 20"


def test_topic_that_is_no_longer_read_is_lost_to_the_checkpoint() -> None:
    found = vanished(Standing("earliest", "q", 1, not_read=["old"]))
    assert found is not None
    assert "offsets of old" in str(found.cause)


def test_lag_counts_what_is_above_the_next_offset_only() -> None:
    assert Standing("earliest", partitions=[Waiting("a", 0, 0, 5, 8), Waiting("a", 1, 0, 9, 7)]).lag == 3


def test_lock_tells_a_run_that_goes_on_from_one_that_has_ended(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert running(home) is None
    with home.held():
        assert running(home) == os.getpid()
    assert running(home) is None  # the file still names this process
    (home.path / "lock").write_text("")
    assert running(home) is None
