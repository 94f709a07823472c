"""What `penstock run` shows of a run that reads just a range."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.two_batches import ENTRIES, PIPELINE

from penstock.checkpoint.home import Home
from penstock.cli.live import JsonLines, Lines
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
