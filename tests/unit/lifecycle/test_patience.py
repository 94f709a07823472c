"""What is tried again, for how long, and when the registry is given up."""

from __future__ import annotations

import pytest

from penstock.errors import KafkaUnreachable, PenstockError, RegistryUnreachable, SinkBusy, TopicMissing
from penstock.lifecycle.retry_policy import RETRIES, Again, Patience

KAFKA, REGISTRY = KafkaUnreachable("away"), RegistryUnreachable("away")


def waited(patience: Patience, error: PenstockError, now: float, until: float) -> tuple[float, Again | None]:
    """Fail again and again, as a run would, until the answer is another one."""
    again = patience.failed(error, now)
    while again is not None and not again.give_up and now < until:
        now += again.after_s
        again = patience.failed(error, now)
    return now, again


def test_what_nobody_can_wait_for_ends_at_once() -> None:
    assert Patience(300).failed(TopicMissing("no topic"), 0) is None


@pytest.mark.parametrize("error", [KAFKA, SinkBusy("locked")])
def test_silence_is_waited_for_longer_and_longer_and_in_the_end_no_more(error: PenstockError) -> None:
    patience = Patience(None)
    answers = [patience.failed(error, second) for second in range(RETRIES + 1)]
    assert [each and each.after_s for each in answers[:8]] == [1, 2, 5, 10, 20, 30, 30, 30]
    assert answers[RETRIES - 1] is not None
    assert answers[RETRIES] is None


def test_a_batch_that_ends_begins_the_count_anew() -> None:
    patience = Patience(None)
    for second in range(RETRIES):
        patience.failed(KAFKA, second)
    patience.batch_done()
    assert patience.failed(KAFKA, 100) == Again(1)


def test_the_registry_is_waited_for_as_long_as_the_spec_says_however_often_that_is() -> None:
    """An hour is more than a hundred attempts."""
    now, again = waited(Patience(3600), REGISTRY, 0, 10_000)
    assert 3600 <= now <= 3630
    assert again == Again(30, give_up=True)


def test_the_registrys_clock_begins_with_its_own_first_silence() -> None:
    patience = Patience(60)
    waited(patience, KAFKA, 0, 300)
    now, again = waited(patience, REGISTRY, 300, 10_000)
    assert now >= 360
    assert again is not None
    assert again.give_up


def test_what_fails_between_two_silences_begins_the_registrys_clock_anew() -> None:
    patience = Patience(60)
    patience.failed(REGISTRY, 0)
    waited(patience, KAFKA, 1, 200)
    assert patience.failed(REGISTRY, 201) == Again(30)
    assert patience.failed(REGISTRY, 261) == Again(30, give_up=True)


def test_a_registry_that_was_given_up_and_still_fails_the_batch_is_counted() -> None:
    patience = Patience(0)
    assert patience.failed(REGISTRY, 0) == Again(1, give_up=True)
    answers = [patience.failed(REGISTRY, second) for second in range(RETRIES + 1)]
    assert not any(each.give_up for each in answers if each)
    assert answers[RETRIES] is None


def test_the_next_batch_that_meets_an_unknown_schema_waits_again() -> None:
    patience = Patience(60)
    waited(patience, REGISTRY, 0, 1000)
    patience.batch_done()
    assert patience.failed(REGISTRY, 5000) == Again(1)
    assert patience.failed(REGISTRY, 5059) == Again(2)


def test_registry_and_kafka_that_fail_in_turns_do_not_go_on_for_ever() -> None:
    patience = Patience(3600)
    answers = [patience.failed(KAFKA if n % 2 else REGISTRY, n * 30) for n in range(2 * RETRIES + 2)]
    assert answers[-1] is None
