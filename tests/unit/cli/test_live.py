"""What `penstock run` shows of a run that reads just a range."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.two_batches import ENTRIES, PIPELINE

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import SinkCount, ViewCount
from penstock.cli.live import JsonLines, Lines, totals
from penstock.record import OffsetRange

BATCH = replace(ENTRIES[0], ranges=[OffsetRange("t", 0, 2, 5)])


@pytest.mark.parametrize("kind", [Lines, JsonLines])
def test_backfill_shows_its_own_progress_and_does_not_ask_where_the_stream_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: type[Lines] | type[JsonLines]
) -> None:
    shown = kind()
    shown.bounded({("t", 0): 2}, {("t", 0): 8})
    shown.started(PIPELINE, Home(tmp_path))
    shown.batch_done(BATCH, 1.5)
    shown.close()
    said = capsys.readouterr()
    if kind is Lines:
        assert said.err.splitlines()[-1].endswith("; 3 of 6 offsets to go, 2/s, 2 s left")
        assert "lag" not in said.err
    else:
        batch = json.loads(said.out.splitlines()[-1])
        assert (batch["left"], "lag" in batch) == (3, False)


def test_batch_and_sums_say_dropped_of_rules_only_and_name_what_a_sink_was_not_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = ViewCount(read=20, passed=15, dead=1, dropped={"known": 4})
    sinks = {"all": SinkCount(15, 0), "late": SinkCount(0, 15), "sums": SinkCount(3, None)}
    shown = Lines()
    shown.bounded({("t", 0): 2}, {("t", 0): 8})
    shown.started(PIPELINE, Home(tmp_path))
    shown.batch_done(replace(BATCH, views={"t": count}, sinks=sinks), 1.5)
    shown.close()
    said = capsys.readouterr().err.splitlines()[-1]
    assert "read 20, all 15, late 0, sums 3, dead letters 1, dropped 4, 15 left out before sink late in 1.5 s;" in said
    facts = shown.summary()
    assert (facts["dropped"], facts["left_out"]) == (4, {"all": 0, "late": 15, "sums": 0})


def test_line_of_a_batch_and_of_a_run_say_what_an_upsert_superseded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = ViewCount(read=23_000, passed=22_954, dead=46)
    batch = replace(BATCH, views={"t": count}, sinks={"pg": SinkCount(500, 0, superseded=22_454)})
    shown = Lines()
    shown.bounded({("t", 0): 2}, {("t", 0): 8})
    shown.started(PIPELINE, Home(tmp_path))
    shown.batch_done(batch, 1.5)
    shown.close()
    said = capsys.readouterr().err.splitlines()[-1]
    assert "read 23,000, pg 500, dead letters 46, 22,454 superseded in sink pg in 1.5 s;" in said
    assert totals(shown.progress, 1.5) == (
        "23,000 records in 1 batch (1.5 s): 500 to pg, 46 dead letters, 0 dropped, 22,454 superseded in sink pg"
    )
    assert shown.summary()["superseded"] == {"pg": 22_454}


def test_topic_that_is_held_back_is_told_when_it_appears_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines()
    shown._tell_of(["old"])  # the start has told
    assert capsys.readouterr().err == ""
    for held in (["new", "old"], ["new", "old"]):
        shown._tell_of(held)
    told = "held back, because they are new: new; to read them: penstock run FILE --accept new-topics"
    assert capsys.readouterr().err.count(told) == 1
