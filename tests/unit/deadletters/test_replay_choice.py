"""Which of the wanted letters a replay takes, and what it says of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from penstock.deadletters import choice as replay_choice
from penstock.deadletters.browse import Death, Letter
from penstock.deadletters.dead_letter import DeadLetter
from penstock.deadletters.replays import Chosen
from penstock.spec.model import Pipeline

PIPELINE = Pipeline.model_validate(
    {
        "name": "p",
        "kafka": {"bootstrap": "unused"},
        "source": {"topics": {"t": {"value": {"format": "json", "schema": {"fields": {"a": "int"}}}}}},
        "sinks": {name: {"from": "t", "delta": {"path": name}} for name in ("lake", "state")},
    }
)
DEATH = Death("stream", "q", 3, "sink", "missing-field", "", sinks="state")
LETTER = Letter("t", 1, 17, 0, 10, (DEATH,))


@pytest.mark.parametrize(
    ("sinks", "gone"),
    [("state", None), ("lake,state", None), (None, None), ("former", "former"), ("a,lake,b", "a, b")],
)
def test_letter_of_a_sink_that_is_no_longer_in_the_spec_is_left_out(sinks: str | None, gone: str | None) -> None:
    death = replace(DEATH, sinks=sinks, stage="sink" if sinks else "decode")
    picked, left_out = replay_choice._picked(PIPELINE, [replace(LETTER, deaths=(death,))], None)
    assert len(picked) == (gone is None)
    assert list(left_out) == ([] if gone is None else [f"meant for what is no longer a sink of the spec: {gone}"])


def test_former_sink_of_a_death_that_a_replay_has_answered_is_no_matter() -> None:
    again = replace(DEATH, query="r", stage="decode", sinks=None)
    letter = replace(LETTER, deaths=(replace(DEATH, sinks="former"), again), answered=frozenset({"q"}))
    assert replay_choice._picked(PIPELINE, [letter], None)[0] == [letter]


def test_letter_that_expires_between_the_two_reads_is_left_out() -> None:
    other = replace(LETTER, offset=18)
    there = DeadLetter(b"k", None, [], "t", 1, 18, 0, 0, "sink", "missing-field", "", "p", "q", 3, sinks="state")
    choice = replay_choice._with_bytes([LETTER, other], [there], {"lake", "state"}, Counter({"another reason": 2}))
    assert choice.letters == [(Chosen("t", 1, 18, 0, ["q"], ["lake"]), there)]
    assert choice.left_out == {"another reason": 2, "the letter has expired just now": 1}
    assert replay_choice._with_bytes([other], [there], set(), Counter()).left_out == {}


def test_letters_that_die_again_make_room_for_those_that_a_limit_left_out() -> None:
    every = [replace(LETTER, offset=offset) for offset in range(8)]
    names: list[str] = []
    took: list[list[int]] = []
    for name in ("b", "10", "a", "9"):  # all of them die again each time
        picked, left_out = replay_choice._picked(PIPELINE, replay_choice._in_turn(every, names), 3)
        assert left_out == {"over the limit of one replay: the same command takes them next": 5}
        took.append([each.offset for each in picked])
        names.append(name)
        every = [replace(each, replays=(*each.replays, name)) if each in picked else each for each in every]
    assert took == [[0, 1, 2], [3, 4, 5], [6, 7, 0], [1, 2, 3]]
