"""The event log: survives restarts and crashes, is bounded, and can be asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.checkpoint.home import Home
from penstock.cli.main import app, register
from penstock.errors import BadArgument
from penstock.observe.events import KINDS, EventLog
from penstock.spec.load import load


def test_events_come_back_in_order_after_a_restart(tmp_path: Path) -> None:
    EventLog(tmp_path / "events").append("started", pipeline="p")
    EventLog(tmp_path / "events").append("batch", batch=0, read=7)
    found = list(EventLog(tmp_path / "events").read())
    assert [(event.kind, event.facts) for event in found] == [
        ("started", {"pipeline": "p"}),
        ("batch", {"batch": 0, "read": 7}),
    ]
    assert found[0].time <= found[1].time <= datetime.now(UTC)


def test_kinds_and_times_choose(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for number in range(3):
        log.append("batch", batch=number)
        log.append("warning", text=str(number))
    assert [event.facts["text"] for event in log.read(["warning"])] == ["0", "1", "2"]
    second = list(log.read(["warning"]))[1].time
    assert [event.facts["text"] for event in log.read(["warning"], since=second)][-1] == "2"
    assert list(log.read(since=datetime.now(UTC) + timedelta(seconds=5))) == []


def test_line_that_a_crash_cut_off_hides_no_other(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append("batch", batch=0)
    [file] = tmp_path.iterdir()
    with file.open("ab") as out:
        out.write(b'{"time":"2026-11-01T00:00:00+00:00","event":"ba')
    log.append("batch", batch=1)
    assert [event.facts["batch"] for event in log.read()] == [0, 1]


def test_log_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    log = EventLog(tmp_path, file_bytes=1_000, files=3)
    for number in range(1_000):
        log.append("batch", batch=number)
    assert len(list(tmp_path.iterdir())) == 3
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3 * 1_200
    numbers = [event.facts["batch"] for event in log.read()]
    assert numbers == list(range(numbers[0], 1_000))
    assert [event.facts["batch"] for event in log.last(["batch"], 20)] == list(range(980, 1_000))


SPEC = """
name: a
kafka: {bootstrap: "localhost:9092"}
source: {topics: {t: {value: {format: string}}}}
sinks: {out: {from: t, delta: {path: lake}}}
"""


def test_word_that_is_no_kind_of_event_is_refused_with_the_kinds_there_are(tmp_path: Path) -> None:
    register()
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)

    def asked(kind: str) -> str:
        return CliRunner().invoke(app, ["events", str(file), "--kind", kind], catch_exceptions=False).stdout

    with pytest.raises(BadArgument, match="'nonsense'") as refused:
        asked("nonsense")
    assert refused.value.cause == f"the kinds are {', '.join(KINDS)}"
    assert asked("reference") == "no events\n"
    EventLog(Home.of(load(file)).events).append("nonsense")  # as another version may write them
    assert "nonsense" in asked("nonsense")
