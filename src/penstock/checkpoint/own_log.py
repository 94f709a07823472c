"""Checkpoints in the form of Spark's own that we write: a backfill and a replay know their batches before they begin.

Everything but the commits is written down first, synced, and appears by one rename: a crash before it leaves nothing,
and after it nothing is lost.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from penstock.checkpoint.files import put, sync_all, sync_directory
from penstock.checkpoint.log import Positions, as_json


@contextmanager
def written_down(
    spark: Path, metadata: Mapping[str, Any], first: Positions, ends: Sequence[Positions]
) -> Iterator[Path]:
    """Offsets of every batch, and the metadata that names the query. Gives the directory that will become `spark`, for
    what else belongs to it."""
    new = spark.with_name("spark.new")
    shutil.rmtree(new, ignore_errors=True)
    for directory in ("offsets", "commits", "sources/0"):
        (new / directory).mkdir(parents=True)
    put(new / "metadata", json.dumps(metadata).encode())
    put(new / "sources" / "0" / "0", f"v1\n{as_json(first)}".encode())
    for number, end in enumerate(ends):
        put(new / "offsets" / str(number), f"v1\n{{}}\n{as_json(end)}".encode())
    yield new
    sync_all(new)
    new.rename(spark)
    sync_directory(spark.parent)


def commit(spark: Path, batch: int) -> None:
    put(spark / "commits" / str(batch), b"v1\n{}")


@contextmanager
def synced(file: Path) -> Iterator[IO[str]]:
    """The file is there, whole and on the disk, when this ends; before that, and when it fails, it is not there at
    all."""
    new = file.with_name(f".{file.name}.new")
    try:
        with new.open("w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        new.rename(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_directory(file.parent)
