"""Copying the files of a checkpoint in an order that makes the copy consistent, also while they are written to.

A run writes, batch by batch: `offsets/N`, then the ledger entry of N, then `commits/N`. A copy is made the other way
round, so that what is copied later knows at least as much as what was copied before:

    1. commits/: the newest one copied is batch C
    2. ledger/: the entries up to C + 1
    3. offsets/ up to C + 1, and what changes rarely or never

So the copy has the ledger entry of every commit, and the offsets of every ledger entry. C + 1 and not more, because
of batches that are not committed Spark runs only the newest one again. Where that batch was written to the sinks before
the copy, it will be found there; where sinks went on after it, a restore is refused.

Spark removes old batches meanwhile. So each log is copied from its newest batch backwards, up to the first one that is
gone; and if even the offsets of C are gone, everything is copied once more.

A backfill and a replay (`checkpoint.own_log`) have written all their offsets down before they began, and remove none:
all of them are copied, or what comes back would end early and call that success. A replay removes the letters of a
batch after its commit. So its letters are copied before the commits: those that are gone by then are committed.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from penstock.checkpoint.files import checksum_of
from penstock.checkpoint.home import Home

_OWN = ("backfill", "replay")  # directories of directories like the checkpoint's own
_FILES = ("spec.json", "fork.json", "set-aside.json")
PARTS = ("spark", "schemas", *_OWN, *_FILES, "ledger")
"""What a backup holds and a restore replaces, in this order. Logs, the lock and older backups are not copied."""


def copy(home: Home, into: Home) -> bool:
    """Whether the copy has the offsets of its newest commit."""
    whole = _copy_query(home, into, own=False)
    for name in ("schemas", *_FILES):
        _copy_all(home.path / name, into.path / name)
    for kind in _OWN:
        runs = home.path / kind
        for one in sorted(runs.iterdir()) if runs.is_dir() else ():
            if (one / "spark" / "metadata").is_file():
                whole = _copy_query(Home(one), Home(into.path / kind / one.name), own=True) and whole
    return whole


def _copy_query(home: Home, into: Home, *, own: bool) -> bool:
    """`own`: one that wrote all its batches down before it began."""
    _copy_all(home.spark / "letters", into.spark / "letters")
    commits = _copy_batches(home.spark / "commits", into.spark / "commits", most=None)
    for batch in commits:
        (into.spark / "letters" / str(batch)).unlink(missing_ok=True)
    most = max(commits, default=-1) + 1
    into.ledger.mkdir(parents=True)
    for file in sorted(home.ledger.glob("*.jsonl")):
        lines = file.read_bytes().split(b"\n")[:-1]
        while lines and not _batch_of(lines[-1], most):  # between others what a crash cut off stays: the hashes know it
            lines.pop()
        if lines:
            (into.ledger / file.name).write_bytes(b"\n".join(lines) + b"\n")
    for rest in ("metadata", "sources", "state", "chosen"):
        _copy_all(home.spark / rest, into.spark / rest)
    offsets = _copy_batches(home.spark / "offsets", into.spark / "offsets", None if own else most)
    return commits[:1] == [batch for batch in offsets if batch < most][:1]


def _copy_batches(of: Path, into: Path, most: int | None) -> list[int]:
    """Those that were copied, newest first, without a hole."""
    into.mkdir(parents=True)
    there = sorted((int(f.name) for f in of.iterdir() if f.name.isdigit()), reverse=True) if of.is_dir() else []
    copied: list[int] = []
    for batch in (batch for batch in there if most is None or batch <= most):
        if not _copy_file(of / str(batch), into / str(batch)):
            break
        copied.append(batch)
    return copied


def _copy_all(of: Path, into: Path) -> None:
    """A file with its checksum, or a directory. What a run removes meanwhile is old, and not needed."""
    if not of.is_dir():
        _copy_file(of, into)
        return
    into.mkdir(parents=True, exist_ok=True)
    for each in of.iterdir():
        if not each.name.startswith(".") and not each.name.endswith(".new"):  # half written, or a checksum
            _copy_all(each, into / each.name)


def _copy_file(of: Path, into: Path) -> bool:
    """Whether it was there; a checksum that is not there yet is none the worse."""
    try:
        shutil.copyfile(of, into)
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):
        shutil.copyfile(checksum_of(of), checksum_of(into))
    return True


def _batch_of(line: bytes, most: int) -> bool:
    """Whether a line is an entry of a batch up to `most`; one that a crash cut off is none."""
    try:
        return int(json.loads(line)["batch"]) <= most
    except (ValueError, KeyError, TypeError):
        return False
