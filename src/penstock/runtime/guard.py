"""Fail closed: before anything is read, the facts that completeness rests on must be there and must agree (G3)."""

from __future__ import annotations

import itertools

from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointForeign, CheckpointMissing, LedgerMissing


def check(home: Home, pipeline: str, accepted: frozenset[str]) -> None:
    """Compare Spark's checkpoint with our ledger. Called once per start, with the lock held.

    1. A ledger without a checkpoint: somebody removed the checkpoint; starting anew would read everything again.
    2. Both, of different pipelines or queries: somebody mixed directories.
    3. A checkpoint without the ledger of its committed batches: what happened to those offsets is not known.
    4. A ledger ahead of the checkpoint: an old checkpoint was restored; its batches would be written again.
    """
    log, ledger = SparkLog(home.spark), Ledger(home.ledger)
    query, last = log.query_id(), ledger.last()
    committed, planned = log.committed(), log.planned()
    if last and last.pipeline != pipeline:
        raise CheckpointForeign(
            f"{home.path} belongs to pipeline '{last.pipeline}', not to '{pipeline}'",
            cause="two specs name the same checkpoint directory, or a pipeline was renamed",
            next_command="give this pipeline a `checkpoint:` of its own, or its old name back",
        )
    if last and query is None:
        if CheckpointMissing.code in accepted:
            _set_aside(home, last.query)
            return
        raise CheckpointMissing(
            f"the ledger knows {last.batch + 1} batches of pipeline '{last.pipeline}', but Spark's checkpoint is gone",
            cause=f"{home.spark} is missing: starting anew would read from `start:` and write records a second time",
            next_command=f"restore {home.spark} from a backup; or begin a new query: "
            f"penstock run FILE --accept {CheckpointMissing.code}",
        )
    if last and last.query != query:
        raise CheckpointForeign(
            f"the ledger in {home.ledger} is of query {last.query}, the checkpoint in {home.spark} of query {query}",
            cause="one of the two directories was replaced",
            next_command="restore the two directories from the same backup",
        )
    if committed is not None and (last is None or last.batch < committed) and LedgerMissing.code not in accepted:
        raise LedgerMissing(
            f"Spark committed batch {committed}, but the ledger "
            + (f"ends at batch {last.batch}" if last else "is missing"),
            cause=f"entries in {home.ledger} were removed: what happened to those offsets cannot be proven any more",
            next_command=f"restore {home.ledger} from a backup; or go on with a ledger that begins here: "
            f"penstock run FILE --accept {LedgerMissing.code}",
        )
    if last and (planned is None or last.batch > planned):
        raise CheckpointForeign(
            f"the ledger is at batch {last.batch}, the checkpoint only at batch {planned}",
            cause="an older checkpoint was restored: its next batches would be written a second time",
            next_command="restore the checkpoint directory that belongs to this ledger",
        )


def _set_aside(home: Home, query: str) -> None:
    """Keep the ledger of a query that ended; a backup may have brought an older copy of it back."""
    names = (home.path / f"ledger.{query}.{n}" for n in itertools.count(1))
    home.ledger.rename(next(name for name in names if not name.exists()))
    home.ledger.mkdir()
