"""Fail closed: before anything is read, the facts that completeness rests on must be there and must agree (G3)."""

from __future__ import annotations

import itertools

from penstock.checkpoint import damage
from penstock.checkpoint.audit import Fault, audit
from penstock.checkpoint.files import wrong_with
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Entry, Ledger
from penstock.checkpoint.log import SparkLog
from penstock.errors import CheckpointForeign, CheckpointMissing, LedgerDamaged, LedgerMissing, counted

_NAMED = 3  # damaged lines


def check(home: Home, pipeline: str, accepted: frozenset[str]) -> None:
    """Compare Spark's checkpoint with our ledger. Called once per start, with the lock held.

    1. A restore that was cut off: some files are the old ones, some are new or missing.
    2. Checkpoint and ledger of another pipeline: two specs name one directory.
    3. A ledger without a checkpoint: somebody removed the checkpoint; starting anew would read everything again.
    4. Both, of different queries: somebody mixed directories.
    5. A checkpoint without the ledger of its committed batches: what happened to those offsets is not known.
    6. Newest files of the log that do not match their checksum: Spark would stumble over them, and not say what to do.
    7. A seek in the ledger that the checkpoint does not have as a committed batch: it was cut off.
    8. A ledger ahead of the checkpoint: an old checkpoint was restored; its batches would be written again.
    9. Lines of the ledger that are not as they were written: what it says of those batches proves nothing.
    """
    if home.restoring.exists():
        raise _restore_cut_off(home)  # 1
    log, last = SparkLog(home.spark), Ledger(home.ledger).last()
    query, committed, planned = log.query_id(), log.committed(), log.planned()
    if last and last.pipeline != pipeline:
        raise _of_another(home, last, pipeline)  # 2
    if last and query is None:
        if CheckpointMissing.code not in accepted:
            raise _gone(home, last)  # 3
        _keep_old_ledger(home, last.query)
        return
    if last and last.query != query:
        raise _mixed(home, last, query)  # 4
    if committed is not None and (last is None or last.batch < committed) and LedgerMissing.code not in accepted:
        raise _unknown(home, last, committed)  # 5
    newest = [("offsets", planned), ("commits", committed)]
    files = [home.spark / kind / str(batch) for kind, batch in newest if batch is not None]
    wrong = [f"{file.relative_to(home.path)} {said}" for file in files if (said := wrong_with(file))]
    if wrong:
        raise _unsound(wrong)  # 6
    if last and last.is_seek and (planned != last.batch or committed != last.batch) and last.batch >= (planned or 0):
        raise _seek_cut_off(last)  # 7
    if last and (planned is None or last.batch > planned):
        raise _older(last, planned)  # 8
    if LedgerDamaged.code not in accepted:
        faults = audit(Ledger(home.ledger).files(), query, pipeline).at_start
        if faults:
            raise _damaged(home, faults)  # 9


def _restore_cut_off(home: Home) -> CheckpointForeign:
    return CheckpointForeign(
        f"a restore of {home.path} was cut off",
        cause="some of its files are those of the backup, some those of before, some may be missing",
        next_command=f"penstock checkpoint restore FILE {home.restoring.read_text() or 'BACKUP'}",
    )


def _of_another(home: Home, last: Entry, pipeline: str) -> CheckpointForeign:
    return CheckpointForeign(
        f"{home.path} belongs to pipeline '{last.pipeline}', not to '{pipeline}'",
        cause="two specs name the same checkpoint directory, or a pipeline was renamed",
        next_command="give this pipeline a `checkpoint:` of its own, or its old name back",
    )


def _gone(home: Home, last: Entry) -> CheckpointMissing:
    return CheckpointMissing(
        f"the ledger knows {counted(last.batch + 1, 'batch', 'batches')} of pipeline '{last.pipeline}', "
        "but Spark's checkpoint is gone",
        cause=f"{home.spark} is missing: starting anew would read from `start:` and write records a second time",
        next_command=f"restore {home.spark} from a backup; or begin a new query: "
        f"penstock run FILE --accept {CheckpointMissing.code}",
    )


def _mixed(home: Home, last: Entry, query: str | None) -> CheckpointForeign:
    return CheckpointForeign(
        f"the ledger in {home.ledger} is of query {last.query}, the checkpoint in {home.spark} of query {query}",
        cause="one of the two directories was replaced",
        next_command="restore the two directories from the same backup",
    )


def _unknown(home: Home, last: Entry | None, committed: int) -> LedgerMissing:
    ends = f"ends at batch {last.batch}" if last else "is missing"
    return LedgerMissing(
        f"Spark committed batch {committed}, but the ledger {ends}",
        cause=f"entries in {home.ledger} were removed: what happened to those offsets cannot be proven any more",
        next_command="bring them back: penstock checkpoint repair FILE --from BACKUP --apply; or go on with a "
        f"ledger that begins here: penstock run FILE --accept {LedgerMissing.code}",
    )


def _seek_cut_off(last: Entry) -> CheckpointForeign:
    return CheckpointForeign(
        f"the seek to batch {last.batch} was cut off",
        cause="the ledger has it, Spark's checkpoint does not: a crash came between",
        next_command="penstock checkpoint repair FILE --apply",
    )


def _older(last: Entry, planned: int | None) -> CheckpointForeign:
    return CheckpointForeign(
        f"the ledger is at batch {last.batch}, the checkpoint only at batch {planned}",
        cause="an older checkpoint was restored: its next batches would be written a second time; or files of it "
        "were removed",
        next_command="restore the checkpoint directory that belongs to this ledger; or see what the ledger can "
        "prove: penstock checkpoint repair FILE",
    )


def _damaged(home: Home, faults: list[Fault]) -> LedgerDamaged:
    more = f"; and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
    return LedgerDamaged(
        f"the ledger in {home.ledger} is damaged: what it says of its batches proves nothing",
        cause="; ".join(map(str, faults[:_NAMED])) + more,
        next_command="see what a backup can bring back: penstock checkpoint repair FILE; or go on with the ledger as "
        f"it is: penstock run FILE --accept {LedgerDamaged.code}",
        facts={"lines": [str(fault) for fault in faults]},
    )


def _keep_old_ledger(home: Home, query: str) -> None:
    """Keep the ledger of a query that ended; a backup may have brought an older copy of it back."""
    names = (home.path / f"ledger.{query}.{n}" for n in itertools.count(1))
    home.ledger.rename(next(name for name in names if not name.exists()))
    home.ledger.mkdir()


def require_checkpoint(home: Home) -> None:
    if not home.spark.is_dir():
        raise CheckpointMissing(
            f"there is no checkpoint in {home.path}",
            cause="the pipeline has not run yet, or the directory was removed",
            next_command="penstock run FILE --until-caught-up; before the first run `start:` says where it begins",
        )


def require_sound(home: Home) -> None:
    """Every file of the checkpoint is there and whole."""
    found = damage.find(home)
    if found:
        raise _unsound([f"{each.file} {each.what}" for each in found])


def _unsound(wrong: list[str]) -> CheckpointForeign:
    return CheckpointForeign(
        f"{len(wrong)} file{'s' * (len(wrong) > 1)} of the checkpoint cannot be relied on",
        cause="; ".join(wrong[:5]),
        next_command="penstock checkpoint repair FILE",
    )
