"""The example that stateful steps are held to has everything in it that they could get wrong."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.stateful import NO_KEY, RICH, RICH_PAIRS, Event, compared, events, firsts, pairs, sessions, windows


def batches(*runs: list[Event]) -> list[list[Event]]:
    """Four records a batch; each run ends with one that has none."""
    return [part for run in runs for part in (*(run[i : i + 4] for i in range(0, len(run), 4)), [])]


SEEN = batches(RICH["first"], RICH["second"])
AFTER_THE_RESTART = 3  # number of the first batch of the second run


def test_windows_of_several_records_some_late_and_some_still_open() -> None:
    closed, late, still_open = windows(SEEN, 60, 60, 90)
    assert max(closed.values()) > 2
    assert len(closed) > 4 and still_open > 0 and sum(late) > 0
    _, late_in_some, _ = windows(SEEN, 60, 20, 90)
    assert sum(late_in_some) > sum(late)  # records that missed one of their windows only


def test_sessions_that_a_record_joins_and_one_that_goes_on_after_the_restart() -> None:
    closed, late = sessions(SEEN, 40, 60)
    assert ("a", 0, 110, 5) in closed  # 0, 10 and 60, 70; and 45, which came later than they did
    assert ("b", 130, 190, 2) in closed  # 130 before the restart, 150 after it
    assert sum(late) > 0
    apart, _ = sessions([[event for event in part if event.at != 45] for part in SEEN], 40, 60)
    assert len(apart) == len(closed) + 1


def test_keys_that_come_again_before_and_after_they_are_forgotten() -> None:
    kept, late, twice = firsts(SEEN, 60)
    assert sum(late) > 0
    assert twice[0] and twice[1] and twice[AFTER_THE_RESTART]
    assert [event.key for event in kept].count("a") == 2
    assert [event.key for event in kept].count("c") == 1  # its second record came after the restart


def test_pairs_in_every_place_and_records_without_a_counterpart_on_both_sides() -> None:
    last = [Event("z", 5000)], [Event("y", 5000)]
    sides = []
    for runs, end in zip((RICH_PAIRS["left"], RICH_PAIRS["right"]), last, strict=True):
        numbered = iter(range(100))
        named: list[list[Event]] = [[Event(e.key, e.at, next(numbered)) for e in run] for run in runs]
        sides.append(batches(named[0], [*named[1], *end]))
    found, alone, alone_right, late = pairs(sides[0], sides[1], 50, (60, 30))
    assert [one.key for one in alone if one.key != "z"] == ["b", "a", NO_KEY, "c", "b"]
    assert [other.key for other in alone_right if other.key != "y"] == ["b", "d", NO_KEY, "e", "a"]
    assert sum(late) == 2

    def number(side: int, event: Event) -> int:
        return next(i for i, part in enumerate(sides[side]) if event in part)

    places = {(number(0, one), number(1, other)) for one, other in found}
    assert {(0, 0), (0, 1), (1, 3), (4, 1)} <= places  # in one batch, in two, and with the restart between, both ways
    assert any([pair[0] for pair in found].count(one) > 1 for one, _ in found)


def test_rich_example_is_run_with_one_round_too() -> None:
    ran: list[Any] = []

    @compared({"value": st.integers()}, {"value": events("a7")})
    def test(value: Any) -> None:
        ran.append(value)

    test()
    assert ran[0] == [Event("a", 7)]
