"""Which letters are meant, how a replay cuts them into batches, and what it writes down."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock import record
from penstock.checkpoint.home import Home
from penstock.deadletters import replays
from penstock.deadletters.browse import Death, Letter, Wanted
from penstock.deadletters.dead_letter import DeadLetter
from penstock.deadletters.replays import Chosen, Replay
from penstock.errors import BadArgument
from penstock.record import CLASSES, STAGES, OffsetRange
from penstock.spec.start import moment

DEATH = Death("stream", "q", 3, "decode", "wrong-type", 'n: expected int, got string; the value is "x"')
LETTER = Letter("t", 1, 17, 1_700_000_000_000, 10, (DEATH,))


@pytest.mark.parametrize(
    ("wanted", "holds"),
    [
        (Wanted(), True),
        (Wanted(topic="t", stage="decode", error_class="wrong-type"), True),
        (Wanted(topic="u"), False),
        (Wanted(stage="sink"), False),
        (Wanted(error_class="malformed"), False),
        (Wanted(reason="expected int"), True),
        (Wanted(reason="expected float"), False),
        (Wanted(since="2023-11-14T22:13:20Z"), True),
        (Wanted(since="2023-11-14T22:13:20.001Z"), False),
        (Wanted(until="2023-11-14T22:13:20Z"), False),
        (Wanted(until="2023-11-14T22:13:20.001Z"), True),
        (Wanted(ids=("t:1:17", "t:1:18")), True),
        (Wanted(ids=("t:1:18",)), False),
        (Wanted(ids=("t:1:17",), topic="u"), False),
    ],
)
def test_every_word_that_is_given_must_hold(wanted: Wanted, holds: bool) -> None:
    assert wanted.holds(LETTER) is holds


@pytest.mark.parametrize(("word", "there"), [("stage", STAGES), ("error_class", CLASSES)])
def test_stage_or_class_that_no_letter_can_have_is_refused_and_those_there_are_are_named(
    word: str, there: tuple[str, ...]
) -> None:
    for each in there:
        Wanted(**{word: each})
    with pytest.raises(BadArgument) as refused:
        Wanted(**{word: "nonsense"})
    assert "'nonsense'" in refused.value.what
    assert all(each in str(refused.value.cause) for each in there)


def test_every_error_class_that_is_written_can_be_asked_for() -> None:
    named = {name for name in vars(record) if name.isupper()}
    lines = Path(record.__file__).read_text().split("# Error classes of dead letters", 1)[1].split("CLASSES = ")[0]
    classes = {line.split(" = ")[0] for line in lines.splitlines() if " = " in line}
    assert classes <= named
    assert sorted(getattr(record, name) for name in classes) == sorted(CLASSES)


def test_last_death_is_the_one_that_is_asked_about_and_a_group_of_stats_is_a_reason() -> None:
    again = replace(DEATH, by="replay 1", query="r", error_class="out-of-range", reason="tags[7]: 99 is not a short")
    letter = replace(LETTER, deaths=(DEATH, again), answered=frozenset({"q"}))
    assert Wanted(error_class="out-of-range").holds(letter)
    assert not Wanted(error_class="wrong-type").holds(letter)
    assert Wanted(reason="tags[…]: … is not a").holds(letter)
    assert letter.unanswered == [again]


def test_time_is_a_moment_or_how_long_ago() -> None:
    assert moment("1970-01-01T00:00:01Z") == 1000
    assert abs(moment("2h") - (time.time() - 7200) * 1000) < 5000
    with pytest.raises(BadArgument, match="is no time"):
        moment("yesterday")


def pair(partition: int, offset: int, timestamp_ms: int, value: bytes = b"x") -> tuple[Chosen, DeadLetter]:
    letter = DeadLetter(
        None, value, [], "t", partition, offset, timestamp_ms, 0, "decode", "malformed", "", "p", "q", 0
    )
    return Chosen("t", partition, offset, timestamp_ms, ["q"], []), letter


def test_batches_are_bounded_and_keep_the_order_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "LETTERS_PER_BATCH", 3)
    monkeypatch.setattr(replays, "BYTES_PER_BATCH", 100)
    pairs = [pair(n % 2, n, 1000 - n, b"x" * 40) for n in range(8)] + [pair(0, 90, 0, b"y" * 500), pair(1, 91, 0)]
    Random(3).shuffle(pairs)
    cut = list(replays.cut(pairs))
    assert sorted(o.offset for part in cut for o, _ in part) == sorted(c.offset for c, _ in pairs)
    assert all(len(part) == 1 or sum(map(replays.size_of, (e for _, e in part))) <= 100 for part in cut)
    monkeypatch.setattr(replays, "BYTES_PER_BATCH", 10_000)
    assert max(map(len, replays.cut(pairs))) == 3
    for partition in (0, 1):
        offsets = [c.offset for part in cut for c, _ in part if c.partition == partition]
        assert offsets == sorted(offsets)


def test_list_is_written_down_whole_and_its_ranges_cover_letters_with_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "LETTERS_PER_BATCH", 2)
    replay = Replay("1", Home(tmp_path / "1"))
    replay.home.path.mkdir()
    replays.write_down(replay, {"reason": "x"}, [pair(0, 5, 1), pair(0, 900, 2), pair(1, 40, 3), pair(0, 901, 4)])
    assert (replay.wanted, replay.batches, replay.left) == ({"reason": "x"}, range(2), range(2))
    assert replay.log.ranges(0) == [OffsetRange("t", 0, 5, 901), OffsetRange("t", 1, 40, 40)]
    assert replay.log.ranges(1) == [OffsetRange("t", 0, 901, 902), OffsetRange("t", 1, 40, 41)]
    assert [c.offset for c in replay.chosen(0)] == [letter.offset for letter in replay.letters(0)] == [5, 900]
    replay.commit(0)
    assert replay.left == range(1, 2)
    assert not (replay.home.spark / "letters" / "0").exists()
    assert len(replay.chosen(0)) == 2
