"""Spark's classes, recorded by `penstock jars --record`: a start maps them, and never a damaged record."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import QUICK_JVM

from penstock.spark import java, recorded

START = """
import sys
from pathlib import Path
from penstock.spark import session
from penstock.spec.model import Pipeline

topics = {"t": {"value": {"format": "string"}}}
sinks = {"files": {"from": "t", "parquet": {"path": "files"}}}
spec = {"name": "n", "kafka": {"bootstrap": "unused"}, "source": {"topics": topics}, "sinks": sinks}
spark = session.start(Pipeline.model_validate(spec), Path(sys.argv[1]), groups=[])
maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
print([line.split()[-1] for line in maps.splitlines() if line.endswith(".jsa")])
"""


def mapped_by_a_start(cache: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START, str(cache / "logs")],
        env={**os.environ, **QUICK_JVM, "PENSTOCK_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_start_maps_the_record_and_never_one_that_was_cut_short(tmp_path: Path) -> None:
    made = recorded.record(java.find())  # `make test` has made it

    classes = tmp_path / "classes"
    classes.mkdir()
    (classes / made.name).symlink_to(made)
    assert made.name in mapped_by_a_start(tmp_path)

    (classes / made.name).unlink()
    with made.open("rb") as whole:
        (classes / made.name).write_bytes(whole.read(1_000_000))  # Java would die of it
    assert made.name not in mapped_by_a_start(tmp_path)
