"""How long a transaction waits for the records it has sent."""

from __future__ import annotations

import time

import pytest

from penstock.errors import Fenced, KafkaUnreachable
from penstock.kafka.transaction import flushed


def test_waits_for_as_long_as_records_are_acknowledged() -> None:
    asked: list[float] = []
    left = iter([900_000, 400_000, 1, 0])

    def flush(seconds: float) -> int:
        asked.append(seconds)
        return next(left)

    flushed(flush, 1_000_000, time.monotonic() + 900, "records")
    assert asked == [30.0] * 4


def test_nothing_waiting_is_nothing_to_wait_for() -> None:
    flushed(lambda _: pytest.fail("asked"), 0, time.monotonic() - 1, "records")


@pytest.mark.parametrize("seconds", [900, 0])  # also when the transaction has expired: a new one may find Kafka back
def test_no_record_acknowledged_in_one_wait_is_a_broker_that_is_away(seconds: float) -> None:
    with pytest.raises(KafkaUnreachable, match="none of 5 was acknowledged") as raised:
        flushed(lambda _: 5, 5, time.monotonic() + seconds, "records")
    assert raised.value.retryable


def test_transaction_that_expires_is_not_tried_again_as_it_is() -> None:
    left = iter(range(100, 0, -1))

    def flush(seconds: float) -> int:
        assert seconds == 1.0
        time.sleep(0.1)
        return next(left)

    with pytest.raises(Fenced, match="open for as long as it may be") as raised:
        flushed(flush, 1000, time.monotonic() + 0.3, "records")
    assert not raised.value.retryable
    assert raised.value.next_command == "raise `transaction_timeout` of the sink, or lower `rate.max_offsets`"


def test_last_records_that_are_acknowledged_at_the_last_moment_are_in_time() -> None:
    flushed(lambda _: 0, 10, time.monotonic() - 1, "records")
