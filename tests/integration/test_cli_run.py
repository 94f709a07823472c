"""`penstock run` as a user meets it: a process of its own, its streams, its signals, its exit status."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.commands import document, penstock
from tests.payments import Payments, judge
from tests.processes import Run

from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.local.payments import POISON
from penstock.watch import CHECKING, ENGINE, RESOLVING

NUMBER = r"\d[\d,]*"


pytestmark = pytest.mark.usefixtures("quick_engine")


def test_plain_lines_a_summary_and_a_proof_that_a_deleted_row_breaks(payments: Payments) -> None:
    # Without a step that drops records, an offset that is nowhere is a lost one and nothing else.
    payments.spec["transform"] = []
    payments.spec["sinks"]["lake"] = {"from": "payments", "delta": {"path": "lake"}}
    sent = payments.produce(1500, poison=0.05)
    dead, file = len(sent.poison()), str(payments.file)

    ran = payments.cli("run", file, "--until-caught-up")
    *starting, running = ran.stderr.splitlines()[:4]
    assert starting == [CHECKING, ENGINE, RESOLVING]
    batches = [line for line in ran.stderr.splitlines()[4:] if " so far: " not in line]  # on a slow machine
    assert running == f"pipeline payments: running, checkpoint {payments.home}"
    assert len(batches) > 1, ran.stderr
    for number, line in enumerate(batches):
        assert re.fullmatch(
            rf"batch {number}: read {NUMBER}, lake {NUMBER}, dead letters {NUMBER} in [\d.]+ s; "
            rf"lag ({NUMBER}|\?), {NUMBER}/s, (\d+ s|\?) left",
            line,
        )
    assert re.fullmatch(
        rf"payments: caught up; 1,500 records in {len(batches)} batches \([\d.]+ s\): "
        rf"{1500 - dead:,} to lake, {dead} dead letters, 0 dropped\n",
        ran.stdout,
    )

    assert "\ncomplete: every offset is accounted for\n" in payments.cli("verify", file).stdout
    report = document("verify", file)
    assert (report["complete"], report["records"], report["dead"]) == (True, 1500, dead)
    assert (report["sinks"], report["findings"]) == ({"lake": 1500 - dead}, [])

    stats = json.loads(payments.cli("dlq", "stats", file, "--json").stdout)  # the process; the rest: test_dlq.py
    by_class: Counter[str] = Counter()
    for group in stats["groups"]:
        by_class[group["class"]] += group["count"]
    produced: Counter[str] = Counter()
    for kind, count in sent.kinds().items():
        if kind in POISON:
            produced[POISON[kind]] += count
    assert (stats["total"], by_class) == (dead, produced)

    lost = payments.rows()[17]
    at = lost["_kafka"]
    [batch] = [
        entry.batch
        for entry in Ledger(payments.home / "ledger").entries()
        for r in entry.ranges
        if r.partition == at["partition"] and r.start <= at["offset"] < r.end
    ]
    DeltaTable(str(payments.directory / "lake")).delete(f"payment_id = '{lost['payment_id']}'")
    broken = payments.cli("verify", file, expect=1)
    place = f"batch {batch}: {payments.topic}-{at['partition']}"
    assert re.search(rf"^  lost: {place}: .*: offsets {at['offset']}$", broken.stdout, re.MULTILINE), broken.stdout
    assert "\ncomplete" not in broken.stdout
    report = document("verify", file, expect=1)
    [finding] = [f for f in report["findings"] if f["kind"] == "lost"]
    assert not report["complete"]
    assert (finding["batch"], finding["partition"], finding["offsets"]) == (batch, at["partition"], [at["offset"]])


def test_signals_end_runs_at_a_batch_boundary_and_the_next_one_does_the_rest_in_json_lines(
    payments: Payments, start: Callable[..., Run]
) -> None:
    payments.spec["rate"]["max_offsets"] = 150
    sent = payments.produce(3000, poison=0.05)
    file, home = str(payments.file), payments.home
    run = start("run", file)
    run.until(lambda: (home / "lock").exists() and (home / "lock").read_text())
    refused(file, "already-running", 4, f"process {run.process.pid} holds the lock")
    run.until(in_the_middle_of(payments, 1))
    run.process.send_signal(signal.SIGTERM)  # and then to the group: as `timeout` does it
    os.killpg(run.process.pid, signal.SIGTERM)
    before = ended_at_a_batch_boundary(payments, run)

    run = start("run", file)
    run.until(in_the_middle_of(payments, len(before) + 1))
    os.killpg(run.process.pid, signal.SIGINT)  # as a terminal does it; the engine must not hear of it
    entries = ended_at_a_batch_boundary(payments, run)
    last, done = entries[-1].batch, sum(entry.read for entry in entries)
    assert len(before) < len(entries)
    assert done < 3000, "the run was over before the signal came: nothing was tested"

    payments.spec["rate"]["max_offsets"] = 10_000
    rest = payments.cli("run", str(payments.file), "--until-caught-up", "--json")
    events = [json.loads(line) for line in rest.stdout.splitlines()]
    assert events[0] | {"time": ""} == {"time": "", "event": "started", "pipeline": "payments", "checkpoint": str(home)}
    assert [event["event"] for event in events] == ["started", *["batch"] * (len(events) - 2), "ended"]
    assert [event["entry"]["batch"] for event in events[1:-1]] == list(range(last + 1, last + len(events) - 1))
    assert events[-1]["read"] == 3000 - done
    assert rest.stderr == ""
    assert judge(payments, [sent]) == []
    assert payments.verify().complete


def in_the_middle_of(payments: Payments, batch: int) -> Callable[[], bool]:
    """The batch is in the table and not yet among the dead letters."""
    return (payments.directory / "lake" / "_delta_log" / f"{batch:020}.json").exists


def ended_at_a_batch_boundary(payments: Payments, run: Run) -> list[Entry]:
    """After a signal. Returns what the ledger has."""
    assert run.ended() == 0, run.said()
    assert run.err.read_text().count("stopping at the end of this batch\n") == 1
    assert re.match(rf"payments: stopped; {NUMBER} records in \d+ batches ", run.out.read_text()), run.said()
    assert "Traceback" not in run.said()
    entries, log = payments.entries(), SparkLog(payments.home / "spark")
    last = entries[-1].batch
    assert log.committed() == last
    assert (log.planned() or 0) - last in (0, 1)  # Spark may have fixed the offsets of one more
    history = DeltaTable(str(payments.directory / "lake")).history()
    marks = [json.loads(commit.get("userMetadata") or "{}") for commit in history]
    assert max(mark["batch"] for mark in marks if "batch" in mark) == last
    assert max(letter.batch for letter in payments.dead()) <= last
    report = payments.verify()
    assert report.complete, report.findings
    assert report.records == sum(entry.read for entry in entries)
    return entries


def _java_runs(run: Run) -> bool:
    return any(each.name() == "java" for each in run.processes())


def _gateway_is_up(run: Run) -> bool:
    """The engine listens to its driver, which has it make a session from now on."""
    return any(each.net_connections("inet") for each in run.processes() if each.name() == "java")


MOMENTS: dict[str, Callable[[Run], bool]] = {
    "Kafka is away": lambda run: CHECKING in run.err.read_text(),
    "the engine starts": lambda run: ENGINE in run.err.read_text(),
    "its process is there": _java_runs,
    "it makes its session": lambda run: _java_runs(run) and _gateway_is_up(run),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_signal_while_a_run_starts_ends_it_at_once_and_all_that_it_has_started(
    payments: Payments, start: Callable[..., Run], moment: str
) -> None:
    if moment == "Kafka is away":
        payments.spec["kafka"]["bootstrap"] = "127.0.0.1:9"
    run = start("run", str(payments.file))
    run.until(lambda: MOMENTS[moment](run))
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.ended() == 0, run.said()  # with Kafka away it would have been 3, had it waited
    assert "Traceback" not in run.said()
    assert set(run.err.read_text().splitlines()) <= {CHECKING, ENGINE, RESOLVING, "stopping before the first batch"}
    assert not (payments.home / "spark").exists()


def test_on_a_terminal_a_live_panel_is_drawn_and_the_terminal_is_left_as_it_was(
    payments: Payments, start: Callable[..., Run]
) -> None:
    payments.spec["rate"]["max_offsets"] = 300
    sent = payments.produce(900, poison=0.05)
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        before = termios.tcgetattr(theirs)
        screen = bytearray()
        reader = threading.Thread(target=_read_all, args=(ours, screen), daemon=True)
        reader.start()
        environment = {**os.environ, "TERM": "xterm-256color"}
        file = str(payments.file)
        run = start("run", file, "--until-caught-up", stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        status = run.ended(120)
        after = termios.tcgetattr(theirs)
    finally:
        os.close(theirs)
    reader.join(10)  # all ends of the terminal are closed: what was written is read, then comes the end
    os.close(ours)
    drawn = screen.decode()
    assert status == 0, drawn
    assert after == before
    assert "\x1b[?25l" in drawn  # the cursor was hidden while the panel was drawn,
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")  # and is there again
    assert "\x1b[?1049h" not in drawn  # never on the alternate screen: the last state stays readable
    assert "Traceback" not in drawn

    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert "penstock run payments" in text
    assert re.search(rf"read +{NUMBER} records in \d+ batches, {NUMBER}/s", text)
    assert re.search(rf"lag +[1-9][\d,]* offsets, {NUMBER} s left", text)  # while there still was something left
    assert re.search(r"dead letters +[1-9]", text)
    assert re.search(r"last +batch \d+: [1-9]\d* records in [\d.]+ s", text)
    panel = text[text.rindex("penstock run payments") :]
    assert re.search(r"read +900 records in \d+ batches", panel)  # the last one drawn is the end
    assert re.search(rf"dead letters +{len(sent.poison())} ", panel)
    assert "payments: caught up; 900 records in " in panel


def _read_all(terminal: int, into: bytearray) -> None:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # EIO: nobody holds the other end any more
            return
        if not part:
            return
        into += part


def test_a_spec_that_is_not_there(payments: Payments) -> None:
    missing = str(payments.directory / "nowhere.yaml")
    refused(missing, "spec-unreadable", 2, "nowhere.yaml")


def test_an_unknown_key_in_the_spec(payments: Payments) -> None:
    payments.spec["sinks"]["lake"]["delta"]["pathh"] = "lake"
    refused(str(payments.file), "spec-invalid", 2, "pathh")


def test_an_environment_variable_that_is_not_set(payments: Payments) -> None:
    payments.spec["kafka"]["bootstrap"] = "${env:PENSTOCK_TEST_NOT_SET}"
    refused(str(payments.file), "reference-missing", 2, "PENSTOCK_TEST_NOT_SET")


def test_a_file_in_the_place_of_the_checkpoint(payments: Payments) -> None:
    (payments.directory / "home").write_text("not a directory")
    payments.spec["checkpoint"] = "home"
    refused(str(payments.file), "not-writable", 3, str(payments.directory / "home"))


def test_a_topic_that_is_not_there(payments: Payments) -> None:
    payments.spec["source"]["topics"] = {"nowhere": payments.spec["source"]["topics"][payments.topic]}
    refused(str(payments.file), "topic-missing", 3, "nowhere", payments.cli)  # as processes of their own


def test_a_broker_that_is_down_at_the_start(payments: Payments) -> None:
    """In words only: the client gives up after seconds."""
    payments.spec["kafka"]["bootstrap"] = "127.0.0.1:9"
    said = penstock("run", payments.file, "--until-caught-up", expect=3).stderr
    assert said.startswith(f"{CHECKING}\nerror[kafka-unreachable]: "), said
    assert "127.0.0.1:9" in said


def refused(file: str, code: str, status: int, named: str, ask: Callable[..., Any] = penstock) -> None:
    """`run` on this spec ends with this error, in words and as JSON, and names what it is about."""
    words = ask("run", file, "--until-caught-up", expect=status)
    assert words.stderr.removeprefix(f"{CHECKING}\n").startswith(f"error[{code}]: "), words.stderr
    assert named in words.stderr
    assert words.stdout == ""
    in_json = ask("run", file, "--until-caught-up", "--json", expect=status)
    error = json.loads(in_json.stdout)["error"]
    assert (error["code"], error["exit_status"]) == (code, status)
    assert named in in_json.stdout
    assert "Traceback" not in words.stderr + in_json.stdout + in_json.stderr
