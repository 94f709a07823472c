"""K2, upkeep: it runs beside appends, gives way to merges in the time that was declared, and breaks nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.sinks.delta.maintenance import Maintenance, Schedule, last_done

HOUR, NOW = timedelta(hours=1), 1_800_000_000.0
ALWAYS = timedelta(milliseconds=1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def append(table: Path, times: int = 1) -> None:
    for _ in range(times):
        write_deltalake(str(table), pa.table({"a": list(range(10))}), mode="append")


def rows(table: Path) -> int:
    return int(DeltaTable(str(table)).to_pyarrow_table().num_rows)


def operations(table: Path) -> list[str]:
    return [commit["operation"] for commit in DeltaTable(str(table)).history()]


def ended(maintenance: Maintenance, within: float = 60) -> None:
    deadline = time.monotonic() + within
    while maintenance.running:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("hours_since", "due"),
    [
        ({"optimize": 0.5, "vacuum": 0.5}, []),
        ({"optimize": 1.0, "vacuum": 1.0}, ["optimize"]),
        ({"optimize": 0.9, "vacuum": 24.0}, ["vacuum"]),
        ({"optimize": 9.0, "vacuum": 99.0}, ["optimize", "vacuum"]),
        ({}, ["optimize", "vacuum"]),
    ],
)
def test_due_is_what_was_done_longer_ago_than_declared(hours_since: dict[str, float], due: list[str]) -> None:
    last = {task: NOW - hours * 3600 for task, hours in hours_since.items()}
    assert Schedule(HOUR, 24 * HOUR).due(NOW, last) == due  # type: ignore[arg-type]
    assert Schedule().due(NOW, last) == []  # type: ignore[arg-type]


def test_small_files_are_joined_and_old_leavings_removed_while_appends_go_on(table: Path) -> None:
    append(table, 10)
    old, new = table / "part-dead.parquet", table / "part-being-written.parquet"
    for file in (old, new):
        file.write_bytes(b"files of a write that has not committed")
    os.utime(old, (time.time() - 9 * 3600,) * 2)
    maintenance = Maintenance(table, Schedule(ALWAYS, ALWAYS, keep=8 * HOUR))
    maintenance.after_batch()
    assert maintenance.running  # it was only started
    appended = 0
    while maintenance.running:
        append(table)
        appended += 1
    assert rows(table) == (10 + appended) * 10
    assert {"OPTIMIZE", "VACUUM END"} <= set(operations(table))
    assert len(DeltaTable(str(table)).file_uris()) < 10 + appended
    assert (old.exists(), new.exists()) == (False, True)


def test_merge_waits_no_longer_than_declared_and_the_table_is_whole(table: Path) -> None:
    append(table, 10)
    version = DeltaTable(str(table)).version()
    maintenance = Maintenance(table, Schedule(ALWAYS, at_most=timedelta(milliseconds=50)))
    maintenance.after_batch()
    assert maintenance._running
    os.kill(maintenance._running.pid, signal.SIGSTOP)  # while it loads its libraries: it would never end by itself
    maintenance.give_way()
    assert not maintenance.running
    assert (DeltaTable(str(table)).version(), rows(table)) == (version, 100)
    patient = Maintenance(table, Schedule(ALWAYS, at_most=timedelta(minutes=1)))
    patient.after_batch()
    patient.give_way()
    assert operations(table)[0] == "OPTIMIZE"


def test_schedule_goes_on_where_it_was_after_a_restart(table: Path) -> None:
    append(table, 3)
    maintenance = Maintenance(table, Schedule(ALWAYS))
    maintenance.after_batch()
    ended(maintenance)
    done = last_done(table)
    assert done["vacuum"] < done["optimize"] <= time.time()
    again = Maintenance(table, Schedule(HOUR))
    again.after_batch()
    assert not again.running


def test_upkeep_that_fails_is_reported_and_does_not_fail_the_batch(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append(table, 2)
    maintenance = Maintenance(table, Schedule(ALWAYS))
    for file in table.glob("*.parquet"):
        file.unlink()
    maintenance.after_batch()
    ended(maintenance)
    assert "failed" in caplog.text


def test_upkeep_ends_with_the_process_that_started_it(table: Path) -> None:
    append(table, 2)
    code = (
        "import sys, os, subprocess; from pathlib import Path; from penstock.sinks.delta import maintenance as m\n"
        "from datetime import timedelta\n"
        f"t = m.Maintenance(Path({str(table)!r}), m.Schedule(timedelta(milliseconds=1)))\n"
        "t.after_batch(); print(t._running.pid, flush=True); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert rows(table) == 20
