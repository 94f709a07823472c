"""What `penstock verify` prints of the counts."""

from __future__ import annotations

import pytest

from penstock.cli.verify import _counts
from penstock.verification.report import Report

STREAM = {"the stream": 15200}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({}, ""),
        (STREAM, ""),
        ({**STREAM, "backfill b": 0}, ""),
        ({**STREAM, "backfill b": 30, "replay 1": 8}, ": 15,200 by the stream, 30 by backfill b, 8 by replay 1"),
        ({**STREAM, "backfill b": 2, "backfill c": 3}, ": 15,200 by the stream, 5 by 2 backfills"),
    ],
)
def test_rows_of_a_sink_are_told_by_who_wrote_them(written: dict[str, int], said: str) -> None:
    report = Report("payments", sinks={"lake": 19}, proof={"lake": "by offset"}, written={"lake": written})
    assert next(_counts(report)) == (19, f"in sink lake (proven by offset){said}")
