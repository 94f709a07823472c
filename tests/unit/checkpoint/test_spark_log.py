"""Spark's checkpoint as files of the shape Spark writes them in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointForeign
from penstock.record import OffsetRange


def checkpoint(path: Path, start: dict[str, dict[str, int]], *ends: dict[str, dict[str, int]]) -> SparkLog:
    """The files as Spark leaves them, with the zero byte and the checksums beside them."""
    for name in ("offsets", "commits", "sources/0"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"5f1c"}')
    (path / "sources/0/0").write_bytes(b"\x00v1\n" + json.dumps(start).encode())
    for batch, end in enumerate(ends):
        (path / f"offsets/{batch}").write_text('v1\n{"batchWatermarkMs":0,"conf":{}}\n' + json.dumps(end))
        (path / f"offsets/.{batch}.crc").write_bytes(b"crc\x00")
    return SparkLog(path)


def test_directory_without_a_checkpoint_has_no_query_and_no_batches(tmp_path: Path) -> None:
    log = SparkLog(tmp_path / "missing")
    assert (log.query_id(), log.planned(), log.committed()) == (None, None, None)


def test_ranges_of_a_batch_go_from_the_end_of_the_last_one_to_its_own(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, {"a": {"0": 5, "1": 0}}, {"a": {"0": 9, "1": 0}}, {"a": {"0": 9, "1": 3}})
    assert log.query_id() == "5f1c"
    assert log.ranges(0) == [OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 0, 0)]
    assert log.ranges(1) == [OffsetRange("a", 0, 9, 9), OffsetRange("a", 1, 0, 3)]


def test_partition_and_topic_found_while_running_are_read_from_their_first_offset(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, {"a": {"0": 5}}, {"a": {"0": 6}}, {"a": {"0": 7, "1": 4}, "b": {"0": 2}})
    assert log.ranges(1) == [OffsetRange("a", 0, 6, 7), OffsetRange("a", 1, 0, 4), OffsetRange("b", 0, 0, 2)]


def test_newest_batch_is_told_by_number_and_not_by_name(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, {"a": {"0": 0}}, *({"a": {"0": n}} for n in range(11)))
    for name in ("9", "8", ".9.crc", "10.tmp", "x"):
        (tmp_path / "commits" / name).write_text("v1\n{}")
    assert log.planned() == 10
    assert log.committed() == 9


@pytest.mark.parametrize("said", ["", "not json", "[]", "null", "1", '{"name":"x"}', "\x00\x00"])
def test_damaged_metadata_is_a_foreign_checkpoint_and_never_a_missing_one(tmp_path: Path, said: str) -> None:
    (tmp_path / "metadata").write_text(said)
    with pytest.raises(CheckpointForeign):
        SparkLog(tmp_path).query_id()


def test_metadata_that_is_a_directory_is_a_foreign_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    with pytest.raises(CheckpointForeign):
        SparkLog(tmp_path).query_id()


@pytest.mark.parametrize(
    "said", ["", "v1\n{}\n-", "v1\n{}\n[1]", 'v1\n{}\n{"a":[1]}', 'v1\n{}\n{"a":{"0":null}}', "v1\n{}\n{"]
)
def test_damaged_offsets_stop_with_the_file_that_is_damaged(tmp_path: Path, said: str) -> None:
    log = checkpoint(tmp_path, {"a": {"0": 0}}, {"a": {"0": 1}}, {"a": {"0": 2}})
    (tmp_path / "offsets/0").write_text(said)
    for batch in (0, 1):
        with pytest.raises(CheckpointForeign) as raised:
            log.ranges(batch)
        assert str(tmp_path / "offsets/0") in raised.value.what


def test_missing_offsets_stop_instead_of_looking_like_an_empty_batch(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, {"a": {"0": 0}}, {"a": {"0": 1}})
    (tmp_path / "sources/0/0").unlink()
    with pytest.raises(CheckpointForeign):
        log.ranges(0)
    with pytest.raises(CheckpointForeign):
        log.ranges(7)


def test_range_says_how_many_offsets_it_holds_and_where_they_are() -> None:
    held = OffsetRange("payments.v1", 3, 10, 25)
    assert len(held) == 15
    assert str(held) == "payments.v1-3 [10, 25)"


@pytest.mark.parametrize(
    ("planned", "committed", "pending"),
    [([], [], None), ([0], [], 0), ([0], [0], None), ([0, 1], [0], 1), ([0, 1], [0, 1], None), ([0], [0, 1], None)],
)
def test_batch_is_pending_that_is_planned_and_not_committed(
    tmp_path: Path, planned: list[int], committed: list[int], pending: int | None
) -> None:
    for kind, batches in (("offsets", planned), ("commits", committed)):
        (tmp_path / kind).mkdir()
        for batch in batches:
            (tmp_path / kind / str(batch)).write_text("v1\n{}")
    assert SparkLog(tmp_path).pending() == pending


def test_batch_that_is_committed_while_it_is_asked_for_is_not_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the older commit taken for the newest one, with a batch planned after it."""
    log = checkpoint(tmp_path, {"a": {"0": 0}}, {"a": {"0": 1}})
    looked, batches = [], SparkLog._batches

    def and_go_on(self: SparkLog, kind: str) -> list[int]:
        found = list(batches(self, kind))
        looked.append(kind)
        number = len(looked) - 1
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
        (tmp_path / "offsets" / str(number + 1)).write_text("v1\n{}\n{}")
        return found

    monkeypatch.setattr(SparkLog, "_batches", and_go_on)
    assert log.pending() is None


def test_checksums_whose_file_is_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    log = checkpoint(tmp_path, {"a": {"0": 5}}, {"a": {"0": 9}}, {"a": {"0": 9}})
    (tmp_path / "commits/0").write_text("v1\n{}")
    for batch in (0, 1):
        (tmp_path / f"commits/.{batch}.crc").write_bytes(b"crc\x00")
    (tmp_path / "offsets/1").unlink()
    log.remove_lone_checksums()
    assert [each.name for each in sorted((tmp_path / "commits").iterdir())] == [".0.crc", "0"]
    assert [each.name for each in sorted((tmp_path / "offsets").iterdir())] == [".0.crc", "0"]
