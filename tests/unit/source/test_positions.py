"""Positions that an operator gives, as offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.log import SparkLog
from penstock.errors import BadArgument, OffsetsWentBack, StartNotThere
from penstock.record import OffsetRange
from penstock.source.parse_position import readable, within
from penstock.source.start import starting_offsets
from penstock.source.topics import require_forward
from penstock.spec.source import Source
from penstock.spec.start import EARLIEST, LATEST

WHERE = ("orders", 0)


def test_the_end_is_before_the_first_record_of_an_open_transaction() -> None:
    assert readable((10, 20), 15, LATEST, WHERE) == 15
    assert readable((10, 20), 20, LATEST, WHERE) == 20
    assert readable((10, 20), 23, LATEST, WHERE) == 23  # more was written while Kafka was asked
    assert readable((10, 20), 15, EARLIEST, WHERE) == 10
    assert readable((10, 20), 15, 15, WHERE) == 15
    assert within((10, 20), LATEST, WHERE) == 20


@pytest.mark.parametrize("offset", [16, 20])
def test_an_offset_behind_an_open_transaction_is_refused_with_where_it_begins(offset: int) -> None:
    with pytest.raises(BadArgument, match=f"cannot be read up to offset {offset} yet") as refused:
        readable((10, 20), 15, offset, WHERE)
    assert "at offset 15" in str(refused.value.cause)


@pytest.mark.parametrize("offset", [9, 21])
def test_an_offset_that_kafka_does_not_hold_is_refused(offset: int) -> None:
    with pytest.raises(StartNotThere):
        readable((10, 20), 15, offset, WHERE)


def test_offsets_that_went_backwards_are_named_and_a_batch_without_offsets_is_none_of_them() -> None:
    require_forward([OffsetRange("t", 0, 4, 4), OffsetRange("t", 1, 4, 9)])
    with pytest.raises(OffsetsWentBack) as raised:
        require_forward([OffsetRange("t", 0, 4, 4), OffsetRange("t", 1, 9, 4)])
    assert "t-1 was read up to offset 9, and ends at 4" in str(raised.value.cause)
    assert raised.value.next_command
    assert len(OffsetRange("t", 1, 9, 4)) == 0  # so whoever only looks can look


def test_a_start_that_has_been_used_is_not_asked_for_again(tmp_path: Path) -> None:
    """Its records may have expired since; nobody listens at this address, so asking would fail."""
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/0/0").write_text('v1\n{"t":{"0":7}}')
    source = Source.model_validate(
        {"topics": {"t": {"value": {"format": "string"}}}, "start": {"timestamp": "2020-01-01T00:00:00Z"}}
    )
    nobody = {"bootstrap.servers": "127.0.0.1:1"}
    assert starting_offsets(nobody, source, {}, SparkLog(tmp_path)) == "earliest"
