"""What `penstock events` prints of an event."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app, register
from penstock.observe.events import EventLog

SPEC = """
name: a
checkpoint: home
kafka: {bootstrap: "localhost:9092"}
source: {topics: {t: {value: {format: string}}}}
sinks: {out: {from: t, delta: {path: lake}}}
"""


def test_event_is_one_line_and_its_command_names_the_spec(tmp_path: Path) -> None:
    register()
    (spec := tmp_path / "a.yaml").write_text(SPEC)
    cause = "25 × decode, malformed: t-1 offset 22: not JSON\n2 more reasons"
    log = EventLog(tmp_path / "home" / "events")
    log.append("failed", code="dead-letter-budget", cause=cause, next="mend it, then: penstock run FILE")
    [line] = CliRunner().invoke(app, ["events", str(spec)]).stdout.splitlines()
    assert line.endswith(
        "  failed     code dead-letter-budget, "
        "cause 25 × decode, malformed: t-1 offset 22: not JSON (and 1 line more), "
        f"next mend it, then: penstock run {spec}"
    )
    [event] = json.loads(CliRunner().invoke(app, ["events", str(spec), "--json"]).stdout)["events"]
    assert (event["cause"], event["next"]) == (cause, f"mend it, then: penstock run {spec}")
