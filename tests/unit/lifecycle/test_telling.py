"""What takes long is told while it lasts."""

from __future__ import annotations

import threading

import pytest

from penstock import watch
from penstock.observe.listeners import Everyone
from penstock.watch import Watch, telling


class Waiting(Watch):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.twice = threading.Event()

    def waiting(self, text: str) -> None:
        self.said.append(text)
        if len(self.said) == 2:
            self.twice.set()


def test_long_wait_is_told_again_and_again_with_what_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_EVERY_S", 0.01)
    heard, onlooker, at = Waiting(), Waiting(), iter(["decoding", "writing"])
    with telling(Everyone(heard, [onlooker]).waiting, "batch 7", lambda: next(at, "at the end")):
        assert heard.twice.wait(10)
    assert heard.said[:2] == ["batch 7, 0 s so far: decoding", "batch 7, 0 s so far: writing"]
    assert onlooker.said == []  # neither the event log nor the metrics: it is over when somebody reads those
    said = len(heard.said)
    with telling(heard.waiting, "batch 8", lambda: "fast"):
        pass
    assert len(heard.said) == said


def test_wait_that_ends_with_an_error_is_over_too() -> None:
    with pytest.raises(ValueError, match="no"), telling(lambda _: None, "batch 7", lambda: ""):
        raise ValueError("no")
    assert "penstock-telling" not in {thread.name for thread in threading.enumerate()}
