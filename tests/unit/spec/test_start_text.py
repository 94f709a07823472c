"""A start position in one line: what a change of it is told by."""

from __future__ import annotations

import json

import pytest

from penstock.spec.start import StartAt, start_text, start_text_of

OF_PARTITIONS = {"timestamp": {"orders": {"0": "2026-11-01T00:00:00Z", "1": "2026-11-01T02:00:00.250+02:00"}}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timestamp": "2026-11-01T00:00:00Z"}, {"timestamp": "2026-11-01T00:00:00Z"}),
        ({"timestamp": 1_793_491_200_000}, {"timestamp": "2026-11-01T00:00:00Z"}),
        (
            OF_PARTITIONS,
            {"timestamp": {"orders": {"0": "2026-11-01T00:00:00Z", "1": "2026-11-01T00:00:00.250Z"}}},
        ),
        (
            {"offsets": {"orders": {"0": 17}}, "others": "latest"},
            {"offsets": {"orders": {"0": 17}}, "others": "latest"},
        ),
    ],
)
def test_time_is_said_as_a_date(given: dict[str, object], said: dict[str, object]) -> None:
    assert json.loads(start_text(StartAt.model_validate(given))) == said


@pytest.mark.parametrize("given", [{"timestamp": "2026-11-01T00:00:00Z"}, OF_PARTITIONS])
def test_what_an_older_version_kept_as_milliseconds_is_the_same_start(given: dict[str, object]) -> None:
    start = StartAt.model_validate(given)
    kept = json.dumps(start.model_dump(exclude_defaults=True), sort_keys=True)
    assert "17934912" in kept  # as it was written then
    assert start_text_of(kept) == start_text(start) == start_text_of(start_text(start))


def test_position_that_is_a_word_stays_one() -> None:
    assert start_text_of(start_text("latest")) == "latest"


def test_time_that_no_calendar_has_stays_a_number() -> None:
    said = start_text(StartAt.model_validate({"timestamp": 10**17}))
    assert json.loads(said) == {"timestamp": 10**17}
    assert start_text_of(said) == said
