"""The lock of a pipeline's directory, held by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.checkpoint.home import ANOTHER, Home
from penstock.errors import AlreadyRunning, NotWritable

HOLD = """
import sys, time
from pathlib import Path
from penstock.checkpoint.home import Home
with Home(Path(sys.argv[1])).held():
    print("held", flush=True)
    time.sleep(60)
"""


def test_held_home_has_its_directories_and_names_the_process_that_holds_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "deep" / "payments")
    with home.held():
        assert home.ledger.is_dir()
        assert home.logs.is_dir()
        assert not home.spark.exists()  # Spark's own: an empty one would look like a checkpoint that lost its metadata
        assert (home.path / "lock").read_text() == str(os.getpid())


def test_second_run_on_the_same_directory_is_refused_and_the_first_keeps_its_lock(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.held():
        for _ in range(2):
            with pytest.raises(AlreadyRunning) as raised, home.held():
                pass
            assert f"process {os.getpid()} " in str(raised.value.cause)
            assert raised.value.next_command == "stop that process first"
        with pytest.raises(AlreadyRunning) as raised, home.held(ANOTHER):
            pass
        assert raised.value.next_command == "stop that process, or give this pipeline another `checkpoint:`"


def test_lock_is_free_again_after_the_run_ended_well_or_badly(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with home.held():
        pass
    with pytest.raises(ZeroDivisionError), home.held():
        1 / 0  # noqa: B018
    with home.held():
        pass


def test_lock_dies_with_a_process_that_was_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with pytest.raises(AlreadyRunning) as raised, Home(tmp_path).held():
            pass
        assert f"process {holder.pid} " in str(raised.value.cause)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with Home(tmp_path).held():
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_directory_that_cannot_be_made_is_not_writable_and_says_which(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotWritable) as raised, Home(tmp_path / "file" / "payments").held():
        pass
    assert str(tmp_path / "file") in str(raised.value.next_command)


def test_lock_that_is_a_directory_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(NotWritable), Home(tmp_path).held():
        pass
