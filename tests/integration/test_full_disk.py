"""A disk that is full in the middle of a run: one error that names it, no word of the engine, and nothing is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.payments import Payments, judge
from tests.processes import PENSTOCK, Run


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be had here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_run_waits_for_room_and_goes_on_where_it_was(
    payments: Payments, start: Callable[..., Run], small: Path
) -> None:
    """The checkpoint is on it, and so are ledger, events and the engine's log, which can say nothing any more."""
    payments.spec["checkpoint"] = str(small / "home")
    payments.spec["rate"]["max_offsets"] = 300
    sent = payments.produce(900, poison=0.05)
    run = start("run", str(payments.file), "--until-caught-up")
    run.until((payments.home / "ledger" / "000000000.jsonl").exists)
    filled(small / "something else")
    run.until(lambda: "warning[disk-full]" in run.err.read_text())
    (small / "something else").unlink()
    assert run.ended(120) == 0, run.said()
    [*_, warning] = [line for line in run.err.read_text().splitlines() if "[disk-full]" in line]
    assert f"the disk at {small} is full, with the checkpoint on it: " in warning
    assert "of 524.3 kB are free" in warning
    assert [line.split(":")[0] for line in run.out.read_text().splitlines()] == ["payments"], run.said()
    assert "\tat " not in run.said()
    assert "Traceback" not in run.said()
    assert judge(payments, [sent]) == []
    assert payments.verify().complete

    filled(small / "something else")
    with (small / "output").open("wb") as output:  # of any command
        told = subprocess.run([PENSTOCK, "schema"], stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert told.returncode == 3
    assert told.stderr.startswith(f"error[disk-full]: the disk at {small} is full, with the output on it: ")


def filled(file: Path) -> None:
    with suppress(OSError), file.open("wb", buffering=0) as opened:
        while True:
            opened.write(bytes(1024))
