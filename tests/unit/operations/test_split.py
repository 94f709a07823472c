"""A batch that is made smaller: which offsets it has then, and what the offset log looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointForeign
from penstock.operations.split import _rewritten, _shortened
from penstock.record import OffsetRange


@given(sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=20), share=st.floats(0, 1))
def test_shorter_batch_begins_where_it_began_and_has_no_more_than_asked_for(sizes: list[int], share: float) -> None:
    ranges = tuple(OffsetRange("t", at, 7 * at, 7 * at + size) for at, size in enumerate(sizes))
    most = int(sum(sizes) * share)
    cut = _shortened(ranges, most)
    assert sum(map(len, cut)) <= most
    assert bool(sum(map(len, cut))) == (most > 0)
    for old, new in zip(ranges, cut, strict=True):
        assert (new.topic, new.partition, new.start) == (old.topic, old.partition, old.start)
        assert 0 <= len(new) <= len(old)


def log(path: Path, *lines: str) -> Path:
    (path / "offsets").mkdir()
    (path / "offsets" / "7").write_text("\n".join(lines))
    (path / "offsets" / ".7.crc").write_bytes(b"of the old one")
    return path / "offsets"


def test_entry_is_rewritten_with_its_metadata_and_the_old_one_is_kept(tmp_path: Path) -> None:
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 5, "conf": {"a": "b"}})
    offsets = log(tmp_path, "v1", metadata, json.dumps({"t": {"0": 100, "1": 80}}))
    old = (offsets / "7").read_bytes()
    kept = _rewritten(offsets, 7, [OffsetRange("t", 0, 0, 50), OffsetRange("t", 1, 0, 40)])
    assert kept.read_bytes() == old
    assert (offsets / "7").read_text().splitlines()[:2] == ["v1", metadata]
    assert SparkLog(tmp_path).end_of(7) == {("t", 0): 50, ("t", 1): 40}
    assert SparkLog(tmp_path).planned() == 7  # what is kept is no batch
    assert not (offsets / ".7.crc").exists()
    again = _rewritten(offsets, 7, [OffsetRange("t", 0, 0, 25), OffsetRange("t", 1, 0, 20)])
    assert again != kept
    assert kept.read_bytes() == old


def test_entry_of_another_form_is_left_alone(tmp_path: Path) -> None:
    offsets = log(tmp_path, "v1", "{}", '{"t": {"0": 100}}', '{"u": {"0": 1}}')
    with pytest.raises(CheckpointForeign):
        _rewritten(offsets, 7, [])
    assert sorted(file.name for file in offsets.iterdir()) == [".7.crc", "7"]
