"""What a sink that keeps batches is asked before anything is read: can it be written to, does it hold what it should?

Each sink finds the facts in its own place (a log, directory names, snapshots); what follows from them is the same for
all of them, and is here.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from penstock.errors import NotWritable, TableDiffers, TableOfAnotherQuery
from penstock.record import BACKFILL, Batch, Known


def require_writable(sink: str, path: Path) -> None:
    """`path` is a directory, or can be made one."""
    place = path if path.exists() else next(p for p in path.absolute().parents if p.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise NotWritable(
            f"sink '{sink}' cannot write to {path}",
            cause=f"{place} is not a directory this user can write to",
            next_command=f"make {place} writable, or change the path of sink '{sink}'",
        )


def require_complete(sink: str, place: object, known: Known, newest: int | None, accepted: frozenset[str]) -> None:
    """The table must hold what the ledger says it got, and nothing that the checkpoint cannot know of.

    `newest`: the newest batch of this query that the table holds.
    """
    if TableDiffers.code in accepted:
        return
    if known.written is not None and (newest is None or newest < known.written):
        found = "no batch of this query" if newest is None else f"batches up to {newest}"
        raise TableDiffers(
            f"sink '{sink}' has lost batches",
            cause=f"the ledger says it holds batches up to {known.written}; {place} has {found}: "
            "it was deleted, restored from an older copy, or its path was changed",
            next_command="restore the table; or, to go on without what is missing: "
            f"penstock run FILE --accept {TableDiffers.code}",
        )
    if newest is not None and (known.planned is None or newest > known.planned):
        raise TableDiffers(
            f"sink '{sink}' is ahead of the checkpoint",
            cause=f"{place} has batch {newest}, the checkpoint knows batches up to {known.planned}: an older "
            "checkpoint was restored, and its next batches would be taken for written",
            next_command="restore the checkpoint directory that belongs to this table",
        )


def require_own(sink: str, place: object, batch: Batch, queries: Collection[str], accepted: frozenset[str]) -> None:
    """A table that holds nothing of this query must not hold batches that the pipeline wrote under another one.

    `queries`: those of which the table holds batches of this pipeline.
    """
    others = sorted(set(queries) - {batch.query})
    if not others or TableOfAnotherQuery.code in accepted:
        return
    if all(other.startswith(BACKFILL) for other in others):
        raise TableOfAnotherQuery(
            f"the table of sink '{sink}' holds what a backfill of '{batch.pipeline}' wrote, and the stream is new",
            cause=f"{place} has batches of {', '.join(others)}: where the stream reads the same offsets, it would "
            "write those records a second time",
            next_command="let the stream begin after the range (`start:`), or keep both; then: "
            f"penstock run FILE --accept {TableOfAnotherQuery.code}",
        )
    raise TableOfAnotherQuery(
        f"the table of sink '{sink}' holds rows that '{batch.pipeline}' wrote under another checkpoint",
        cause=f"the checkpoint is new, but {place} has batches of query {', '.join(others)}: "
        "reading from the start again would write those records a second time",
        next_command="restore the old checkpoint directory; or, to keep the rows and add to them: "
        f"penstock run FILE --accept {TableOfAnotherQuery.code}",
    )
