"""Records that the stream leaves out: of which batch they are, and for how long."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.batch.stateful import set_aside
from penstock.record import Failure, OffsetRange

BAD = {("events", 0, 7): Failure("failed-step", "1 / 0"), ("events", 1, 2): Failure("failed-step", "1 / 0")}


def test_records_stay_until_their_batch_is_committed_and_only_in_their_query(tmp_path: Path) -> None:
    file = tmp_path / "set-aside.json"
    assert set_aside.read(file, "q", None) == {}
    set_aside.write(file, "q", 3, BAD)
    assert set_aside.read(file, "q", 2) == BAD
    assert set_aside.read(file, "q", 3) == {}
    assert set_aside.read(file, "another", 2) == {}  # the checkpoint was made anew: its batch 3 is another one


def test_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    file = tmp_path / "set-aside.json"
    file.write_text(json.dumps({"batch": 3, "records": [["events", 0, 7, "failed-step", "1 / 0"]]}))
    assert list(set_aside.read(file, "q", 2)) == [("events", 0, 7)]


def test_record_belongs_to_the_batch_that_has_its_offset() -> None:
    """Where a checkpoint was brought back the numbers of batches are no longer those of before."""
    assert set_aside.within(BAD, [OffsetRange("events", 0, 0, 7), OffsetRange("events", 1, 0, 3)]).keys() == {
        ("events", 1, 2)
    }
    assert set_aside.within(BAD, [OffsetRange("events", 0, 7, 8), OffsetRange("other", 1, 0, 3)]).keys() == {
        ("events", 0, 7)
    }
