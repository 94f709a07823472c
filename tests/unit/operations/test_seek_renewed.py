"""A seek to a topic that was deleted and created again, rehearsed on checkpoint files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.checkpoints import checkpoint, commit_batch, entry, plan_batch

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.errors import BadArgument, SeekRefused, TopicRecreated
from penstock.kafka.admin import TopicFacts
from penstock.operations import seek as seeking
from penstock.operations.seek import Seek
from penstock.operations.seek_target import Wanted
from penstock.source.topics import ANEW, recreated
from penstock.spec.model import Pipeline

ACCEPTED = frozenset({"topic-recreated"})
BEGIN = Wanted("earliest", topics=("payments",), accepted=ACCEPTED)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Four batches up to offset 40 of two partitions. The topic that is there now has one, from offset 5 to 30."""
    there = seeking._There({"payments": TopicFacts(1, "id-2", 1)}, {("payments", 0): (5, 30)}, {("payments", 0): 30})
    monkeypatch.setattr(seeking, "_there", lambda *_: there)  # what Kafka would say
    return checkpoint(tmp_path)


def rehearsed(home: Home, wanted: Wanted = BEGIN) -> Seek:
    spec = {
        "name": "payments",
        "kafka": {"bootstrap": "unused"},
        "checkpoint": str(home.path),
        "source": {"topics": {"payments": {"value": {"format": "string"}}}},
        "sinks": {"lake": {"from": "payments", "delta": {"path": str(home.path / "lake")}}},
    }
    return seeking.rehearse(Pipeline.model_validate(spec), wanted)


def test_the_new_topic_begins_where_the_operator_says_and_nothing_of_the_old_one_is_read_again(home: Home) -> None:
    made = rehearsed(home)
    assert (made.batch, made.refused, made.renewed, made.taken_back) == (4, None, {"payments": "id-1"}, None)
    assert made.topics["payments"].id == "id-2"
    assert [(m.partition, m.at, m.to, m.skipped, m.again) for m in made.moves] == [(0, 5, 5, 0, 0)]
    [move] = rehearsed(home, Wanted("payments:0=9", accepted=ACCEPTED)).moves
    assert (move.to, move.skipped, move.again) == (9, 4, 0)


@pytest.mark.parametrize("wanted", [Wanted("earliest"), Wanted("latest", topics=("payments",))])
def test_nobody_begins_anew_by_accident(home: Home, wanted: Wanted) -> None:
    with pytest.raises(TopicRecreated, match="payments"):
        rehearsed(home, wanted)


def test_batch_that_was_planned_over_the_old_topic_is_taken_back_and_one_that_is_written_is_not(home: Home) -> None:
    plan_batch(home, 4)
    made = rehearsed(home)
    assert (made.batch, made.taken_back, made.refused) == (4, 4, None)
    Ledger(home.ledger).append(entry(4))  # only Spark's commit is missing
    made = rehearsed(home)
    assert (made.batch, made.taken_back) == (5, None)
    commit_batch(home, 4)
    assert rehearsed(home).batch == 5


def test_state_is_not_moved(home: Home) -> None:
    (home.spark / "state").mkdir()
    refused = rehearsed(home).refused
    assert isinstance(refused, SeekRefused)
    assert "keeps state" in refused.what


def test_batch_of_the_old_topic_is_no_position_and_a_topic_that_is_not_read_is_named(home: Home) -> None:
    with pytest.raises(BadArgument, match="created again after batch 2"):
        rehearsed(home, Wanted(to_batch=2, accepted=ACCEPTED))
    with pytest.raises(BadArgument, match="topic 'other' is not read"):
        rehearsed(home, Wanted("earliest", topics=("other",), accepted=ACCEPTED))


def test_advice_is_a_seek_where_one_can_be_made() -> None:
    command = "penstock checkpoint seek FILE --topic t --to earliest --accept topic-recreated"
    assert str(recreated("t", "a", "b", None).next_command).endswith(command)
    assert "new `checkpoint:`" in str(recreated("t", "a", "b", ANEW).next_command)
