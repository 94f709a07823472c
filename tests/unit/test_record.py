"""The bounds of time that every stage agrees on are those of the calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from penstock import record

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def test_first_and_last_are_those_of_the_years_1_to_9999() -> None:
    assert EPOCH.date() + timedelta(days=record.FIRST_DAY) == date.min
    assert EPOCH.date() + timedelta(days=record.LAST_DAY) == date.max
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert (first - EPOCH) // timedelta(seconds=1) == record.FIRST_SECOND
    assert (last - EPOCH) // timedelta(seconds=1) == record.LAST_SECOND
    assert (first - EPOCH) // timedelta(microseconds=1) == record.FIRST_MICROSECOND
    assert (last - EPOCH) // timedelta(microseconds=1) == record.LAST_MICROSECOND
