"""Which seeks are refused, case by case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.checkpoints import begun, entry

from penstock.checkpoint.ledger import Entry
from penstock.errors import BadArgument, SeekRefused
from penstock.operations import seek
from penstock.operations.refusal import Move, moved, refusal
from penstock.operations.seek_target import Wanted
from penstock.record import OffsetRange
from penstock.spec.model import Pipeline

READ = [entry(0), entry(1)]  # offsets 0 to 20 of two partitions
ORDERED = {"delta": {"path": "lake", "upsert": {"key": ["id"], "order_by": "at"}}}
SINKS: dict[str, dict[str, Any]] = {
    "delta append": {"delta": {"path": "lake"}},
    "parquet": {"parquet": {"path": "files"}},
    "postgres append": {"postgres": {"url": "${env:DATABASE}", "table": "t"}},
    "upsert without an order": {"delta": {"path": "lake", "upsert": {"key": ["id"]}}},
    "kafka": {"kafka": {"topic": "out", "value": {"format": "json"}}},
    "kafka at least once": {"kafka": {"topic": "out", "value": {"format": "json"}, "guarantee": "at-least-once"}},
}


def pipeline(*sinks: dict[str, Any]) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "payments",
            "kafka": {"bootstrap": "unused"},
            "source": {"topics": {"payments": {"value": {"format": "string"}}}},
            "sinks": {f"sink-{n}": {"from": "payments", **sink} for n, sink in enumerate(sinks)},
        }
    )


def judged(
    to: int, *sinks: dict[str, Any], at: int = 20, entries: list[Entry] | None = None, stateful: bool = False
) -> str | None:
    moves = [Move("payments", 0, at, to), Move("payments", 1, 20, 20)]
    found = refusal(pipeline(*sinks), moves, READ if entries is None else entries, stateful=stateful)
    assert found is None or isinstance(found, SeekRefused | BadArgument)
    return found.what if found else None


@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
def test_forward_goes_with_every_sink_and_back_over_what_was_read_with_none_of_these(sink: dict[str, Any]) -> None:
    assert judged(50, sink) is None
    assert judged(19, sink) == "sink 'sink-0' would hold records twice"


@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
def test_back_over_what_was_only_skipped_goes_with_every_sink(sink: dict[str, Any]) -> None:
    skip = replace(entry(2), ranges=[OffsetRange("payments", 0, 50, 50)], skipped=[OffsetRange("payments", 0, 20, 50)])
    assert judged(20, sink, at=50, entries=[*READ, skip]) is None
    assert "would hold records twice" in str(judged(19, sink, at=50, entries=[*READ, skip]))


def test_back_over_what_was_read_needs_an_order_in_every_sink_and_no_dead_letters() -> None:
    assert judged(5, ORDERED) is None
    assert judged(5, ORDERED, {"console": {}}) is None
    appended = SINKS["delta append"] | {"delta": {"path": "other"}}
    assert judged(5, ORDERED, appended) == "sink 'sink-1' would hold records twice"
    assert judged(5, ORDERED, entries=[entry(0, dead=1), entry(1)]) == "1 dead letter would be written a second time"
    assert judged(15, ORDERED, entries=[entry(0, dead=1), entry(1)]) is None  # that batch is not read again


def test_state_and_no_move_at_all_are_refused() -> None:
    assert "state" in str(judged(50, ORDERED, stateful=True))
    assert judged(20, ORDERED) == "the next batch begins there already"


def test_ledger_with_a_hole_proves_no_offset_unread() -> None:
    hole = [replace(READ[1], accepted=["ledger-missing"])]
    assert judged(5, SINKS["delta append"], entries=hole) == "sink 'sink-0' would hold records twice"
    [move] = moved({("payments", 0): 47}, {("payments", 0): 15}, hole)
    assert (move.again, move.unread) == (32, 0)


@pytest.mark.parametrize(
    ("to", "counts"), [(50, (3, 0, 0)), (47, (0, 0, 0)), (30, (0, 0, 17)), (20, (0, 0, 27)), (15, (0, 5, 27))]
)
def test_offsets_that_were_only_skipped_are_not_read_again(to: int, counts: tuple[int, int, int]) -> None:
    [move] = moved({("payments", 0): 47}, {("payments", 0): to}, READ)  # 20 to 47 were skipped
    assert (move.skipped, move.again, move.unread) == counts


@pytest.mark.parametrize("dry_run", [True, False])
def test_before_the_first_batch_a_refused_seek_says_where_the_pipeline_begins(tmp_path: Path, dry_run: bool) -> None:
    home = begun(tmp_path)
    moving = pipeline({"console": {}}).model_copy(update={"checkpoint": str(tmp_path)})
    for note, where in (("", "`start:` says"), ('{"of_pipeline": "old"}', "where 'old' was when it was forked")):
        if note:
            (home.path / "fork.json").write_text(note)
        with pytest.raises(SeekRefused) as refused:
            (seek.rehearse if dry_run else seek.seek)(moving, Wanted("latest"))
        assert where in str(refused.value.cause)
        assert ("start:" in str(refused.value.cause)) == (not note)
