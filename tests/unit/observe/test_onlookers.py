"""Onlookers can neither change a run nor stop it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.two_batches import ENTRIES

from penstock.checkpoint.log import SparkLog
from penstock.errors import KafkaUnreachable
from penstock.observe.listeners import Everyone, Following, batch_facts
from penstock.observe.metrics import Meters
from penstock.record import OffsetRange
from penstock.watch import Watch


class Listening(Watch):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def warn(self, text: str) -> None:
        self.heard.append(text)


class Failing(Watch):
    def warn(self, text: str) -> None:
        raise OSError(28, "No space left on device")


def test_onlooker_that_fails_is_said_once_and_left_out() -> None:
    run, other = Listening(), Listening()
    everyone = Everyone(run, [Failing(), other])
    everyone.warn("one")
    everyone.warn("two")
    assert run.heard == ["one", "Failing is off until the next start: [Errno 28] No space left on device", "two"]
    assert other.heard == ["one", "two"]


def test_two_threads_that_meet_the_same_failure_both_go_on() -> None:
    run = Listening()
    met = threading.Barrier(2)

    class Slow(Failing):
        def warn(self, text: str) -> None:
            met.wait(5)
            super().warn(text)

    everyone, raised = Everyone(run, [Slow()]), list[BaseException]()

    def tell() -> None:
        try:
            everyone.warn("full")
        except BaseException as error:
            raised.append(error)

    both = [threading.Thread(target=tell) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(10)
    assert raised == []
    assert sum("is off" in text for text in run.heard) == 1


class Refusing:
    """A mirror that Kafka does not let write."""

    def __init__(self) -> None:
        self.asked = self.closed = 0

    def show(self, positions: Any) -> None:
        self.asked += 1
        raise (
            KafkaUnreachable("the offsets cannot be written", cause="not authorized") if self.asked < 4 else ValueError
        )

    def close(self) -> None:
        self.closed += 1


def committed(directory: Path, batch: int) -> None:
    (directory / "commits").mkdir(parents=True, exist_ok=True)
    (directory / "commits" / str(batch)).write_text("v1\n{}")


def test_mirror_that_is_refused_is_said_once_and_tried_again(tmp_path: Path) -> None:
    said, mirror = list[str](), Refusing()
    following = Following({}, SparkLog(tmp_path), mirror, None, said.append)  # type: ignore[arg-type]

    class Entry:
        ranges: tuple[Any, ...] = ()

        def __init__(self, batch: int) -> None:
            self.batch = batch

    for batch in range(5):
        committed(tmp_path, batch)
        following.batch_done(Entry(batch), 0.1)  # type: ignore[arg-type]
        deadline = time.monotonic() + 10
        while mirror.asked <= batch and time.monotonic() < deadline:
            time.sleep(0.01)
    following.close()
    assert mirror.asked >= 5
    assert said == ["the offsets cannot be written (not authorized); tried again with the next batch"]
    assert mirror.closed == 1


def test_what_expired_while_it_was_read_is_in_the_event_and_the_metrics_as_doubtful() -> None:
    lost, doubtful = [OffsetRange("t", 0, 0, 4)], [OffsetRange("t", 1, 5, 8)]
    ranges = [*lost, OffsetRange("t", 1, 5, 20)]
    entry = replace(ENTRIES[0], ranges=ranges, lost=lost, doubtful=doubtful)  # 13 of the 15 others were read
    facts = batch_facts(entry, 1.0)
    assert (facts["lost"], facts["doubtful"]) == (4, 2)
    meters = Meters("p")
    for _ in range(2):
        meters.batch_done(entry, 1.0, 0.0)
    for name, value in {"offsets_lost_total": 8, "records_doubtful_total": 4}.items():
        assert meters.registry.get_sample_value(f"penstock_{name}", {"pipeline": "p"}) == value
