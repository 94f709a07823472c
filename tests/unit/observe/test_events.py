"""The event log: survives restarts and crashes, is bounded, and can be asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.observe.events import EventLog


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
