"""What a batch has become: each record dead once, with the sinks that do not have it, and counts that add up."""

from __future__ import annotations

from dataclasses import replace

from penstock.batch.counts import Counted
from penstock.batch.result import Outcome
from penstock.checkpoint.ledger import SinkCount, TopicFact, ViewCount
from penstock.record import FAILED_STEP, TOO_LARGE, Failure
from penstock.sinks.contract import Rejected, Written

STEP, SIZE = Failure(FAILED_STEP, "by zero"), Failure(TOO_LARGE, "2 MB")
TOPICS = {"a": TopicFact("one", "id-a"), "b": TopicFact("two", "id-b")}
OUTCOME = Outcome(
    counted={"one": Counted(ViewCount(10, 8, 2), None), "two": Counted(ViewCount(5, 5, 0), None)},
    written={
        "lake": Written(6, superseded=1, rejected=[Rejected("a", 0, 3, SIZE)]),
        "out": Written(9, rejected=[Rejected("a", 0, 3, STEP), Rejected("b", 1, 7, SIZE)]),
    },
    fingerprints={"lake": 77, "out": None},
    over={"lake": "one", "out": None},
    failed={"out": {("a", 0, 3): STEP, ("a", 0, 4): STEP}},
)


def test_record_that_several_refuse_dies_once_of_the_first() -> None:
    assert OUTCOME.rejected == {("a", 0, 3): SIZE, ("b", 1, 7): SIZE}
    assert OUTCOME.failing == {("a", 0, 4): STEP}
    assert OUTCOME.dead == 5


def test_sinks_that_do_not_have_it_are_named() -> None:
    assert OUTCOME.sinks_without() == {("a", 0, 3): "lake,out", ("b", 1, 7): "out", ("a", 0, 4): "out"}


def test_counts_of_views_and_sinks() -> None:
    views = OUTCOME.view_counts(TOPICS)
    assert {name: (count.passed, count.rejected) for name, count in views.items()} == {"one": (8, 2), "two": (5, 1)}
    assert OUTCOME.sink_counts({"lake": 0.5, "out": 1.0}) == {
        "lake": SinkCount(6, 0, 77, superseded=1, rejected=1),
        "out": SinkCount(9, None, None, rejected=4, failed=2),
    }


def test_sink_that_holds_more_than_passed_counts_as_it_is_where_that_was_accepted() -> None:
    more = replace(OUTCOME, written={"lake": Written(20)}, failed={})
    assert more.sink_counts({"lake": 0.5})["lake"].dropped == -12
    assert more.sink_counts({"lake": 0.5}, lenient=True)["lake"] == SinkCount(20, None, 77)


def test_letters_are_sent_along_by_the_one_sink_there_is() -> None:
    assert OUTCOME.letters_sent_along is None
    assert Outcome({}, {"out": Written(1, letters=3)}, {}, {}).letters_sent_along == 3
