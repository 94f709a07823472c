"""Positions that an operator gives, as offsets."""

from __future__ import annotations

import pytest

from penstock.errors import BadArgument, OffsetsVanished
from penstock.runtime.positions import readable, within
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
    with pytest.raises(OffsetsVanished):
        readable((10, 20), 15, offset, WHERE)
