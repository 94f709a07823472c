"""A file that appears whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.own_log import synced


def test_file_appears_whole_in_place_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    with synced(file) as out:
        out.write("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failure_half_way_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path, error: type[BaseException]) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    with pytest.raises(error), synced(file) as out:
        out.write("half of it")
        raise error
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
