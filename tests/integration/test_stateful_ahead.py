"""Event times ahead of the clock: they must not move the watermark, and where one did there is a way out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.stateful import START, TIMED, WINDOW, Event, Stream, events, seconds, windows

from penstock import failpoint
from penstock.checkpoint.files import put
from penstock.checkpoint.home import Home
from penstock.checkpoint.log import SparkLog, with_times
from penstock.doctor.facts import Finding
from penstock.doctor.gather import examined
from penstock.errors import EngineFailed
from penstock.local.broker import Cluster
from penstock.testing import case

pytestmark = pytest.mark.usefixtures("spark")

DAY = 86_400
NAMED = {"watermark-ahead", "late-records", "dead-letters"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


def named(stream: Stream) -> list[Finding]:
    return [found for found in examined(stream.payments.pipeline)[1] if found.cause in NAMED]


def counts(stream: Stream, path: str) -> dict[tuple[int, str], int]:
    rows = stream.rows(path)
    found = {(seconds(row["window_start"]), row["key"]): row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_advice_of_doctor_for_a_watermark_far_ahead_of_the_clock_leads_out(kafka: Cluster, directory: Path) -> None:
    """With a bound so large that it was none, as before there was one."""
    far = Event("a", round(time.time()) - START + 900 * DAY)
    first, second = events("a0 a10 b70 b200 a210 b220 a300"), events("b400 a500 a600 b900 b901")
    steps = [{"view": "made", "window": {**WINDOW, "ahead": "999d"}}]
    stream = Stream.make(kafka.bootstrap, directory, steps, rate={"max_offsets": 8})
    spec = stream.payments.spec
    stream.feed([*first, far])
    stream.feed(second)
    stream.run()
    [found] = named(stream)
    assert (found.cause, found.severity, found.facts["batch"]) == ("watermark-ahead", "critical", 0)
    assert found.what == "the watermark of 'made' is 900 days ahead of the clock"
    assert f"{stream.payments.topic}-0 [0, 8)" in found.evidence[1]
    assert "with a smaller `ahead` of 'made'" in found.fix

    # The checkpoint goes on with another bound: the state is the same.
    del spec["transform"][0]["window"]["ahead"]
    stream.feed([far, *events("a950")])
    stream.run()
    [letter] = stream.payments.dead()
    assert (letter.stage, letter.error_class, letter.offset) == ("contract", "broken-rule", 13)
    assert letter.reason.startswith("ahead of made: not true: at is at most 1h ahead of the clock; at = 20")
    newest = stream.entries()[-1]
    assert (newest.views["events"].died["ahead of made"], newest.stateful["made"].late) == (1, 1)
    [found] = named(stream)
    assert (found.cause, "a new `checkpoint:`" in found.fix) == ("watermark-ahead", True)
    assert "1 of 14 rows came too late" in found.evidence[2]

    # The way out, as advised: `earliest` is before batch 0.
    spec |= {"name": "anew", "checkpoint": "anew", "sinks": {"out": {"from": "made", "parquet": {"path": "right"}}}}
    stream.run()
    expected, late, still_open = windows([first, [*second, *events("a950")], []], 60, 60, 60)
    assert (sum(late), still_open) == (0, 2)
    assert counts(stream, "right") == expected
    assert [letter.offset for letter in stream.payments.dead() if letter.pipeline == "anew"] == [7, 13]
    report = stream.payments.verify()
    assert report.complete, report.findings
    assert named(stream) == []


def test_batch_that_runs_again_takes_the_clock_of_its_first_attempt(
    kafka: Cluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the stream and in the second read: else one record would be in the state and a dead letter too."""
    steps = [
        {"view": "later", "sql": "select *, at + interval 1 hour as due from others"},
        {
            "view": "made",
            "join": {
                "left": TIMED,
                "right": {**TIMED, "from": "later", "time": "due"},
                "on": ["key"],
                "within": "50s",
                "columns": {"key": "events.key"},
            },
        },
    ]
    stream = Stream.make(kafka.bootstrap, directory, steps, "events", "others", rate={"max_offsets": 100})
    stream.feed(events("a0 a3615 b30"))
    stream.feed([Event(key, due - 3600) for key, due in (("a", 5), ("b", 40), ("b", 3615))], "others")

    def crash(place: str, batch: int, rows: Any) -> None:
        if place == "before-sinks":
            raise RuntimeError("as if it was killed")

    with monkeypatch.context() as patched, pytest.raises(EngineFailed):
        patched.setattr(failpoint, "reach", crash)
        stream.run()
    log = SparkLog(Home.of(stream.payments.pipeline).spark)
    planned = log.path / "offsets" / "0"
    # As if the first attempt had been ten seconds after START: by now the clock is past all event times.
    put(planned, with_times(planned.read_text(), 0, (START + 10) * 1000).encode())
    planned.with_name(".0.crc").unlink(missing_ok=True)
    stream.run()
    by_sql, direct = sorted(stream.payments.dead(), key=lambda letter: letter.stage, reverse=True)
    assert (direct.stage, direct.topic, direct.offset) == ("contract", stream.topic("events"), 1)
    assert direct.reason.startswith("ahead of made: not true: at is at most 1h ahead of the clock; at = 20")
    assert (by_sql.stage, by_sql.topic, by_sql.offset) == ("transform", stream.topic("others"), 2)
    assert (by_sql.error_class, by_sql.sinks) == ("out-of-range", "out")
    assert by_sql.reason.startswith("step 'made': not true: due is at most 1h ahead of the clock; due = 20")
    step = stream.entries()[0].stateful["made"]
    assert (step.ahead, step.late, step.taken) == (1, 0, 4)
    assert log.next_watermark(0) == (START + 30 - 60) * 1000
    assert sorted(row["key"] for row in stream.rows()) == ["a", "b"]
    report = stream.payments.verify()
    assert report.complete, report.findings


def test_rows_of_a_record_that_has_others_too_are_left_out_with_the_late_ones(tmp_path: Path) -> None:
    """The record is in the state by its other rows. And in a case the clock is that of the machine."""
    fields = {"key": "string", "at": "timestamp", "also": "timestamp"}
    spec = {
        "name": "rows",
        "kafka": {"bootstrap": "nowhere:9092"},
        "source": {"topics": {"events": {"value": {"format": "json", "schema": {"fields": fields}}}}},
        "transform": [
            {"view": "times", "sql": "select key, explode(array(at, also)) as time, _kafka from events"},
            {"view": "made", "deduplicate": {"from": "times", "key": ["key", "time"], "time": "time", "within": "1h"}},
        ],
        "sinks": {"out": {"from": "made", "console": {}}, "late": {"from": "made_late", "console": {}}},
    }
    YAML().dump(spec, tmp_path / "spec.yaml")
    sound, far, old = "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"
    given = [
        {"events": [{"value": {"key": "a", "at": sound, "also": far}}]},
        {"events": [{"value": {"key": "b", "at": sound, "also": old}}]},
        {"events": [{"value": {"key": "c", "at": sound, "also": sound}}]},
    ]
    expect = {
        "sinks": {
            "out": [{"key": key, "time": sound} for key in "abc"],
            "late": [{"key": "a", "time": far}, {"key": "b", "time": old}],
        }
    }
    YAML().dump({"cases": [{"name": "rows", "given": given, "expect": expect}]}, tmp_path / "spec.test.yaml")
    assert [result.text() for result in case.run(tmp_path / "spec.yaml")] == [""]
