"""Checkpoints as files, without an engine: what Spark and a run leave after some batches, checksums and all."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger, SinkCount, TopicFact, ViewCount
from penstock.record import OffsetRange

QUERY = "46510afa-a74b-42c7-aa81-0078a23d40eb"
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1794743069148,"conf":{"spark.sql.shuffle.partitions":"2"}}\n'
PER_BATCH = 10


def spark_file(file: Path, text: str) -> None:
    """As Hadoop writes it: the file by a rename, then its checksum beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.tmp")
    new.write_text(text)
    new.rename(file)
    sums = [zlib.crc32(file.read_bytes()[at : at + 512]) for at in range(0, file.stat().st_size, 512)]
    crc = b"crc\x00" + (512).to_bytes(4, "big") + b"".join(each.to_bytes(4, "big") for each in sums)
    new.write_bytes(crc)
    new.rename(file.with_name(f".{file.name}.crc"))


def entry(batch: int, pipeline: str = "payments", query: str = QUERY, dead: int = 0) -> Entry:
    ranges = [OffsetRange("payments", p, batch * PER_BATCH, (batch + 1) * PER_BATCH) for p in (0, 1)]
    read = sum(map(len, ranges))
    return Entry(
        pipeline=pipeline,
        query=query,
        batch=batch,
        time=f"2026-11-15T11:43:{batch:02d}.000+00:00",
        start="earliest",
        ranges=ranges,
        topics={"payments": TopicFact("payments", "id-1")},
        views={"payments": ViewCount(read, read - dead, dead)},
        sinks={"lake": SinkCount(read - dead, 0)},
    )


def plan_batch(home: Home, batch: int) -> None:
    ends = {"payments": {str(p): (batch + 1) * PER_BATCH for p in (0, 1)}}
    spark_file(home.spark / "offsets" / str(batch), HEAD + json.dumps(ends, separators=(",", ":")))


def commit_batch(home: Home, batch: int) -> None:
    spark_file(home.spark / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')


def begun(path: Path) -> Home:
    home = Home(path)
    home.ledger.mkdir(parents=True)
    spark_file(home.spark / "metadata", json.dumps({"id": QUERY}, separators=(",", ":")))
    spark_file(home.spark / "sources" / "0" / "0", '\0v1\n{"payments":{"0":0,"1":0}}')
    return home


def checkpoint(path: Path, batches: int = 4, *, dead: Iterable[int] = ()) -> Home:
    """After so many batches, all committed. Batches in `dead` have a dead letter."""
    home = begun(path)
    for batch in range(batches):
        plan_batch(home, batch)
        Ledger(home.ledger).append(entry(batch, dead=int(batch in set(dead))))
        commit_batch(home, batch)
    return home


class Synced:
    """What was on the disk for certain, told by the calls that put it there; and what then got its name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes: list[int] = []
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            fsync(descriptor)
            self.nodes.append(os.fstat(descriptor).st_ino)

        monkeypatch.setattr(os, "fsync", noted)

    def missing(self, path: Path) -> list[Path]:
        """Of a directory with all that is below it, or of a file."""
        return [each for each in (path, *path.rglob("*")) if each.stat().st_ino not in self.nodes]


def contents(home: Home) -> dict[str, bytes]:
    return {str(f.relative_to(home.path)): f.read_bytes() for f in home.path.rglob("*") if f.is_file()}
