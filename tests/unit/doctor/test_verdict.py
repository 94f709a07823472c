"""Verdicts over the last commits of a partition."""

from __future__ import annotations

import pytest

from penstock.doctor.lag_verdict import Commit, verdict

CASES = {
    "nothing waits": ([(0, 10, 10), (10, 20, 20), (20, 30, 30)], 21, 30, True, "OK"),
    "caught up at some moment": ([(0, 10, 20), (10, 20, 20), (20, 30, 90)], 21, 99, True, "OK"),
    "the lag shrinks at times": ([(0, 10, 50), (10, 30, 60), (20, 60, 95)], 21, 99, True, "OK"),
    "read, and falling behind": ([(0, 10, 20), (10, 20, 40), (20, 30, 60)], 21, 65, True, "WARN"),
    "does not move": ([(0, 10, 20), (10, 10, 40), (20, 10, 60)], 21, 65, True, "STALL"),
    "does not move, nothing waits": ([(0, 10, 10), (10, 10, 10), (20, 10, 10)], 21, 10, True, "OK"),
    "nobody commits any more": ([(0, 10, 20), (10, 20, 40), (20, 30, 60)], 41, 90, True, "STOP"),
    "long ago, and nothing waits": ([(0, 10, 10), (10, 20, 20), (20, 30, 30)], 900, 30, True, "OK"),
    "not running, something waits": ([(0, 10, 10)], 1, 30, False, "STOP"),
    "not running, nothing waits": ([(0, 10, 10)], 1, 10, False, "OK"),
    "went back": ([(0, 10, 20), (10, 20, 40), (20, 15, 60)], 21, 90, True, "REWIND"),
    "too few commits to tell": ([(0, 10, 20), (10, 20, 40)], 500, 90, True, "OK"),
    "never committed": ([], 10, 90, True, "OK"),
}


@pytest.mark.parametrize(("commits", "now", "end", "running", "expected"), CASES.values(), ids=CASES.keys())
def test_verdict(commits: list[tuple[float, int, int]], now: float, end: int, running: bool, expected: str) -> None:
    assert verdict([Commit(*commit) for commit in commits], now, end, running=running) == expected


def test_run_is_not_silent_for_longer_than_it_exists() -> None:
    commits = [Commit(0, 10, 20), Commit(10, 20, 40), Commit(20, 30, 60)]
    assert verdict(commits, 500, 90, running=True) == "STOP"
    assert verdict(commits, 500, 90, running=True, since=485) == "WARN"  # its first batch is under way
    assert verdict(commits, 500, 90, running=True, since=479) == "STOP"  # for too long
    assert verdict(commits, 41, 90, running=True, since=5) == "STOP"  # it has committed since, and does no more


def test_partition_that_was_never_read_is_not_well_while_something_waits_and_nobody_runs() -> None:
    assert verdict([], 10, 90, running=False, begin=0) == "STOP"
    assert verdict([], 10, 90, running=False, begin=90) == "OK"
    assert verdict([], 10, 90, running=True, begin=0) == "OK"  # its first batch may be under way
