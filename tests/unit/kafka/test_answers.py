"""Partitions whose leader does not answer: what is known of the others is used, and no number is made up."""

from __future__ import annotations

import pytest

from penstock.errors import BadArgument, KafkaUnreachable, TopicMissing
from penstock.kafka import admin, recent
from penstock.observe import tail
from penstock.spec.model import Pipeline


def test_number_of_a_leader_that_has_just_died_is_no_offset() -> None:
    admin.require_answers({("t", 0): 17, ("t", 1): -1})  # no record is as new as that
    with pytest.raises(KafkaUnreachable, match="no answer from 1 of 2 partitions") as silent:
        admin.require_answers({("t", 0): 17, ("t", 1): -1001})
    assert silent.value.facts == {"partitions": ["t-1"]}


def test_partitions_that_answer_can_be_read_and_the_others_are_named() -> None:
    assert recent.readable("t", {0: (0, 5), 1: (None, None), 2: (3, 3)}) == ({0: (0, 5), 2: (3, 3)}, (1,))
    assert tail.unread("t", [1]).startswith("not read: t-1; ")
    assert "t-9 and 2 more;" in tail.unread("t", range(12))


def test_nothing_that_can_be_read_is_an_error_that_sends_nobody_to_start_a_cluster() -> None:
    with pytest.raises(KafkaUnreachable) as none:
        recent.readable("t", {3: (None, None)})
    assert none.value.what == "t-3 cannot be read"
    assert none.value.next_command == "penstock topics FILE t --all"


def test_offsets_that_are_held_do_not_include_the_end() -> None:
    with pytest.raises(BadArgument) as wrong:
        recent.since({}, "t", {0: (0, 1144), 1: (7, 7)}, "99999")
    assert wrong.value.cause == (
        "t-0 holds 0 to 1143, the next record is 1144; t-1 holds no offsets, the next record is 7"
    )
    assert recent.since({}, "t", {0: (0, 1144)}, "1144") == {0: 1144}


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"t": {"value": {"format": "string"}}}},
            "sinks": {"lake": {"from": "t", "delta": {"path": "lake"}}},
        }
    )


def test_topic_that_the_spec_does_not_speak_of_is_not_created_by_apply(pipeline: Pipeline) -> None:
    def missing(name: str) -> TopicMissing:
        error = TopicMissing("no topic", next_command="penstock apply FILE", facts={"missing": [name]})
        return tail.not_there(pipeline, name, error)

    assert missing("t").next_command == "penstock apply FILE"
    assert missing("nosuch").next_command == "penstock topics FILE '*'"
