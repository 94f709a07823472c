"""`checkpoint backup`, `restore` and `repair`: copies of a checkpoint, and back, where the sinks allow it (C3)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from penstock.checkpoint import backup, damage
from penstock.checkpoint.backup import Manifest
from penstock.checkpoint.copying import PARTS
from penstock.checkpoint.damage import Damage
from penstock.checkpoint.files import put, sync_all, sync_directory
from penstock.checkpoint.home import Home
from penstock.checkpoint.ledger import Ledger
from penstock.checkpoint.scratch import set_aside
from penstock.errors import BackupDamaged, BadArgument, CheckpointForeign, TableDiffers
from penstock.lifecycle import preconditions, stream
from penstock.observe.noted import note
from penstock.plan import build
from penstock.spec.model import Pipeline


@dataclass(frozen=True)
class Restored:
    manifest: Manifest
    replaced: str | None  # where what was there before is now; None: nothing was changed, or there was nothing
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Repair:
    damage: list[Damage]
    backup: str | None = None  # the copy that was looked into
    aside: str | None = None  # where the damaged files are now; None: nothing was changed
    skipped: list[str] = field(default_factory=list)  # backups that were passed over, and why


def back_up(pipeline: Pipeline, to: Path | None = None) -> tuple[Path, Manifest]:
    """A consistent copy, also while the pipeline runs. Nothing is locked, and the run does not notice."""
    home = Home.of(pipeline)
    preconditions.require_checkpoint(home)
    place = to or backup.place_for(home, "backup")
    return place, backup.make(
        home, place, pipeline.name, lambda copy: preconditions.check(copy, pipeline.name, frozenset())
    )


def restore(pipeline: Pipeline, source: Path, *, dry_run: bool = False) -> Restored:
    """Put a backup in the place of the checkpoint. What was there is kept aside.

    Raises AlreadyRunning while the pipeline runs, BackupDamaged, and TableDiffers where a sink has gone on since.
    """
    if not source.exists():
        raise BadArgument(
            f"there is no backup {source}", next_command="penstock checkpoint show FILE lists those it has"
        )
    home = Home.of(pipeline)
    with home.held(), backup.opened(source) as (copy, manifest):
        if manifest.pipeline != pipeline.name:
            raise CheckpointForeign(
                f"{source} is a backup of pipeline '{manifest.pipeline}', not of '{pipeline.name}'",
                next_command="use a backup of this pipeline; or begin a new one there: penstock checkpoint fork",
            )
        preconditions.check(copy, pipeline.name, frozenset())
        _require_sinks_to_agree(pipeline, copy, source)
        warnings = _twice(pipeline, home, manifest)
        if dry_run:
            return Restored(manifest, None, warnings)
        replaced = _exchange(home, copy, source)
        made = {"of": manifest.time, "committed": manifest.committed, "replaced": replaced}
        note(pipeline, "restore", backup=str(source), **made)
        return Restored(manifest, replaced, warnings)


def repair(pipeline: Pipeline, source: Path | None = None, *, apply: bool = False) -> Repair:
    """What is damaged, and what it could be made again from; with `apply` it is done. `source`: the backup to use, else
    the newest one that the checkpoint directory has and that is whole."""
    home = Home.of(pipeline)
    if not apply:
        return _repaired(home, source, apply=False)
    with home.held():
        made = _repaired(home, source, apply=True)
        if made.aside is not None:
            files = sum(each.content is not None for each in made.damage)
            left = len(made.damage) - files
            note(pipeline, "repair", files=files, left=left, backup=made.backup, replaced=made.aside)
        return made


def _repaired(home: Home, source: Path | None, *, apply: bool) -> Repair:
    found, place, skipped = _found(home, source)
    can = [each for each in found if each.content is not None]
    if not apply or not can:
        return Repair(found, place, skipped=skipped)
    aside = backup.place_for(home, backup.DAMAGED)
    aside.mkdir(parents=True)
    damage.repair(home, can, aside)
    return Repair(found, place, str(aside), skipped)


def _found(home: Home, source: Path | None) -> tuple[list[Damage], str | None, list[str]]:
    """The damage, the backup that was looked into, and those that were passed over."""
    skipped: list[str] = []
    for place in [source] if source else reversed(backup.kept(home)):
        try:
            with backup.opened(place) as (copy, _):
                if damage.helps(home, copy):
                    return damage.find(home, copy), str(place), skipped
                skipped.append(f"{place} is not known to be of this query")
        except BackupDamaged as error:
            if source:
                raise
            skipped.append(f"{error.what}: {error.cause}")
    return damage.find(home), None, skipped


def _require_sinks_to_agree(pipeline: Pipeline, copy: Home, source: Path) -> None:
    """Ask sinks and dead letters as a start with this checkpoint would."""
    try:
        # Reader schemas are written down while the parts are made: not into the backup.
        with set_aside(pipeline, copy, purpose="restore") as aside:
            stream.prepare(build.assembly(aside, copy), frozenset())
    except TableDiffers as error:
        raise TableDiffers(
            f"{source} does not fit what the sinks hold: {error.what}",
            cause=error.cause,
            next_command="restore the sinks to the same moment, or use the backup that belongs to what they hold; or "
            "begin a pipeline with sinks of its own: penstock checkpoint fork",
        ) from None


def _twice(pipeline: Pipeline, home: Home, manifest: Manifest) -> list[str]:
    """Sinks that do not know their batches cannot say that they are ahead; the ledger of now can."""
    last, first = Ledger(home.ledger).last_batch(), 0 if manifest.committed is None else manifest.committed + 1
    if last is None or last.query != manifest.query or last.batch < first:
        return []
    plain = [name for name, sink in pipeline.sinks.items() if sink.kafka and sink.kafka.guarantee == "at-least-once"]
    since = f"batches {first} to {last.batch}" if last.batch > first else f"batch {first}"
    return [f"sink '{name}' is at least once: it gets the records of {since} a second time" for name in plain]


def _exchange(home: Home, copy: Home, source: Path) -> str | None:
    """Old parts go aside and new ones come in, one after the other, Spark's checkpoint first and the ledger last.

    1. The new parts are copied beside the old ones.
    2. A note says that an exchange is under way: from here on `guard` lets nothing start.
    3. Each part is exchanged. After a crash the same command does everything again; what went aside stays there.
    4. The note is removed.
    """
    new = home.path / ".restore.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for name in PARTS:
        if (part := copy.path / name).exists():
            (shutil.copytree if part.is_dir() else shutil.copyfile)(part, new / name)
    sync_all(new)
    aside = backup.place_for(home, backup.REPLACED)
    aside.mkdir(parents=True)
    put(home.restoring, str(source).encode())
    for name in PARTS:
        if (home.path / name).exists():
            (home.path / name).rename(aside / name)
        if (new / name).exists():
            (new / name).rename(home.path / name)
        sync_directory(aside)
        sync_directory(home.path)
    new.rmdir()
    replaced = any(file.is_file() for file in aside.rglob("*"))
    if not replaced:
        shutil.rmtree(aside)
    home.restoring.unlink()
    sync_directory(home.path)
    return str(aside) if replaced else None
